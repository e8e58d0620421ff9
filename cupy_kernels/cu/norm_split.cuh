// Forward for rows that are too long for one block, or too few to fill the device: a row is cut into slices, one block
// each. The first kernel writes each slice's moments, the second merges them in their order and applies them.

// Moments of a slice about the row's first element: (sum of squares, 0) for RMS, (mean, M2) for LAYER.
// A slice is taken in chunks that fit in registers; each chunk's moments are exact two-pass ones, merged by Chan.
template <int STATISTIC, int ADD, class T, int VEC, int PER, int TEAM>
__device__ __forceinline__ void norm_moments(const T* x, const T* residual, T* z, float* moments, int d, int slices,
                                             int slice_width, Rows x_rows, long long residual_stride) {
  __shared__ float scratch[TEAM / 32];
  const long long row = blockIdx.x / slices;
  const int slice = blockIdx.x % slices, thread = threadIdx.x;
  const int start = slice * slice_width, end = min(d, start + slice_width);
  const T* from = x + x_rows.at(row);
  const T* added = residual + row * residual_stride;
  float pivot = 0.0f;
  if constexpr (STATISTIC == LAYER) {
    float one[1];
    read_sum<ADD, T, 1>(from, added, one);
    pivot = one[0];
  }
  float count = 0.0f, mean = 0.0f, squares = 0.0f;
  for (int chunk = start; chunk < end; chunk += TEAM * VEC * PER) {
    float value[PER][VEC];
    float sum = 0.0f;
#pragma unroll
    for (int step = 0; step < PER; step++) {
      const int column = chunk + (step * TEAM + thread) * VEC;
      if (column >= end) continue;
      read_sum<ADD, T, VEC>(from + column, added + column, value[step]);
      if constexpr (ADD) write<T, VEC>(z + row * d + column, value[step]);
#pragma unroll
      for (int i = 0; i < VEC; i++) sum += STATISTIC == LAYER ? value[step][i] - pivot : value[step][i] * value[step][i];
    }
    sum = team_sum<TEAM>(sum, scratch);
    if constexpr (STATISTIC == LAYER) {
      const float more = (float)min(end - chunk, TEAM * VEC * PER);
      const float chunk_mean = sum / more;
      float chunk_squares = 0.0f;
#pragma unroll
      for (int step = 0; step < PER; step++) {
        if (chunk + (step * TEAM + thread) * VEC >= end) continue;
#pragma unroll
        for (int i = 0; i < VEC; i++) {
          const float centred = (value[step][i] - pivot) - chunk_mean;
          chunk_squares += centred * centred;
        }
      }
      chunk_squares = team_sum<TEAM>(chunk_squares, scratch);
      const float both = count + more, apart = chunk_mean - mean;
      squares += chunk_squares + apart * apart * (count * more / both);
      mean += apart * (more / both);
      count = both;
    } else {
      squares += sum;
    }
  }
  if (thread == 0) {
    float* to = moments + (long long)blockIdx.x * 2;
    to[0] = STATISTIC == LAYER ? mean : squares;
    to[1] = STATISTIC == LAYER ? squares : 0.0f;
  }
}

// `x` is the sum that norm_moments stored where a residual was added.
template <int STATISTIC, class T, class W, int VEC, int TEAM>
__device__ __forceinline__ void norm_apply(const T* x, const float* moments, const Affine<T, W> affine, T* y,
                                           float* shifts, float* rstds, int d, int slices, int slice_width, Rows x_rows,
                                           Rows y_rows, float eps, int by_length) {
  const long long row = blockIdx.x / slices;
  const int slice = blockIdx.x % slices, thread = threadIdx.x;
  const int start = slice * slice_width, end = min(d, start + slice_width);
  const float* of_row = moments + row * slices * 2;
  const T* from = x + x_rows.at(row);
  float pivot = 0.0f, shift = 0.0f, squares = 0.0f;
  if constexpr (STATISTIC == LAYER) {
    pivot = Storage<T>::widen(__ldg(from));
    for (int s = 0; s < slices; s++) shift += of_row[2 * s] * ((float)min(slice_width, d - s * slice_width) / (float)d);
    for (int s = 0; s < slices; s++) {
      const float apart = of_row[2 * s] - shift;
      squares += of_row[2 * s + 1] + apart * apart * (float)min(slice_width, d - s * slice_width);
    }
  } else {
    for (int s = 0; s < slices; s++) squares += of_row[2 * s];
  }
  const float rstd = inverse_scale(squares, d, eps, by_length);
  for (int column = start + thread * VEC; column < end; column += TEAM * VEC) {
    float value[VEC];
    read<T, VEC>(from + column, value);
#pragma unroll
    for (int i = 0; i < VEC; i++) value[i] = ((value[i] - pivot) - shift) * rstd;
    affine.apply(value, column);
    write<T, VEC>(y + y_rows.at(row) + column, value);
  }
  if (slice == 0 && thread == 0) {
    if (rstds) rstds[row] = rstd;
    if (STATISTIC == LAYER && shifts) shifts[row] = shift;
  }
}
