#pragma once

#include "tokens.h"

namespace {

struct Activation {
  double tokens, nonfinite, square, mean, variance, kurtosis, varying, cosine, cosine_pairs, overlap, overlap_pairs,
      alone, largest;
  float *radii() { return reinterpret_cast<float *>(this + 1); }
};

// Sums over the features of some tokens, a lane each.
struct Moments { Doubles mean, squares, fourth; };

template <int ROWS, class Stored>
INLINE Moments moments(const Stored *const *rows, int64_t width, int64_t ahead, bool vectors, Features &total,
                       Ints &peak) {
  Doubles sums[LANES] = {}, squares[LANES] = {}, fourths[LANES] = {};
  along(width, [&](int64_t at, int64_t count) {
    Doubles wide[LANES] = {};
    for (int row = 0; row < ROWS; ++row) {
      const Floats x = lanes(rows[row] + at, count);
      peak = larger(peak, magnitude(x));
      wide[row] = doubles(x);
      sums[row] += wide[row];
    }
    if (vectors) total.add(at, ROWS == 1 ? wide[0] : together(wide));
  });
  // Divided, not multiplied by 1/width: the mean of equal numbers is that number, and their spread is zero.
  const Doubles mean = added_each(sums) / static_cast<double>(width);
  along(width, [&](int64_t at, int64_t count) {
    for (int row = 0; row < ROWS; ++row) {
      __builtin_prefetch(rows[row] + ahead + at);
      Doubles centred = doubles(lanes(rows[row] + at, count)) - mean[row];
      if (count < LANES) centred *= first(count);
      const Doubles squared = centred * centred;
      squares[row] += squared;
      fourths[row] += squared * squared;
    }
  });
  return {mean, added_each(squares), added_each(fourths)};
}

template <int ROWS, class Stored>
INLINE void directions(const Stored *const *rows, int64_t width, Doubles unit, Features &direction) {
  along(width, [&](int64_t at, int64_t count) {
    Doubles wide[LANES] = {};
    for (int row = 0; row < ROWS; ++row) wide[row] = doubles(lanes(rows[row] + at, count)) * unit[row];
    direction.add(at, ROWS == 1 ? wide[0] : together(wide));
  });
}

INLINE Doubles roots(Doubles x) {
  for (int lane = 0; lane < LANES; ++lane) x[lane] = std::sqrt(x[lane]);
  return x;
}

// Zero where `where` does not hold.
INLINE Doubles only(Longs where, Doubles x) { return (Doubles)((Longs)x & where); }

template <class Stored>
INLINE int64_t activation(const Stored *x, Shape shape, Strides strides, const bool *keep, bool vectors,
                          Activation *out) {
  const int64_t width = shape.width;
  const double features = static_cast<double>(width), root = std::sqrt(features);
  Features total(width), direction(width);
  Activation sums = {};
  float *radii = out->radii();
  Doubles all_means = {}, variances = {}, kurtoses = {}, varying = {}, none = {};
  Ints peak = {};
  Longs tiny = {};
  int64_t counted = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    Doubles squares = {}, nonzeros = {};
    const int64_t before = counted;
    total.clear();
    direction.clear();
    const auto row = [&](int64_t token) { return x + sequence * strides.sequence + token * strides.token; };
    by_tokens(shape, keep, sequence, row, [&](const Stored *const *rows, auto number) INLINED {
      constexpr int ROWS = decltype(number)::value;
      const Moments of = moments<ROWS>(rows, width, ROWS * strides.token, vectors, total, peak);
      const Doubles variance = of.squares / features, mean_square = variance + of.mean * of.mean;
      const Doubles radius = roots(mean_square);
      const Longs is_zero = radius == none, varies = of.squares > none;
      tiny |= (radius < 0x1p-126) & ~is_zero;
      for (int lane = 0; lane < ROWS; ++lane) radii[counted + lane] = static_cast<float>(radius[lane]);
      counted += ROWS;
      squares += mean_square;
      all_means += of.mean;
      variances += variance;
      kurtoses += only(varies, of.fourth / of.squares * (features / of.squares));
      varying += only(varies, none + 1);
      nonzeros += only(~is_zero, first(ROWS));
      if (vectors) directions<ROWS>(rows, width, only(~is_zero, 1 / (radius * root)), direction);
    });
    const double tokens = static_cast<double>(counted - before), nonzero = added(nonzeros), square = added(squares);
    sums.square += square;
    sums.cosine += nonzero > 1 ? direction.squared() - nonzero : 0;
    sums.cosine_pairs += nonzero * (nonzero - 1);
    sums.overlap += tokens > 1 ? total.squared() / features - square : 0;
    sums.overlap_pairs += tokens * (tokens - 1);
    sums.alone += tokens == 1;
    if (largest(peak) >= NOT_FINITE) return -1;
  }
  for (int lane = 0; lane < LANES; ++lane)
    if (tiny[lane]) return -1;
  sums.tokens = static_cast<double>(counted);
  sums.mean = added(all_means);
  sums.variance = added(variances);
  sums.kurtosis = added(kurtoses);
  sums.varying = added(varying);
  sums.largest = as_number(largest(peak));
  *out = sums;
  return counted;
}

}  // namespace
