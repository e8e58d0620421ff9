// The recorder's statistics, in one pass and for any strides. Eight numbers a row:
//   0 count   1 mean   2 sum (x-mean)^2   3 sum (x-mean)^3   4 sum (x-mean)^4   5 max |x|   6 non-finite   7 sum x^2
// Non-finite entries enter 6 alone. What the recorder keeps of a token, six numbers, is written beside them:
//   0 mean   1 sum (x-mean)^2   2 root of sum (x-mean)^4   3 max |x|   4 non-finite   5 |x|
// each as a row over all tokens. A token that does not count (masked, or with a non-finite entry) has NaN in 0 and 5
// and zero elsewhere; only its non-finite entries are counted, unless it is masked.
//
// A thread takes eight elements at a time in float, scaled by a power of two so that neither the fourth power of 1e30
// nor the square of 1e-30 leaves the range of float, about their own mean. Everything that outlives the eight is
// double: merging costs four double operations an element, which the time of a memory access covers.

constexpr int kMoments = 8;

__device__ __forceinline__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// The power of two in |x|, and its inverse; both are normal numbers for every x.
struct Scale {
  float up, down;
  __device__ __forceinline__ explicit Scale(float largest) {
    const int exponent = (int)(__float_as_uint(largest) >> 23 & 255u);
    const int biased = min(exponent > 1 ? exponent : 1, 253);
    up = __uint_as_float((unsigned)biased << 23);
    down = __uint_as_float((unsigned)(254 - biased) << 23);
  }
};

struct Moments {
  double count, mean, m2, m3, m4, peak, bad, squares;

  // Pébay's update for two sets; either may be empty.
  __device__ __forceinline__ void merge(const Moments& b) {
    const double n = count + b.count;
    peak = b.peak > peak ? b.peak : peak;
    bad += b.bad;
    squares += b.squares;
    if (b.count == 0.0) return;
    const double d = b.mean - mean, e = d / n, na = count, nb = b.count;
    m4 += b.m4 + d * e * e * e * na * nb * (na * na - na * nb + nb * nb) + 6.0 * e * e * (na * na * b.m2 + nb * nb * m2) +
          4.0 * e * (na * b.m3 - nb * m3);
    m3 += b.m3 + d * e * e * na * nb * (na - nb) + 3.0 * e * (na * b.m2 - nb * m2);
    m2 += b.m2 + d * e * na * nb;
    mean += e * nb;
    count = n;
  }
  __device__ __forceinline__ void store(double* to) const {
    to[0] = count, to[1] = mean, to[2] = m2, to[3] = m3, to[4] = m4, to[5] = peak, to[6] = bad, to[7] = squares;
  }
  __device__ __forceinline__ void store_token(double* to, long long apart) const {
    const bool good = count > 0.0 && bad == 0.0;
    const double none = __longlong_as_double(0x7ff8000000000000LL);
    to[0] = good ? mean : none, to[apart] = good ? m2 : 0.0, to[2 * apart] = good ? sqrt(m4) : 0.0;
    to[3 * apart] = good ? peak : 0.0, to[4 * apart] = bad, to[5 * apart] = good ? sqrt(squares) : none;
  }
  static __device__ __forceinline__ Moments load(const double* from) {
    return {from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]};
  }
  // Those of the lane `delta` above.
  __device__ __forceinline__ Moments from_above(int delta) const {
    return {__shfl_down_sync(0xffffffffu, count, delta), __shfl_down_sync(0xffffffffu, mean, delta),
            __shfl_down_sync(0xffffffffu, m2, delta),    __shfl_down_sync(0xffffffffu, m3, delta),
            __shfl_down_sync(0xffffffffu, m4, delta),    __shfl_down_sync(0xffffffffu, peak, delta),
            __shfl_down_sync(0xffffffffu, bad, delta),   __shfl_down_sync(0xffffffffu, squares, delta)};
  }
};

// Of at most N elements, those of `value` whose bit in `present` is set.
template <int N> __device__ __forceinline__ Moments moments_of(float (&value)[N], unsigned present) {
  float largest = 0.0f, sum = 0.0f, count = 0.0f, bad = 0.0f;
  unsigned taken = 0;
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (!(present >> i & 1u)) continue;
    if (is_finite(value[i])) {
      largest = fmaxf(largest, fabsf(value[i]));
      count += 1.0f;
      taken |= 1u << i;
    } else {
      bad += 1.0f;
    }
  }
  if (!taken) return {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, bad, 0.0};
  const Scale scale(largest);
