// One pass over a tensor in host memory: everything that a recorded step needs to know of it.
//
// A token is read from memory once and stays in the first-level cache for what follows. Arithmetic is in
// float64: squares and fourth powers of float32 numbers neither overflow nor vanish there, and a mean takes no
// digits from the variance. The order of additions is fixed by the lanes below, whatever the instruction set, and
// products are not contracted into additions: same input, same bits, on every machine.
//
// Each function returns the number of tokens that entered, or -1 where a token that counts is not finite or its
// root mean square is too small for float32: the caller then takes the careful way.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define EVERY_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_ISA
#endif
#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int64_t LANES = 8;
constexpr int RUNS = 4;
// Entries ahead at which long runs ask for memory.
constexpr int64_t AHEAD = 1024;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef double Doubles __attribute__((vector_size(8 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
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

INLINE Floats floats(const BFloat16 *x) {
  Halves half;
  std::memcpy(&half, x, sizeof half);
  return (Floats)(__builtin_convertvector(half, Ints) << 16);
}

INLINE Floats floats(const Float16 *x) {
  Halves half;
  std::memcpy(&half, x, sizeof half);
  const Ints bits = __builtin_convertvector(half, Ints);
  // Moved into place, the exponent is 112 too small; the product also makes subnormal numbers right.
  const Floats scaled = (Floats)((bits & 0x7fff) << 13) * 0x1p112f;
  const Ints infinite = (bits & 0x7c00) == 0x7c00;
  return (Floats)(((Ints)scaled & ~infinite) | (infinite & NOT_FINITE) | ((bits & 0x8000) << 16));
}

// What is left of a row, with zeros behind it.
template <class Stored> INLINE Floats rest(const Stored *x, int64_t count) {
  Stored padded[LANES];
  std::memset(padded, 0, sizeof padded);
  std::memcpy(padded, x, count * sizeof *x);
  return floats(padded);
}

template <class Stored> INLINE Floats lanes(const Stored *x, int64_t count) {
  return count == LANES ? floats(x) : rest(x, count);
}

INLINE Doubles doubles(Floats x) {
  Doubles wide;
  for (int lane = 0; lane < LANES; ++lane) wide[lane] = x[lane];
  return wide;
}

// One for each of the first lanes, and zero for the others.
INLINE Doubles first(int64_t count) {
  Doubles ones;
  for (int lane = 0; lane < LANES; ++lane) ones[lane] = lane < count;
  return ones;
}

INLINE Ints magnitude(Floats x) { return (Ints)x & NO_SIGN; }

INLINE Ints larger(Ints one, Ints two) { return one > two ? one : two; }

INLINE double added(Doubles x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

INLINE double added(const Doubles (&runs)[RUNS]) { return added((runs[0] + runs[1]) + (runs[2] + runs[3])); }

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

// Calls step(run, first feature, number of lanes) along a row, in interleaved runs. That nearly all calls are for
// LANES lanes is known where they are inlined, so that these have no branch.
template <class Step> INLINE void along(int64_t width, Step step) {
  int64_t at = 0;
  for (; at + RUNS * LANES <= width; at += RUNS * LANES)
    for (int run = 0; run < RUNS; ++run) step(run, at + run * LANES, LANES);
  for (; at + LANES <= width; at += LANES) step(0, at, LANES);
  if (at < width) step(0, at, width - at);
}

struct Shape { int64_t sequences, tokens, width; };
struct Strides { int64_t sequence, token; };

// A sum over the tokens of a sequence for every feature, padded to whole vectors.
class Features {
 public:
  explicit Features(int64_t width)
      : padded((width + LANES - 1) / LANES * LANES),
        values(static_cast<double *>(std::aligned_alloc(sizeof(Doubles), padded * sizeof(double)))) {}
  ~Features() { std::free(values); }
  Features(const Features &) = delete;
  Features &operator=(const Features &) = delete;
  __attribute__((always_inline)) void clear() { std::memset(values, 0, padded * sizeof(double)); }
  __attribute__((always_inline)) void add(int64_t at, Doubles x) { *reinterpret_cast<Doubles *>(values + at) += x; }
  __attribute__((always_inline)) double squared() const {
    Doubles sum = {};
    for (int64_t at = 0; at < padded; at += LANES) {
      const Doubles x = *reinterpret_cast<const Doubles *>(values + at);
      sum += x * x;
    }
    return added(sum);
  }

 private:
  int64_t padded;
  double *values;
};

struct Token { double mean, squares, fourth; Ints peak; };

template <class Stored> INLINE Token moments(const Stored *row, int64_t width) {
  Token token;
  Doubles sums[RUNS] = {}, squares[RUNS] = {}, fourths[RUNS] = {};
  Ints peaks[RUNS] = {};
  along(width, [&](int run, int64_t at, int64_t count) {
    const Floats x = lanes(row + at, count);
    peaks[run] = larger(peaks[run], magnitude(x));
    sums[run] += doubles(x);
  });
  token.peak = larger(larger(peaks[0], peaks[1]), larger(peaks[2], peaks[3]));
  // Divided, not multiplied by 1/width: the mean of equal numbers is that number, and their spread is zero.
  token.mean = added(sums) / static_cast<double>(width);
  along(width, [&](int run, int64_t at, int64_t count) {
    const Doubles centred = (doubles(lanes(row + at, count)) - token.mean) * first(count);
    const Doubles squared = centred * centred;
    squares[run] += squared;
    fourths[run] += squared * squared;
  });
  token.squares = added(squares);
  token.fourth = added(fourths);
  return token;
}

// In the order of the sums of an activation, without its numbers of tokens and of entries that are not finite.
struct Activation {
  double square, mean, variance, kurtosis, varying, cosine, cosine_pairs, overlap, overlap_pairs, alone, largest;
};

template <class Stored>
INLINE int64_t activation(const Stored *x, Shape shape, Strides strides, const bool *keep, bool vectors, float *radii,
                          Activation *out) {
  const int64_t width = shape.width;
  Features total(width), direction(width);
  Activation sums = {};
  Ints peak = {};
  int64_t counted = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    double tokens = 0, nonzero = 0, square = 0;
    total.clear();
    direction.clear();
    for (int64_t token = 0; token < shape.tokens; ++token) {
      if (keep && !keep[sequence * shape.tokens + token]) continue;
      const Stored *row = x + sequence * strides.sequence + token * strides.token;
      const Token of = moments(row, width);
      if (largest(of.peak) >= NOT_FINITE) return -1;
      peak = larger(peak, of.peak);
      const double variance = of.squares / width, mean_square = variance + of.mean * of.mean;
      const double radius = std::sqrt(mean_square);
      if (radius > 0 && radius < 0x1p-126) return -1;
      radii[counted++] = static_cast<float>(radius);
      tokens += 1;
      square += mean_square;
      sums.mean += of.mean;
      sums.variance += variance;
      if (of.squares > 0) {
        sums.kurtosis += of.fourth / of.squares * (width / of.squares);
        sums.varying += 1;
      }
      nonzero += radius > 0;
      if (!vectors) continue;
      const double unit = radius > 0 ? 1 / std::sqrt(mean_square * width) : 0;
      along(width, [&](int, int64_t at, int64_t count) {
        const Doubles values = doubles(lanes(row + at, count));
        total.add(at, values);
        direction.add(at, values * unit);
      });
    }
    sums.square += square;
    sums.cosine += nonzero > 1 ? direction.squared() - nonzero : 0;
    sums.cosine_pairs += nonzero * (nonzero - 1);
    sums.overlap += tokens > 1 ? total.squared() / width - square : 0;
    sums.overlap_pairs += tokens * (tokens - 1);
    sums.alone += tokens == 1;
  }
  sums.largest = as_number(largest(peak));
  *out = sums;
  return counted;
}

struct Gradient { double squares, coherent, spread, largest; };

template <class Stored>
INLINE int64_t gradient(const Stored *x, Shape shape, Strides strides, const bool *keep, Gradient *out) {
  const int64_t width = shape.width;
  Features total(width);
  Gradient sums = {};
  Ints peak = {};
  int64_t counted = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    double squares = 0;
    int64_t tokens = 0;
    total.clear();
    for (int64_t token = 0; token < shape.tokens; ++token) {
      if (keep && !keep[sequence * shape.tokens + token]) continue;
      const Stored *row = x + sequence * strides.sequence + token * strides.token;
      Doubles runs[RUNS] = {};
      Ints peaks[RUNS] = {};
      along(width, [&](int run, int64_t at, int64_t count) {
        const Floats values = lanes(row + at, count);
        const Doubles wide = doubles(values);
        peaks[run] = larger(peaks[run], magnitude(values));
        runs[run] += wide * wide;
        total.add(at, wide);
      });
      peak = larger(peak, larger(larger(peaks[0], peaks[1]), larger(peaks[2], peaks[3])));
      squares += added(runs);
      ++tokens;
    }
    if (largest(peak) >= NOT_FINITE) return -1;
    sums.squares += squares;
    sums.coherent += total.squared();
    sums.spread += tokens * squares;
    counted += tokens;
  }
  sums.largest = as_number(largest(peak));
  *out = sums;
  return counted;
}

// In the order of the sums of a pair, without its numbers of tokens and of entries that are not finite.
struct Pair { double update, skip, product, covariance, lost; };

template <class Stored>
INLINE int64_t pair(const Stored *update, const Stored *skip, const Stored *total, Shape shape,
                    const Strides (&strides)[3], const bool *keep, Pair *out) {
  const int64_t width = shape.width;
  Pair sums = {};
  int64_t counted = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence)
    for (int64_t token = 0; token < shape.tokens; ++token) {
      if (keep && !keep[sequence * shape.tokens + token]) continue;
      const Stored *u = update + sequence * strides[0].sequence + token * strides[0].token;
      const Stored *s = skip + sequence * strides[1].sequence + token * strides[1].token;
      const Stored *t = total ? total + sequence * strides[2].sequence + token * strides[2].token : nullptr;
      Doubles u_sum[RUNS] = {}, s_sum[RUNS] = {}, u_square[RUNS] = {}, s_square[RUNS] = {}, product[RUNS] = {};
      Doubles lost[RUNS] = {};
      Ints peaks[RUNS] = {};
      along(width, [&](int run, int64_t at, int64_t count) {
        const Floats one = lanes(u + at, count), two = lanes(s + at, count);
        const Doubles a = doubles(one), b = doubles(two), a_squared = a * a, b_squared = b * b;
        peaks[run] = larger(peaks[run], larger(magnitude(one), magnitude(two)));
        u_sum[run] += a;
        s_sum[run] += b;
        u_square[run] += a_squared;
        s_square[run] += b_squared;
        product[run] += a * b;
        if (t) {
          const Floats stored = lanes(t + at, count);
          // The stored sum less the larger term is exact, however far apart the terms are.
          const auto swapped = a_squared < b_squared;
          const Doubles off = (doubles(stored) - (swapped ? b : a)) - (swapped ? a : b);
          peaks[run] = larger(peaks[run], magnitude(stored));
          lost[run] += off * off;
        }
      });
      if (largest(larger(larger(peaks[0], peaks[1]), larger(peaks[2], peaks[3]))) >= NOT_FINITE) return -1;
      const double over_width = added(product) / width;
      sums.update += added(u_square) / width;
      sums.skip += added(s_square) / width;
      sums.product += over_width;
      sums.covariance += over_width - (added(u_sum) / width) * (added(s_sum) / width);
      sums.lost += added(lost) / width;
      ++counted;
    }
  *out = sums;
  return counted;
}

template <class Stored> INLINE double squares(const Stored *x, int64_t entries) {
  Doubles sums[RUNS] = {};
  Ints peaks[RUNS] = {};
  along(entries, [&](int run, int64_t at, int64_t count) {
    __builtin_prefetch(x + at + AHEAD);
    const Floats values = lanes(x + at, count);
    const Doubles wide = doubles(values);
    peaks[run] = larger(peaks[run], magnitude(values));
    sums[run] += wide * wide;
  });
  const bool finite = largest(larger(larger(peaks[0], peaks[1]), larger(peaks[2], peaks[3]))) < NOT_FINITE;
  return finite ? added(sums) : -1;
}

enum Dtype { FLOAT32, FLOAT16, BFLOAT16 };

}  // namespace

