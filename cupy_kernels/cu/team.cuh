// A team is the threads that share a row: 8, 16 or 32 lanes of a warp, or a whole block.

// The sum over a team, the same bits in every thread: a butterfly inside the warp (addition commutes), then the
// warps in their order. `scratch` holds a float for each warp of the block; a team inside a warp leaves it alone.
template <int TEAM> __device__ __forceinline__ float team_sum(float value, float* scratch) {
  constexpr int LANES = TEAM < 32 ? TEAM : 32;
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if constexpr (TEAM > 32) {
    __syncthreads();  // whoever still reads the previous sum's scratch
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = scratch[0];
#pragma unroll
    for (int warp = 1; warp < TEAM / 32; warp++) value += scratch[warp];
  }
  return value;
}

// A team inside a warp shares its block with others: blocks of 128 threads hide latency and need no barrier.
__device__ constexpr int block_threads(int team) { return team > 32 ? team : 128; }
