// Two tensors at once, for what an update and the stream it is added to have in common. Eight numbers a row:
//   0 count   1 mean of x   2 mean of other   3 sum (x-mean)^2   4 the same of other   5 sum of the products of both
//   deviations   6 sum of products   7 non-finite pairs
// A pair of which either is non-finite enters 7 alone. Given their stored sum, `lost` is what its rounding lost:
// sum (stored - exact)^2 of a row, or NaN where that is not finite.

struct PairMoments {
  double count, mean_x, mean_y, xx, yy, xy, dot, bad;

  __device__ __forceinline__ void merge(const PairMoments& b) {
    const double n = count + b.count;
    bad += b.bad;
    dot += b.dot;
    if (b.count == 0.0) return;
    const double dx = b.mean_x - mean_x, dy = b.mean_y - mean_y, weight = count * (b.count / n);
    xx += b.xx + dx * dx * weight;
    yy += b.yy + dy * dy * weight;
    xy += b.xy + dx * dy * weight;
    mean_x += dx * (b.count / n);
    mean_y += dy * (b.count / n);
    count = n;
  }
  __device__ __forceinline__ void store(double* to) const {
    to[0] = count, to[1] = mean_x, to[2] = mean_y, to[3] = xx, to[4] = yy, to[5] = xy, to[6] = dot, to[7] = bad;
  }
  static __device__ __forceinline__ PairMoments load(const double* from) {
    return {from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]};
  }
  __device__ __forceinline__ PairMoments from_above(int delta) const {
    return {__shfl_down_sync(0xffffffffu, count, delta),  __shfl_down_sync(0xffffffffu, mean_x, delta),
            __shfl_down_sync(0xffffffffu, mean_y, delta), __shfl_down_sync(0xffffffffu, xx, delta),
            __shfl_down_sync(0xffffffffu, yy, delta),     __shfl_down_sync(0xffffffffu, xy, delta),
            __shfl_down_sync(0xffffffffu, dot, delta),    __shfl_down_sync(0xffffffffu, bad, delta)};
  }
};

template <int N>
__device__ __forceinline__ PairMoments pair_moments_of(float (&x)[N], float (&y)[N], unsigned present) {
  float largest_x = 0.0f, largest_y = 0.0f, sum_x = 0.0f, sum_y = 0.0f, count = 0.0f, bad = 0.0f;
  unsigned taken = 0;
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (!(present >> i & 1u)) continue;
    if (is_finite(x[i]) && is_finite(y[i])) {
      largest_x = fmaxf(largest_x, fabsf(x[i]));
      largest_y = fmaxf(largest_y, fabsf(y[i]));
      count += 1.0f;
      taken |= 1u << i;
    } else {
      bad += 1.0f;
    }
  }
  if (!taken) return {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, bad};
  const Scale scale_x(largest_x), scale_y(largest_y);
#pragma unroll
  for (int i = 0; i < N; i++) {
    x[i] = taken >> i & 1u ? x[i] * scale_x.down : 0.0f;
    y[i] = taken >> i & 1u ? y[i] * scale_y.down : 0.0f;
    sum_x += x[i];
    sum_y += y[i];
  }
  const float pivot_x = sum_x / count, pivot_y = sum_y / count;
  float rest_x = 0.0f, rest_y = 0.0f, xx = 0.0f, yy = 0.0f, xy = 0.0f, dot = 0.0f;
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (!(taken >> i & 1u)) continue;
    const float a = x[i] - pivot_x, b = y[i] - pivot_y;
    rest_x += a, rest_y += b, xx += a * a, yy += b * b, xy += a * b, dot += x[i] * y[i];
  }
  const double up_x = scale_x.up, up_y = scale_y.up, off_x = (double)rest_x / count, off_y = (double)rest_y / count;
  return {count,
          ((double)pivot_x + off_x) * up_x,
          ((double)pivot_y + off_y) * up_y,
          ((double)xx - off_x * rest_x) * up_x * up_x,
          ((double)yy - off_y * rest_y) * up_y * up_y,
          ((double)xy - off_x * rest_y) * up_x * up_y,
          (double)dot * up_x * up_y,
          bad};
}

// (stored - (x + y))^2 without error but its own: the exact sum is a double and what that double lacks (Knuth).
__device__ __forceinline__ double lost_square(double x, double y, double stored) {
  const double sum = x + y, seen = sum - y;
  const double rest = (y - (sum - seen)) + (x - seen), error = (stored - sum) - rest;
  return error * error;
}

// The sum over a team in its first lane: lanes by a tree, warps in their order.
template <int TEAM> __device__ __forceinline__ double sum_team(double own, double* scratch) {
#pragma unroll
  for (int delta = 16; delta > 0; delta /= 2) own += __shfl_down_sync(0xffffffffu, own, delta);
  if constexpr (TEAM > 32) {
    __syncthreads();  // whoever still reads the previous sum's scratch
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x == 0)
      for (int warp = 1; warp < TEAM / 32; warp++) own += scratch[warp];
  }
  return own;
}

template <class T, int VEC, int TEAM>
__device__ __forceinline__ void pair_moments(const T* x, const T* other, const T* stored, const unsigned char* mask,
                                             double* moments, double* lost, long long rows, long long columns,
                                             Rows x_rows, Rows other_rows, Rows stored_rows, long long column_stride) {
  constexpr int ROWS = block_threads(TEAM) / TEAM;
  __shared__ double scratch[TEAM > 32 ? TEAM / 32 : 1][kMoments];
  __shared__ double losses[TEAM > 32 ? TEAM / 32 : 1];
  const int lane = threadIdx.x % TEAM;
  for (long long first = (long long)blockIdx.x * ROWS; first < rows; first += (long long)gridDim.x * ROWS) {
    const long long row = first + threadIdx.x / TEAM;
    const bool here = row < rows && !(mask && !mask[row]);
    PairMoments own = {};
    double loss = 0.0;
    if (here)
      for (long long column = lane * VEC; column < columns; column += TEAM * 8) {
        float a[8], b[8];
        const T* from = other + other_rows.at(row);
        const unsigned present = read_eight<T, VEC, TEAM>(x + x_rows.at(row), column, columns, column_stride, a);
        read_eight<T, VEC, TEAM>(from, column, columns, column_stride, b);
        if (stored) {
          float sum[8];
          read_eight<T, VEC, TEAM>(stored + stored_rows.at(row), column, columns, column_stride, sum);
#pragma unroll
          for (int i = 0; i < 8; i++)
            if (present >> i & 1u) loss += lost_square(a[i], b[i], sum[i]);
        }
        own.merge(pair_moments_of<8>(a, b, present));
      }
    merge_team<PairMoments, TEAM>(own, scratch);
    if (row < rows && lane == 0) own.store(moments + row * kMoments);
    if (!stored) continue;
    loss = sum_team<TEAM>(loss, losses);
    if (row < rows && lane == 0) lost[row] = loss - loss == 0.0 ? loss : __longlong_as_double(0x7ff8000000000000LL);
  }
}
