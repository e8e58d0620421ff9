// DyT and Derf: y = gain * f(alpha * x + shift) + bias with f = tanh or erf. No statistic ties a row together, so a block
// takes a tile of columns, holds their gain and bias in registers, and goes down a chunk of rows.

enum Squash { TANH, ERF };

template <int SQUASH> __device__ __forceinline__ float squash(float u) {
  return SQUASH == TANH ? tanhf(u) : erff(u);
}
// f'(u). 1 - tanh^2 would cancel where tanh is near one; this has the relative error of expf everywhere.
template <int SQUASH> __device__ __forceinline__ float squash_slope(float u) {
  if constexpr (SQUASH == ERF) return 1.1283791670955126f * expf(-u * u);
  const float e = expf(-2.0f * fabsf(u));
  return 4.0f * e / ((1.0f + e) * (1.0f + e));
}

// The two learnable numbers. Derf's shift is absent in DyT.
template <class W> struct Argument {
  float alpha, shift;
  __device__ __forceinline__ Argument(const W* alpha, const W* shift)
      : alpha(Storage<W>::widen(__ldg(alpha))), shift(shift ? Storage<W>::widen(__ldg(shift)) : 0.0f) {}
  __device__ __forceinline__ float of(float x) const { return alpha * x + shift; }
};

template <class W, int VEC>
__device__ __forceinline__ void read_or(float (&value)[VEC], const W* from, int column, float otherwise) {
  if (from) return read<W, VEC>(from + column, value);
#pragma unroll
  for (int i = 0; i < VEC; i++) value[i] = otherwise;
}

template <int SQUASH, class T, class W, int VEC, int TEAM>
__device__ __forceinline__ void squash_forward(const T* x, const W* alpha, const W* shift, const W* gain, const W* bias,
                                               T* y, long long rows, int d, int tiles, long long chunk, Rows x_rows,
                                               Rows y_rows) {
  const int column = (blockIdx.x % tiles * TEAM + threadIdx.x) * VEC;
  const long long first = blockIdx.x / tiles * chunk;
  const long long last = first + chunk < rows ? first + chunk : rows;
  if (column >= d) return;  // no barrier follows
  const Argument<W> argument(alpha, shift);
  float factor[VEC], offset[VEC];
  read_or<W, VEC>(factor, gain, column, 1.0f);
  read_or<W, VEC>(offset, bias, column, 0.0f);
  for (long long row = first; row < last; row++) {
    float value[VEC];
    read<T, VEC>(x + x_rows.at(row) + column, value);
#pragma unroll
    for (int i = 0; i < VEC; i++) value[i] = factor[i] * squash<SQUASH>(argument.of(value[i])) + offset[i];
    write<T, VEC>(y + y_rows.at(row) + column, value);
  }
}

// alpha and shift have one partial sum a block, gain and bias one row of them a chunk.
template <int SQUASH, class T, class W, int VEC, int TEAM>
__device__ __forceinline__ void squash_backward(const T* dy, const T* x, const W* alpha, const W* shift, const W* gain,
                                                T* dx, float* alpha_parts, float* shift_parts, float* gain_parts,
                                                float* bias_parts, long long rows, int d, int tiles, long long chunk,
                                                Rows dy_rows, Rows x_rows, Rows dx_rows) {
  __shared__ float scratch[2][TEAM / 32];
  const int column = (blockIdx.x % tiles * TEAM + threadIdx.x) * VEC;
  const long long part = blockIdx.x / tiles, first = part * chunk;
  const long long last = column >= d ? first : first + chunk < rows ? first + chunk : rows;
  const Argument<W> argument(alpha, shift);
  float factor[VEC] = {}, gain_sum[VEC] = {}, bias_sum[VEC] = {};
  float alpha_sum = 0.0f, shift_sum = 0.0f;
  if (column < d) read_or<W, VEC>(factor, gain, column, 1.0f);
  for (long long row = first; row < last; row++) {
    float value[VEC], g[VEC];
    read<T, VEC>(x + x_rows.at(row) + column, value);
    read<T, VEC>(dy + dy_rows.at(row) + column, g);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const float u = argument.of(value[i]);
      gain_sum[i] += g[i] * squash<SQUASH>(u);
      bias_sum[i] += g[i];
      g[i] *= factor[i] * squash_slope<SQUASH>(u);
      alpha_sum += g[i] * value[i];
      shift_sum += g[i];
      g[i] *= argument.alpha;
    }
    write<T, VEC>(dx + dx_rows.at(row) + column, g);
  }
  alpha_sum = team_sum<TEAM>(alpha_sum, scratch[0]);
  if constexpr (SQUASH == ERF) shift_sum = team_sum<TEAM>(shift_sum, scratch[1]);
  if (threadIdx.x == 0) {
    alpha_parts[blockIdx.x] = alpha_sum;
    if constexpr (SQUASH == ERF) shift_parts[blockIdx.x] = shift_sum;
  }
  if (column >= d) return;
  if (gain_parts) keep<float, VEC>(gain_parts + part * d + column, gain_sum);
  if (bias_parts) keep<float, VEC>(bias_parts + part * d + column, bias_sum);
}
