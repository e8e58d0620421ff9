#pragma once

#include "tokens.h"

namespace {

struct Pair {
  double tokens, nonfinite, update, skip, product, covariance, lost, lost_update, lost_tokens, summed;
};

constexpr int64_t AHEAD = 4;  // tokens

template <class Stored> struct Terms { const Stored *update, *skip, *total; };

template <class Stored>
INLINE int64_t pair(Terms<Stored> from, Shape shape, const Strides (&strides)[3], const bool *keep, Pair *out) {
  const int64_t width = shape.width;
  const double features = static_cast<double>(width);
  Doubles updates = {}, skips = {}, products = {}, lost = {}, of_means = {};
  int64_t counted = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const auto place = [&](int term, int64_t token) {
      return sequence * strides[term].sequence + token * strides[term].token;
    };
    const auto row = [&](int64_t token) -> Terms<Stored> {
      return {from.update + place(0, token), from.skip + place(1, token), from.total + place(2, token)};
    };
    by_tokens(shape, keep, sequence, row, [&](const Terms<Stored> *rows, auto number) INLINED {
      constexpr int ROWS = decltype(number)::value;
      counted += ROWS;
      Doubles update_sums[LANES] = {}, skip_sums[LANES] = {};
      for (int row = 0; row < ROWS; ++row) {
        const Terms<Stored> at_row = rows[row];
        Doubles update_sum = {}, skip_sum = {};
        along(width, [&](int64_t at, int64_t count) INLINED {
          __builtin_prefetch(at_row.update + AHEAD * strides[0].token + at);
          __builtin_prefetch(at_row.skip + AHEAD * strides[1].token + at);
          if (from.total) __builtin_prefetch(at_row.total + AHEAD * strides[2].token + at);
          const Doubles a = doubles(lanes(at_row.update + at, count)), b = doubles(lanes(at_row.skip + at, count));
          update_sum += a;
          skip_sum += b;
          updates += a * a;
          skips += b * b;
          products += a * b;
          if (from.total) {
            // What the sum without the skip is rounded by is exact too, so that terms may be however far apart.
            const Doubles sum = doubles(lanes(at_row.total + at, count)), rest = sum - b;
            const Doubles off = (rest - a) + ((sum - rest) - b);
            lost += off * off;
          }
        });
        update_sums[row] = update_sum;
        skip_sums[row] = skip_sum;
      }
      of_means += (added_each(update_sums) / features) * (added_each(skip_sums) / features);
    });
  }
  Pair sums = {};
  sums.update = added(updates) / features;
  sums.skip = added(skips) / features;
  sums.product = added(products) / features;
  sums.covariance = sums.product - added(of_means);
  sums.lost = added(lost) / features;
  // Squares of float32 numbers do not overflow: what is not finite here was not finite there.
  if (!std::isfinite(sums.update + sums.skip + sums.lost)) return -1;
  sums.tokens = sums.lost_tokens = static_cast<double>(counted);
  sums.lost_update = sums.update;
  sums.summed = from.total ? sums.tokens : 0;
  *out = sums;
  return counted;
}

}  // namespace
