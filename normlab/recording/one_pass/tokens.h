// How a tensor's tokens are walked through, up to eight of one sequence at a time, and sums over them.

#pragma once

#include "lanes.h"

namespace {

// Tokens of this many features are read eight at a time: together they stay in the second-level cache.
constexpr int64_t NARROW = 8192;

struct Shape { int64_t sequences, tokens, width; };
struct Strides { int64_t sequence, token; };

template <int N> struct Number { static constexpr int value = N; };

// Calls step(rows of the tokens, how many) for the tokens of a sequence that count: LANES together while there are as
// many, then one by one. `row` tells where a token's features are.
template <class Row, class Step>
INLINE void by_tokens(const Shape &shape, const bool *keep, int64_t sequence, Row row, Step step) {
  const bool *kept = keep ? keep + sequence * shape.tokens : nullptr;
  decltype(row(0)) rows[LANES];
  for (int64_t token = 0; token < shape.tokens;) {
    int found = 0;
    for (; token < shape.tokens && found < LANES; ++token)
      if (!kept || kept[token]) rows[found++] = row(token);
    if (found == LANES && shape.width <= NARROW)
      step(rows, Number<LANES>());
    else
      for (int at = 0; at < found; ++at) step(rows + at, Number<1>());
  }
}

// A sum over the tokens of a sequence for every feature, or a number of each of some tokens; padded to whole vectors.
// Each thread keeps the memory of each PLACE for the next time: new memory would lie between the tensors of a model, and
// break up what they leave when they go.
template <int PLACE> class Features {
 public:
  explicit Features(int64_t width, int64_t tokens = 1)
      : padded((width + LANES - 1) / LANES * LANES * tokens), values(memory.of(padded)) {}
  Features(const Features &) = delete;
  Features &operator=(const Features &) = delete;
  INLINED void clear() { std::memset(values, 0, padded * sizeof(double)); }
  INLINED Doubles &at(int64_t feature) { return *reinterpret_cast<Doubles *>(values + feature); }
  INLINED Doubles *vectors() { return reinterpret_cast<Doubles *>(values); }
  INLINED double squared() const {
    Doubles sum = {};
    for (int64_t at = 0; at < padded; at += LANES) {
      const Doubles x = *reinterpret_cast<const Doubles *>(values + at);
      sum += x * x;
    }
    return added(sum);
  }

 private:
  struct Memory {
    int64_t length = 0;
    double *values = nullptr;
    ~Memory() { std::free(values); }
    double *of(int64_t needed) {
      if (needed > length) {
        std::free(values);
        values = static_cast<double *>(std::aligned_alloc(sizeof(Doubles), needed * sizeof(double)));
        length = needed;
      }
      return values;
    }
  };
  static thread_local Memory memory;
  int64_t padded;
  double *values;
};

template <int PLACE> thread_local typename Features<PLACE>::Memory Features<PLACE>::memory;

}  // namespace
