// Forward of the norms over rows: y = gain * (x - mean) * rstd + bias, one read of x and one write of y.

enum Statistic { RMS, LAYER };

// RMS: 1/sqrt(mean(x^2) + eps), or by length 1/max(|x|, sqrt(eps)). LAYER: the first of x - mean. `squares` is their sum.
__device__ __forceinline__ float inverse_scale(float squares, int d, float eps, int by_length) {
  if (by_length) return rsqrtf(fmaxf(squares, eps));
  return rsqrtf(squares / (float)d + eps);
}

// What follows the statistics, the same for every mapping of rows to threads. An absent gain or bias is a null pointer.
template <class T, class W> struct Affine {
  const W *gain, *bias;
  int one_gain;    // the gain is a single number (ScaleNorm)
  int cast_first;  // round to storage before the gain multiplies (Llama, T5), and once more after it

  template <int VEC> __device__ __forceinline__ void apply(float (&value)[VEC], int column) const {
    float factor[VEC];
    if (cast_first) {
#pragma unroll
      for (int i = 0; i < VEC; i++) value[i] = stored_as<T>(value[i]);
    }
    if (gain) {
      factors<VEC>(factor, column);
#pragma unroll
      for (int i = 0; i < VEC; i++) value[i] *= factor[i];
    }
    if (bias) {
      read<W, VEC>(bias + column, factor);
#pragma unroll
      for (int i = 0; i < VEC; i++) value[i] += factor[i];
    }
  }
  template <int VEC> __device__ __forceinline__ void factors(float (&factor)[VEC], int column) const {
    if (gain && !one_gain) return read<W, VEC>(gain + column, factor);
    const float same = gain ? Storage<W>::widen(__ldg(gain)) : 1.0f;
#pragma unroll
    for (int i = 0; i < VEC; i++) factor[i] = same;
  }
};

// The elements of `x` at `at`, to which a residual may be added first. The sum is rounded to storage before it enters
// the statistics, so that the fused kernel's y is the norm of the z that it stores, bit for bit.
template <int ADD, class T, int VEC>
__device__ __forceinline__ void read_sum(const T* x, const T* residual, float (&value)[VEC]) {
  read<T, VEC>(x, value);
  if constexpr (ADD) {
    float other[VEC];
    read<T, VEC>(residual, other);
#pragma unroll
    for (int i = 0; i < VEC; i++) value[i] = stored_as<T>(value[i] + other[i]);
  }
}

// PER vectors of VEC elements a thread in registers, or PER = 0: the row in dynamic shared memory.
//
// LAYER subtracts the row's first element before anything else and takes the squares about the mean in a second pass
// over the held row: with a mean of 10^4 standard deviations E[x^2] - E[x]^2 has no digit left and a Welford update
// three. The mean stays in two parts, pivot + shift, because their rounded sum would cost those digits again; `shift`
// is what backward needs beside x.
template <int STATISTIC, int ADD, class T, class W, int VEC, int PER, int TEAM>
__device__ __forceinline__ void norm_forward(const T* x, const T* residual, const Affine<T, W> affine, T* y, T* z,
                                             float* shifts, float* rstds, long long rows, int d, Rows x_rows,
                                             Rows y_rows, long long residual_stride, float eps,
                                             int by_length, unsigned char* dynamic) {
  constexpr int ROWS = block_threads(TEAM) / TEAM;
  __shared__ float scratch[TEAM > 32 ? TEAM / 32 : 1];
  const int lane = threadIdx.x % TEAM;
  Held<T, VEC, PER, TEAM> held(dynamic);
  const int steps = held.steps(d);
  // Rows beyond the last take part in shuffles and barriers, and touch no memory.
  for (long long first = (long long)blockIdx.x * ROWS; first < rows; first += (long long)gridDim.x * ROWS) {
    const long long row = first + threadIdx.x / TEAM;
    const int end = row < rows ? d : 0;
    const T* from = x + x_rows.at(row);
    const T* added = residual + row * residual_stride;
    float pivot = 0.0f, shift = 0.0f, sum = 0.0f;
    if (STATISTIC == LAYER && end) {
      float one[1];
      read_sum<ADD, T, 1>(from, added, one);
      pivot = one[0];
    }
#pragma unroll
    for (int step = 0; step < steps; step++) {
      const int column = (step * TEAM + lane) * VEC;
      if (column >= end) continue;
      float value[VEC];
      read_sum<ADD, T, VEC>(from + column, added + column, value);
      held.put(step, column, value);
      if constexpr (ADD) write<T, VEC>(z + row * d + column, value);
#pragma unroll
      for (int i = 0; i < VEC; i++) sum += STATISTIC == LAYER ? value[i] - pivot : value[i] * value[i];
    }
    sum = team_sum<TEAM>(sum, scratch);
    if constexpr (STATISTIC == LAYER) {
      shift = sum / (float)d;
      sum = 0.0f;
#pragma unroll
      for (int step = 0; step < steps; step++) {
        const int column = (step * TEAM + lane) * VEC;
        if (column >= end) continue;
        float value[VEC];
        held.get(step, column, value);
#pragma unroll
        for (int i = 0; i < VEC; i++) {
          const float centred = (value[i] - pivot) - shift;
          sum += centred * centred;
        }
      }
      sum = team_sum<TEAM>(sum, scratch);
    }
    const float rstd = inverse_scale(sum, d, eps, by_length);
#pragma unroll
    for (int step = 0; step < steps; step++) {
      const int column = (step * TEAM + lane) * VEC;
      if (column >= end) continue;
      float value[VEC];
      held.get(step, column, value);
#pragma unroll
      for (int i = 0; i < VEC; i++) value[i] = ((value[i] - pivot) - shift) * rstd;
      affine.apply(value, column);
      write<T, VEC>(y + y_rows.at(row) + column, value);
    }
    if (end && lane == 0) {
      if (rstds) rstds[row] = rstd;
      if (STATISTIC == LAYER && shifts) shifts[row] = shift;
    }
  }
}
