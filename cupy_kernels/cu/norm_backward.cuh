// Backward of the norms over rows. With n = (x - mean) * rstd and g = gain * dy:
//   dx = rstd * (g - mean(g) - n * mean(g * n)) + dz,   dgain = sum over rows of dy * n,   dbias = sum over rows of dy.
// mean(g) belongs to LAYER alone; by length there are sums in place of means, and no second term where |x| was taken
// as sqrt(eps).

// A row's statistics as forward left them.
template <int STATISTIC, class T> struct Centre {
  float pivot, shift, rstd;
  __device__ __forceinline__ Centre(const T* x, const float* shifts, const float* rstds, long long row)
      : pivot(0.0f), shift(0.0f), rstd(__ldg(rstds + row)) {
    if constexpr (STATISTIC == LAYER) {
      pivot = Storage<T>::widen(__ldg(x));
      shift = __ldg(shifts + row);
    }
  }
  __device__ __forceinline__ float normed(float x) const { return ((x - pivot) - shift) * rstd; }
};

// Turns sum(g * n) and sum(g) into what is subtracted from g.
template <int STATISTIC> struct Pull {
  float along, level;
  __device__ __forceinline__ Pull(float dot, float sum, float rstd, int d, float eps, int by_length)
      : along(dot / (float)d), level(0.0f) {
    if constexpr (STATISTIC == LAYER) level = sum / (float)d;
    // Forward computed rsqrtf(max(squares, eps)) too, so the comparison is exact.
    if (by_length) along = rstd < rsqrtf(eps) ? dot : 0.0f;
  }
  __device__ __forceinline__ float on(float g, float normed) const { return g - level - normed * along; }
};

// What dgain takes of a normed element: what the gain multiplied.
template <class T> __device__ __forceinline__ float multiplied(float normed, int cast_first) {
  return cast_first ? stored_as<T>(normed) : normed;
}

// Rows go round the blocks; a thread keeps its columns' share of dgain and dbias in registers over all of them. A block
// adds up its teams in their order and writes one row of partial sums; column_sum adds those: no atomics, same bits.
template <int STATISTIC, class T, class W, int VEC, int PER, int TEAM>
__device__ __forceinline__ void norm_backward(const T* dy, const T* x, const Affine<T, W> affine, const float* shifts,
                                              const float* rstds, const T* dz, T* dx, float* gain_parts,
                                              float* bias_parts, long long rows, int d, Rows dy_rows, Rows x_rows,
                                              Rows dx_rows, long long dz_stride, float eps, int by_length) {
  constexpr int TEAMS = block_threads(TEAM) / TEAM, WIDTH = TEAM * VEC * PER;
  __shared__ float scratch[2][TEAM > 32 ? TEAM / 32 : 1];
  __shared__ __align__(16) float fold[TEAMS > 1 ? TEAMS * WIDTH : 1];
  const int lane = threadIdx.x % TEAM, team = threadIdx.x / TEAM;
  float gain_sum[PER][VEC] = {}, bias_sum[PER][VEC] = {};
  for (long long first = (long long)blockIdx.x * TEAMS; first < rows; first += (long long)gridDim.x * TEAMS) {
    const long long row = first + team < rows ? first + team : rows - 1;
    const int end = first + team < rows ? d : 0;
    const T* from = x + x_rows.at(row);
    const Centre<STATISTIC, T> centre(from, shifts, rstds, row);
    float normed[PER][VEC], g[PER][VEC];
    float dot = 0.0f, sum = 0.0f;
#pragma unroll
    for (int step = 0; step < PER; step++) {
      const int column = (step * TEAM + lane) * VEC;
      if (column >= end) continue;
      float factor[VEC];
      read<T, VEC>(from + column, normed[step]);
      read<T, VEC>(dy + dy_rows.at(row) + column, g[step]);
      affine.template factors<VEC>(factor, column);
#pragma unroll
      for (int i = 0; i < VEC; i++) {
        normed[step][i] = centre.normed(normed[step][i]);
        gain_sum[step][i] += g[step][i] * multiplied<T>(normed[step][i], affine.cast_first);
        if constexpr (STATISTIC == LAYER) bias_sum[step][i] += g[step][i];
        g[step][i] *= factor[i];
        dot += g[step][i] * normed[step][i];
        sum += g[step][i];
      }
    }
    dot = team_sum<TEAM>(dot, scratch[0]);
    if constexpr (STATISTIC == LAYER) sum = team_sum<TEAM>(sum, scratch[1]);
    const Pull<STATISTIC> pull(dot, sum, centre.rstd, d, eps, by_length);
#pragma unroll
    for (int step = 0; step < PER; step++) {
      const int column = (step * TEAM + lane) * VEC;
      if (column >= end) continue;
      float more[VEC] = {};
      if (dz) read<T, VEC>(dz + row * dz_stride + column, more);
#pragma unroll
      for (int i = 0; i < VEC; i++) more[i] += centre.rstd * pull.on(g[step][i], normed[step][i]);
      write<T, VEC>(dx + dx_rows.at(row) + column, more);
    }
  }
  if (gain_parts) write_parts<VEC, PER, TEAM>(gain_sum, gain_parts + (long long)blockIdx.x * d, fold, d);
  if (STATISTIC == LAYER && bias_parts)
    write_parts<VEC, PER, TEAM>(bias_sum, bias_parts + (long long)blockIdx.x * d, fold, d);
}