// The functions that are called from outside. `stored` says the dtype; `at` holds the shape and, for each tensor, the
// strides of its sequences and tokens, all in entries; `keep` has an entry a token, or is null where all count.
// Without `vectors`, sums over the tokens of a sequence are left out, and what follows from them is meaningless.

#define BY_DTYPE(call)                            \
  switch (stored) {                               \
    case FLOAT32: { typedef float T; return call; } \
    case FLOAT16: { typedef Float16 T; return call; } \
    default: { typedef BFloat16 T; return call; } \
  }

extern "C" EVERY_ISA int64_t normlab_activation(int stored, const void *x, const int64_t *at, const bool *keep,
                                                bool vectors, float *radii, double *sums) {
  const Shape shape = {at[0], at[1], at[2]};
  const Strides strides = {at[3], at[4]};
  BY_DTYPE(activation(static_cast<const T *>(x), shape, strides, keep, vectors, radii,
                      reinterpret_cast<Activation *>(sums)))
}

extern "C" EVERY_ISA int64_t normlab_gradient(int stored, const void *x, const int64_t *at, const bool *keep,
                                              double *sums) {
  const Shape shape = {at[0], at[1], at[2]};
  const Strides strides = {at[3], at[4]};
  BY_DTYPE(gradient(static_cast<const T *>(x), shape, strides, keep, reinterpret_cast<Gradient *>(sums)))
}

