#pragma once

#include "tokens.h"

namespace {

struct Activation {
  double tokens, nonfinite, square, mean, variance, kurtosis, varying, cosine, cosine_pairs, overlap, overlap_pairs,
      alone, largest;
  float *radii() { return reinterpret_cast<float *>(this + 1); }
};

// Up to so many features the float64 numbers of eight tokens are kept, in half a first-level cache, for what follows.
// With more, to make them again of the stored ones costs less than to get them from further away.
constexpr int64_t KEPT = 384;

// Some tokens of a sequence. They are read three times, since each pass needs sums of the one before.
template <int ROWS, bool KEEP, class Stored> struct Tokens {
  const Stored *const *rows;
  int64_t width, next;  // next: where the same number of tokens follow
  Doubles *kept;        // ROWS vectors for each place of a row

  INLINED Doubles again(int row, int64_t at, int64_t count) const {
    return KEEP ? kept[at / LANES * ROWS + row] : doubles(lanes(rows[row] + at, count));
  }

  INLINED Doubles means(bool vectors, Features<0> &total, Peak<Stored> &peak) const {
    Doubles sums[LANES] = {};
    along(width, [&](int64_t at, int64_t count) INLINED {
      Doubles sum = vectors ? total.at(at) : Doubles{};
      UNROLLED for (int row = 0; row < ROWS; ++row) {
        const Doubles wide = doubles(lanes(rows[row] + at, count));
        if (KEEP) kept[at / LANES * ROWS + row] = wide;
        if (!KEEP) peak.enter(lanes(rows[row] + at, count));
        sums[row] += wide;
        sum += wide;
      }
      if (vectors) total.at(at) = sum;
    });
    // Divided, not multiplied by 1/width: the mean of equal numbers is that number, and their spread is zero.
    return added_each(sums) / static_cast<double>(width);
  }

  // Sums of squares and of fourth powers of what is left without the mean.
  INLINED void spread(Doubles mean, Doubles &squares, Doubles &fourths) const {
    Doubles row_squares[LANES] = {}, row_fourths[LANES] = {};
    along(width, [&](int64_t at, int64_t count) INLINED {
      UNROLLED for (int row = 0; row < ROWS; ++row) {
        if (!KEEP) __builtin_prefetch(rows[row] + next + at);
        Doubles centred = again(row, at, count) - mean[row];
        if (count < LANES) centred *= first(count);
        const Doubles squared = centred * centred;
        row_squares[row] += squared;
        row_fourths[row] += squared * squared;
      }
    });
    squares = added_each(row_squares);
    fourths = added_each(row_fourths);
  }

  // The peak of one half of the tokens: what a processor does while it waits for the numbers that a pass ends with.
  INLINED void peak_of_half(int half, Peak<Stored> &peak) const {
    if (KEEP) peak.template enter<ROWS / 2>(rows + half * (ROWS / 2), width, next);
  }

  INLINED void directions(Doubles unit, Features<1> &direction) const {
    along(width, [&](int64_t at, int64_t count) INLINED {
      Doubles sum = direction.at(at);
      UNROLLED for (int row = 0; row < ROWS; ++row) sum += again(row, at, count) * unit[row];
      direction.at(at) = sum;
    });
  }
};

INLINE Doubles roots(Doubles x) {
  for (int lane = 0; lane < LANES; ++lane) x[lane] = std::sqrt(x[lane]);
  return x;
}

template <class Stored>
INLINE int64_t activation(const Stored *x, Shape shape, Strides strides, const bool *keep, bool vectors,
                          Activation *out) {
  const int64_t width = shape.width;
  const double features = static_cast<double>(width), root = std::sqrt(features);
  const bool keeps = width <= KEPT && has_doubles();
  Features<0> total(width);
  Features<1> direction(width);
  Features<2> kept(keeps ? width : 0, LANES);
  Activation sums = {};
  float *radii = out->radii();
  const Doubles none = {}, ones = none + 1;
  Doubles all_means = {}, variances = {}, kurtoses = {}, varying = {}, least = ones;
  Peak<Stored> peak;
  int64_t counted = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    Doubles squares = {}, nonzeros = {};
    const int64_t before = counted;
    total.clear();
    direction.clear();
    const auto row = [&](int64_t token) { return x + sequence * strides.sequence + token * strides.token; };
    const auto enter = [&](auto tokens, int64_t rows) INLINED {
      Doubles spread, fourths;
      const Doubles mean = tokens.means(vectors, total, peak);
      tokens.peak_of_half(0, peak);
      tokens.spread(mean, spread, fourths);
      const Doubles variance = spread / features, mean_square = variance + mean * mean;
      const Doubles radius = roots(mean_square);
      least = (radius > none ? radius : ones) < least ? radius : least;
      for (int lane = 0; lane < rows; ++lane) radii[counted + lane] = static_cast<float>(radius[lane]);
      counted += rows;
      squares += mean_square;
      all_means += mean;
      variances += variance;
      kurtoses += spread > none ? fourths * features / (spread * spread) : none;
      varying += spread > none ? ones : none;
      nonzeros += radius > none ? ones : none;
      tokens.peak_of_half(1, peak);
      if (vectors) tokens.directions(radius > none ? 1 / (radius * root) : none, direction);
    };
    by_tokens(shape, keep, sequence, row, [&](const Stored *const *rows, auto number) INLINED {
      constexpr int ROWS = decltype(number)::value;
      if (ROWS > 1 && keeps)
        enter(Tokens<ROWS, true, Stored>{rows, width, ROWS * strides.token, kept.vectors()}, ROWS);
      else
        enter(Tokens<ROWS, false, Stored>{rows, width, ROWS * strides.token, nullptr}, ROWS);
    });
    const double tokens = static_cast<double>(counted - before), nonzero = added(nonzeros), square = added(squares);
    sums.square += square;
    sums.cosine += nonzero > 1 ? direction.squared() - nonzero : 0;
    sums.cosine_pairs += nonzero * (nonzero - 1);
    sums.overlap += tokens > 1 ? total.squared() / features - square : 0;
    sums.overlap_pairs += tokens * (tokens - 1);
    sums.alone += tokens == 1;
    if (!std::isfinite(peak.value())) return -1;
  }
  for (int lane = 0; lane < LANES; ++lane)
    if (least[lane] < 0x1p-126) return -1;
  sums.tokens = static_cast<double>(counted);
  sums.mean = added(all_means);
  sums.variance = added(variances);
  sums.kurtosis = added(kurtoses);
  sums.varying = added(varying);
  sums.largest = peak.value();
  *out = sums;
  return counted;
}

}  // namespace
