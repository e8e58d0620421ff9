// Vectors of eight numbers, how the three dtypes are read into them, and how eight of them are added up.
//
// Arithmetic is in float64: squares and fourth powers of float32 numbers neither overflow nor vanish there, and a
// mean takes no digits from the variance. The order of additions is fixed by the lanes, whatever the instruction
// set. Where a processor contracts products into additions the last bits of a sum may differ from those elsewhere.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#define INLINE static inline __attribute__((always_inline))
#define INLINED __attribute__((always_inline))
// Written out before anything else is done to a loop over rows, so that a sum for each of them stays in a register.
#define UNROLLED _Pragma("GCC unroll 8")

namespace {

constexpr int64_t LANES = 8;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef double Doubles __attribute__((vector_size(8 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef int64_t Longs __attribute__((vector_size(8 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

struct Float16 { uint16_t bits; };
struct BFloat16 { uint16_t bits; };

// Without their sign, the bits of float32 numbers order as the numbers do; from here on they are not finite.
constexpr int32_t NOT_FINITE = 0x7f800000;
constexpr int32_t NO_SIGN = 0x7fffffff;

INLINE Floats floats(const float *x) {
  Floats wide;
  std::memcpy(&wide, x, sizeof wide);
  return wide;
}

// Of two vectors, the entries of these numbers.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define ENTRIES(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif

INLINE Ints ints(Halves x) {
#if defined(ENTRIES) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  // What compilers make of the conversion is slower by half.
  return (Ints)ENTRIES(x, Halves{}, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_convertvector(x, Ints);
#endif
}

INLINE Floats floats(const BFloat16 *x) {
  Halves half;
  std::memcpy(&half, x, sizeof half);
  return (Floats)(ints(half) << 16);
}

INLINE Floats floats(const Float16 *x) {
  Halves half;
  std::memcpy(&half, x, sizeof half);
  const Ints bits = ints(half);
  // Moved into place, the exponent is 112 too small; the product also makes subnormal numbers right.
  const Floats scaled = (Floats)((bits & 0x7fff) << 13) * 0x1p112f;
  const Ints infinite = (bits & 0x7c00) == 0x7c00;
  return (Floats)(((Ints)scaled & ~infinite) | (infinite & NOT_FINITE) | ((bits & 0x8000) << 16));
}

// The next numbers of a row; where fewer than LANES are left, with zeros behind them.
template <class Stored> INLINE Floats lanes(const Stored *x, int64_t count) {
  if (count == LANES) return floats(x);
  Stored padded[LANES];
  std::memset(padded, 0, sizeof padded);
  std::memcpy(padded, x, count * sizeof *x);
  return floats(padded);
}

INLINE Doubles doubles(Floats x) { Doubles w; for (int l = 0; l < LANES; ++l) w[l] = x[l]; return w; }

// One for each of the first lanes, and zero for the others.
INLINE Doubles first(int64_t count) {
  Doubles ones;
  for (int lane = 0; lane < LANES; ++lane) ones[lane] = lane < count;
  return ones;
}

INLINE Ints magnitude(Floats x) { return (Ints)x & NO_SIGN; }

INLINE Ints larger(Ints one, Ints two) { return one > two ? one : two; }

INLINE double added(Doubles x) { return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])); }

// Entry by entry in the order in which lanes are added.
INLINE Doubles together(const Doubles (&x)[LANES]) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

// The sum of each of eight vectors, as one.
INLINE Doubles added_each(const Doubles (&x)[LANES]) {
#ifdef ENTRIES
  Doubles pairs[4], fours[2];
  UNROLLED for (int at = 0; at < 4; ++at)
    pairs[at] = ENTRIES(x[2 * at], x[2 * at + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
                ENTRIES(x[2 * at], x[2 * at + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  UNROLLED for (int at = 0; at < 2; ++at)
    fours[at] = ENTRIES(pairs[2 * at], pairs[2 * at + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
                ENTRIES(pairs[2 * at], pairs[2 * at + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  return ENTRIES(fours[0], fours[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         ENTRIES(fours[0], fours[1], 4, 5, 6, 7, 12, 13, 14, 15);
#else
  Doubles sums;
  for (int at = 0; at < LANES; ++at) sums[at] = added(x[at]);
  return sums;
#endif
}

INLINE int32_t largest(Ints x) {
  int32_t most = 0;
  for (int lane = 0; lane < LANES; ++lane) most = x[lane] > most ? x[lane] : most;
  return most;
}

INLINE double as_number(int32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// The largest magnitude. It is found in bits, among which those of what is not finite are the largest.
template <class Stored> class Peak {
 public:
  INLINED void enter(Floats x) { wide = larger(wide, magnitude(x)); }
  // Rows as they are stored, a cache line at a time. The lines of those that are `next` will be read soon: they are
  // fetched, and those further on brought nearer, so that neither has to be waited for.
  template <int ROWS> INLINED void enter(const Stored *const *rows, int64_t width, int64_t next) {
    int64_t at = 0;
    for (; at + LINE <= width; at += LINE)
      UNROLLED for (int row = 0; row < ROWS; ++row) {
        __builtin_prefetch(rows[row] + next + at);
        __builtin_prefetch(rows[row] + 4 * next + at, 0, 2);
        Line line;
        std::memcpy(&line, rows[row] + at, sizeof line);
        line &= static_cast<Bits>(~(1u << (8 * sizeof(Bits) - 1)));
        stored = line > stored ? line : stored;
      }
    for (; at < width; at += LANES)
      for (int row = 0; row < ROWS; ++row) enter(lanes(rows[row] + at, width - at < LANES ? width - at : LANES));
  }
  double value() const {
    Stored numbers[LINE];
    std::memcpy(numbers, &stored, sizeof numbers);
    Ints most = wide;
    for (int64_t at = 0; at < LINE; at += LANES) most = larger(most, magnitude(floats(numbers + at)));
    return as_number(largest(most));
  }

 private:
  static constexpr int64_t LINE = 64 / sizeof(Stored);
  typedef std::conditional_t<sizeof(Stored) == 4, int32_t, int16_t> Bits;
  typedef Bits Line __attribute__((vector_size(64)));
  Line stored = {};
  Ints wide = {};
};

// Whether the processor has vectors of eight float64 numbers. What compilers make of shorter ones is slow to keep.
INLINE bool has_doubles() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

// Calls step(first feature, number of lanes) along a row. That nearly all calls are for LANES lanes is known where
// they are inlined, so that these have no branch.
template <class Step> INLINE void along(int64_t width, Step step) {
  int64_t at = 0;
  for (; at + LANES <= width; at += LANES) step(at, LANES);
  if (at < width) step(at, width - at);
}

}  // namespace