extern "C" EVERY_ISA int64_t normlab_pair(int stored, const void *update, const void *skip, const void *total,
                                          const int64_t *at, const bool *keep, double *sums) {
  const Shape shape = {at[0], at[1], at[2]};
  const Strides strides[3] = {{at[3], at[4]}, {at[5], at[6]}, {at[7], at[8]}};
  BY_DTYPE(pair(static_cast<const T *>(update), static_cast<const T *>(skip), static_cast<const T *>(total), shape,
                strides, keep, reinterpret_cast<Pair *>(sums)))
}

// Sums of squares of many contiguous tensors; -1 for one that has an entry which is not finite.
extern "C" EVERY_ISA void normlab_squares(int64_t number, const int *dtypes, const void *const *tensors,
                                          const int64_t *counts, double *sums) {
  for (int64_t tensor = 0; tensor < number; ++tensor) {
    const int stored = dtypes[tensor];
    const void *x = tensors[tensor];
    sums[tensor] = [&]() __attribute__((always_inline)) -> double {
      BY_DTYPE(squares(static_cast<const T *>(x), counts[tensor]))
    }();
  }
}

// The functions are called by ctypes. Where Python's headers are there the library can be imported too, for tools that
// import every module; the module is empty.
#if __has_include(<Python.h>)
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&definition); }
#endif
