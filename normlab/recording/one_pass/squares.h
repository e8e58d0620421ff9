#pragma once

#include "lanes.h"

namespace {

// Memory is read in several pages at once, since what fetches ahead in hardware ends at the end of a page.
constexpr int64_t PAGE = 4096;
constexpr int64_t PAGES = 8;

// `next` will be read after it: its first pages are fetched with the last ones of this.
template <class Stored> INLINE double squares(const Stored *x, int64_t entries, const Stored *next) {
  Doubles sums[PAGES] = {};
  Ints peaks[2] = {};
  const auto take = [&](int64_t page, int64_t at, int64_t count) {
    const Floats values = lanes(x + at, count);
    const Doubles wide = doubles(values);
    peaks[page % 2] = larger(peaks[page % 2], magnitude(values));
    sums[page] += wide * wide;
  };
  constexpr int64_t length = PAGE / sizeof(Stored), line = 64 / sizeof(Stored);
  int64_t at = 0;
  for (; at + PAGES * length <= entries; at += PAGES * length) {
    const Stored *after = at + 2 * PAGES * length <= entries ? x + at + PAGES * length : next;
    for (int64_t inside = 0; inside < length; inside += line)
      for (int64_t page = 0; page < PAGES; ++page) {
        const int64_t from = page * length + inside;
        __builtin_prefetch(after + from);
        for (int64_t lane = 0; lane < line; lane += LANES) take(page, at + from + lane, LANES);
      }
  }
  for (; at + LANES <= entries; at += LANES) take(at / LANES % PAGES, at, LANES);
  if (at < entries) take(0, at, entries - at);
  const bool finite = largest(larger(peaks[0], peaks[1])) < NOT_FINITE;
  return finite ? added(together(sums)) : -1;
}

}  // namespace