#pragma unroll
  for (int i = 0; i < N; i++) {
    value[i] = taken >> i & 1u ? value[i] * scale.down : 0.0f;
    sum += value[i];
  }
  const float pivot = sum / count;
  float rest = 0.0f, m2 = 0.0f, m3 = 0.0f, m4 = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (!(taken >> i & 1u)) continue;
    const float c = value[i] - pivot;
    rest += c, m2 += c * c, m3 += c * c * c, m4 += c * c * c * c, squares += value[i] * value[i];
  }
  // The pivot is the mean but for its rounding, `rest / count`; higher moments about it differ by less than they err.
  const double up = scale.up, off = (double)rest / count;
  return {count,
          ((double)pivot + off) * up,
          ((double)m2 - off * rest) * up * up,
          ((double)m3 - 3.0 * off * m2) * up * up * up,
          (double)m4 * up * up * up * up,
          largest,
          bad,
          (double)squares * up * up};
}

// Merges a team's moments into those of its first lane: lanes by a tree, warps in their order.
template <class M, int TEAM> __device__ __forceinline__ void merge_team(M& own, double (*scratch)[kMoments]) {
#pragma unroll
  for (int delta = 16; delta > 0; delta /= 2) {
    const M above = own.from_above(delta);
    if (threadIdx.x % 32 + delta < 32) own.merge(above);
  }
  if constexpr (TEAM > 32) {
    __syncthreads();  // whoever still reads the previous row's scratch
    if (threadIdx.x % 32 == 0) own.store(scratch[threadIdx.x / 32]);
    __syncthreads();
    if (threadIdx.x == 0)
      for (int warp = 1; warp < TEAM / 32; warp++) own.merge(M::load(scratch[warp]));
  }
}

// Eight elements from `column` on, as vectors or one by one; the result has a bit for each that the row has.
template <class T, int VEC, int TEAM>
__device__ __forceinline__ unsigned read_eight(const T* row, long long column, long long columns, long long stride,
                                               float (&value)[8]) {
  unsigned present = 0;
#pragma unroll
  for (int part = 0; part < 8 / VEC; part++) {
    const long long at = column + (long long)part * TEAM * VEC;
    if (at >= columns) continue;
    float some[VEC];
    read<T, VEC>(row + at * stride, some);
#pragma unroll
    for (int i = 0; i < VEC; i++) value[part * VEC + i] = some[i];
    present |= ((1u << VEC) - 1u) << part * VEC;
  }
  return present;
}

template <class T, int VEC, int TEAM>
__device__ __forceinline__ void tensor_moments(const T* x, const unsigned char* mask, double* moments, double* tokens,
                                               long long rows, long long columns, Rows x_rows,
                                               long long column_stride) {
  constexpr int ROWS = block_threads(TEAM) / TEAM;
  __shared__ double scratch[TEAM > 32 ? TEAM / 32 : 1][kMoments];
  const int lane = threadIdx.x % TEAM;
  for (long long first = (long long)blockIdx.x * ROWS; first < rows; first += (long long)gridDim.x * ROWS) {
    const long long row = first + threadIdx.x / TEAM;
    const bool here = row < rows && !(mask && !mask[row]);
    Moments own = {};
    if (here)
      for (long long column = lane * VEC; column < columns; column += TEAM * 8) {
        float value[8];
        const unsigned present = read_eight<T, VEC, TEAM>(x + x_rows.at(row), column, columns, column_stride, value);
        own.merge(moments_of<8>(value, present));
      }
    merge_team<Moments, TEAM>(own, scratch);
    if (row < rows && lane == 0) {
      if (moments) own.store(moments + row * kMoments);
      if (tokens) own.store_token(tokens + row, rows);
    }
  }
}

// One block merges all rows in an order that depends on nothing. A row with a non-finite entry counts in 6 alone.
template <int TEAM> __device__ __forceinline__ void moments_total(const double* moments, double* total, long long rows) {
  __shared__ double scratch[TEAM / 32][kMoments];
  Moments own = {};
  for (long long row = threadIdx.x; row < rows; row += TEAM) {
    const Moments one = Moments::load(moments + row * kMoments);
    if (one.bad > 0.0)
      own.bad += one.bad;
    else
      own.merge(one);
  }
  merge_team<Moments, TEAM>(own, scratch);
  if (threadIdx.x == 0) own.store(total);
}
