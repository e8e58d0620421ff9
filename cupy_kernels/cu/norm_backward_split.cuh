// Backward for rows that registers do not hold, in three passes: the two sums of each slice of a row, dx, and the
// sums over rows of each column. x and dy are read three times; all sums have one order.

template <int STATISTIC, class T, class W, int VEC, int TEAM>
__device__ __forceinline__ void norm_backward_sums(const T* dy, const T* x, const Affine<T, W> affine,
                                                   const float* shifts, const float* rstds, float* sums, int d,
                                                   int slices, int slice_width, Rows dy_rows, Rows x_rows) {
  __shared__ float scratch[2][TEAM / 32];
  const long long row = blockIdx.x / slices;
  const int slice = blockIdx.x % slices, thread = threadIdx.x;
  const int start = slice * slice_width, end = min(d, start + slice_width);
  const T* from = x + x_rows.at(row);
  const Centre<STATISTIC, T> centre(from, shifts, rstds, row);
  float dot = 0.0f, sum = 0.0f;
  for (int column = start + thread * VEC; column < end; column += TEAM * VEC) {
    float value[VEC], g[VEC], factor[VEC];
    read<T, VEC>(from + column, value);
    read<T, VEC>(dy + dy_rows.at(row) + column, g);
    affine.template factors<VEC>(factor, column);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      g[i] *= factor[i];
      dot += g[i] * centre.normed(value[i]);
      sum += g[i];
    }
  }
  dot = team_sum<TEAM>(dot, scratch[0]);
  sum = team_sum<TEAM>(sum, scratch[1]);
  if (thread == 0) {
    sums[(long long)blockIdx.x * 2] = dot;
    sums[(long long)blockIdx.x * 2 + 1] = sum;
  }
}

template <int STATISTIC, class T, class W, int VEC, int TEAM>
__device__ __forceinline__ void norm_backward_apply(const T* dy, const T* x, const Affine<T, W> affine,
                                                    const float* shifts, const float* rstds, const float* sums,
                                                    const T* dz, T* dx, int d, int slices, int slice_width,
                                                    Rows dy_rows, Rows x_rows, Rows dx_rows, long long dz_stride,
                                                    float eps, int by_length) {
  const long long row = blockIdx.x / slices;
  const int slice = blockIdx.x % slices, thread = threadIdx.x;
  const int start = slice * slice_width, end = min(d, start + slice_width);
  const T* from = x + x_rows.at(row);
  const Centre<STATISTIC, T> centre(from, shifts, rstds, row);
  float dot = 0.0f, sum = 0.0f;
  for (int s = 0; s < slices; s++) {
    dot += __ldg(sums + (row * slices + s) * 2);
    sum += __ldg(sums + (row * slices + s) * 2 + 1);
  }
  const Pull<STATISTIC> pull(dot, sum, centre.rstd, d, eps, by_length);
  for (int column = start + thread * VEC; column < end; column += TEAM * VEC) {
    float value[VEC], g[VEC], factor[VEC], more[VEC] = {};
    read<T, VEC>(from + column, value);
    read<T, VEC>(dy + dy_rows.at(row) + column, g);
    affine.template factors<VEC>(factor, column);
    if (dz) read<T, VEC>(dz + row * dz_stride + column, more);
#pragma unroll
    for (int i = 0; i < VEC; i++) more[i] += centre.rstd * pull.on(g[i] * factor[i], centre.normed(value[i]));
    write<T, VEC>(dx + dx_rows.at(row) + column, more);
  }
}

// A block takes TEAM * VEC columns of `chunk` rows, and writes them to row `block / tiles` of the parts.
template <int STATISTIC, class T, int VEC, int TEAM>
__device__ __forceinline__ void norm_backward_columns(const T* dy, const T* x, const float* shifts, const float* rstds,
                                                      float* gain_parts, float* bias_parts, long long rows, int d,
                                                      int tiles, long long chunk, Rows dy_rows, Rows x_rows,
                                                      int cast_first) {
  const int column = (blockIdx.x % tiles * TEAM + threadIdx.x) * VEC;
  const long long part = blockIdx.x / tiles;
  const long long last = part * chunk + chunk < rows ? part * chunk + chunk : rows;
  if (column >= d) return;  // no barrier follows
  float gain_sum[VEC] = {}, bias_sum[VEC] = {};
  for (long long row = part * chunk; row < last; row++) {
    const T* from = x + x_rows.at(row);
    const Centre<STATISTIC, T> centre(from, shifts, rstds, row);
    float value[VEC], g[VEC];
    read<T, VEC>(from + column, value);
    read<T, VEC>(dy + dy_rows.at(row) + column, g);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      gain_sum[i] += g[i] * multiplied<T>(centre.normed(value[i]), cast_first);
      bias_sum[i] += g[i];
    }
  }
  if (gain_parts) keep<float, VEC>(gain_parts + part * d + column, gain_sum);
  if (STATISTIC == LAYER && bias_parts) keep<float, VEC>(bias_parts + part * d + column, bias_sum);
}
