// Sums over rows: gradients of gain and bias. Every sum has one order, fixed by the launch, and no atomic addition.

// A block's share: `sums` are each thread's, for the columns that its team holds. `to` is the block's row of parts.
template <int VEC, int PER, int TEAM>
__device__ __forceinline__ void write_parts(const float (&sums)[PER][VEC], float* to, float* fold, int d) {
  constexpr int TEAMS = block_threads(TEAM) / TEAM, WIDTH = TEAM * VEC * PER;
  const int lane = threadIdx.x % TEAM, team = threadIdx.x / TEAM;
  if constexpr (TEAMS > 1) __syncthreads();  // whoever still adds up the previous sums
#pragma unroll
  for (int step = 0; step < PER; step++) {
    const int column = (step * TEAM + lane) * VEC;
    if (column < d) keep<float, VEC>(TEAMS > 1 ? fold + team * WIDTH + column : to + column, sums[step]);
  }
  if constexpr (TEAMS > 1) {
    __syncthreads();
    for (int column = threadIdx.x; column < d; column += block_threads(TEAM)) {
      float sum = fold[column];
#pragma unroll
      for (int other = 1; other < TEAMS; other++) sum += fold[other * WIDTH + column];
      to[column] = sum;
    }
  }
}

// Sums `count` rows of parts of width d: 32 columns a block, eight threads a column, which are added in their order.
template <class W>
__device__ __forceinline__ void column_sum(const float* parts, W* total, long long count, int d) {
  __shared__ float scratch[8][33];  // 33: threads of one warp then write to different banks
  const int column = blockIdx.x * 32 + threadIdx.x % 32, share = threadIdx.x / 32;
  float sum = 0.0f;
  if (column < d)
    for (long long row = share; row < count; row += 8) sum += __ldg(parts + row * d + column);
  scratch[share][threadIdx.x % 32] = sum;
  __syncthreads();
  if (share == 0 && column < d) {
#pragma unroll
    for (int other = 1; other < 8; other++) sum += scratch[other][threadIdx.x];
    total[column] = Storage<W>::round(sum);
  }
}
