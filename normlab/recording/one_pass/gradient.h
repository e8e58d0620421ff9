#pragma once

#include "tokens.h"

namespace {

struct Gradient { double tokens, nonfinite, squares, coherent, spread, largest; };

template <class Stored>
INLINE int64_t gradient(const Stored *x, Shape shape, Strides strides, const bool *keep, Gradient *out) {
  Features<0> total(shape.width);
  Gradient sums = {};
  Ints peaks[2] = {};
  int64_t counted = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    Doubles squares[4] = {};
    const int64_t before = counted;
    total.clear();
    const auto row = [&](int64_t token) { return x + sequence * strides.sequence + token * strides.token; };
    by_tokens(shape, keep, sequence, row, [&](const Stored *const *rows, auto number) INLINED {
      constexpr int ROWS = decltype(number)::value;
      counted += ROWS;
      along(shape.width, [&](int64_t at, int64_t count) {
        Doubles wide[LANES] = {};
        for (int row = 0; row < ROWS; ++row) {
          __builtin_prefetch(rows[row] + ROWS * strides.token + at);
          const Floats values = lanes(rows[row] + at, count);
          peaks[row % 2] = larger(peaks[row % 2], magnitude(values));
          wide[row] = doubles(values);
          squares[row % 4] += wide[row] * wide[row];
        }
        total.at(at) += ROWS == 1 ? wide[0] : together(wide);
      });
    });
    const double square = (added(squares[0]) + added(squares[1])) + (added(squares[2]) + added(squares[3]));
    sums.squares += square;
    sums.coherent += total.squared();
    sums.spread += static_cast<double>(counted - before) * square;
  }
  const int32_t most = largest(larger(peaks[0], peaks[1]));
  if (most >= NOT_FINITE) return -1;
  sums.tokens = static_cast<double>(counted);
  sums.largest = as_number(most);
  *out = sums;
  return counted;
}

}  // namespace
