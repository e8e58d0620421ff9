// Small kernels that each do one thing right or wrong: what the emulator must compute, and what it must report.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern __shared__ __align__(16) unsigned char dynamic_shared[];

#define PROBE(NAME) extern "C" __global__ void NAME(const float* in, float* out, int n)

PROBE(butterfly) {
  float v = in[threadIdx.x];
  for (int o = n / 2; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o, n);
  out[threadIdx.x] = v;
}
PROBE(down) { out[threadIdx.x] = __shfl_down_sync(0xffffffffu, in[threadIdx.x], 3, n); }
PROBE(broadcast) { out[threadIdx.x] = __shfl_sync(0xffffffffu, in[threadIdx.x], 5, n); }
PROBE(votes) {
  const bool vote = in[threadIdx.x] > 0;
  const unsigned ballot = __ballot_sync(0xffffffffu, vote);
  out[threadIdx.x] = (float)(ballot & 0xffff) + 65536.0f * __any_sync(0xffffffffu, vote) + 131072.0f * __all_sync(0xffffffffu, vote);
}
PROBE(half_warps) {
  const unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  out[threadIdx.x] = __shfl_xor_sync(mask, in[threadIdx.x], 1);
}
PROBE(reversed) {
  __shared__ float row[64];
  row[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = row[n - 1 - threadIdx.x];
}
PROBE(unordered) {
  __shared__ float row[64];
  row[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = row[n - 1 - threadIdx.x];
}
PROBE(shuffle_orders_nothing) {
  __shared__ float row[64];
  row[threadIdx.x] = in[threadIdx.x];
  const float v = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1);
  out[threadIdx.x] = row[threadIdx.x ^ 1] + v;
}
PROBE(syncwarp_orders_a_warp) {
  __shared__ float row[64];
  row[threadIdx.x] = in[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = row[threadIdx.x ^ 1];
}
PROBE(write_after_read) {
  __shared__ float row[64];
  row[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const float v = row[threadIdx.x ^ 32];
  row[threadIdx.x] = v;
  out[threadIdx.x] = v;
}
PROBE(uninitialised) {
  __shared__ float row[64];
  if (threadIdx.x < 63) row[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = row[63 - threadIdx.x];
}
PROBE(poisoned) {
  float* row = reinterpret_cast<float*>(dynamic_shared);
  out[threadIdx.x] = row[threadIdx.x];
}
PROBE(beyond_dynamic) { reinterpret_cast<float*>(dynamic_shared)[threadIdx.x] = in[threadIdx.x] + out[0]; }
PROBE(blocks_race) {
  if (threadIdx.x == 0) out[0] = in[blockIdx.x];
}
PROBE(reads_beyond) { out[threadIdx.x] = in[threadIdx.x + 1]; }
PROBE(writes_beyond) { out[threadIdx.x + 1] = in[threadIdx.x]; }
PROBE(writes_input) { const_cast<float*>(in)[threadIdx.x] = out[threadIdx.x]; }
PROBE(misaligned) {
  const uint4 v = *reinterpret_cast<const uint4*>(in + 1);
  out[threadIdx.x] = __uint_as_float(v.x);
}
PROBE(wild) { out[threadIdx.x] = in[(long long)n << 40]; }
PROBE(divergent) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = in[threadIdx.x];
}
PROBE(exits_early) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  out[threadIdx.x] = in[threadIdx.x];
}
PROBE(deadlocked) {
  if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1);
  __syncthreads();
}
PROBE(lane_exited) {
  if (threadIdx.x % 32 == 31) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1);
}
PROBE(outside_mask) {
  if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, in[threadIdx.x], 16);
}
PROBE(not_in_mask) { out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, in[threadIdx.x], 1); }
PROBE(flushed) { out[threadIdx.x] = in[threadIdx.x] * 0.5f; }
PROBE(strided) { out[threadIdx.x] = in[threadIdx.x * n]; }

extern "C" __global__ void widened(const __half* half, const __nv_bfloat16* brain, float* of_half, float* of_brain) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  of_half[i] = __half2float(half[i]);
  of_brain[i] = __bfloat162float(brain[i]);
}
extern "C" __global__ void rounded(const float* in, __half* half, __nv_bfloat16* brain) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  half[i] = __float2half_rn(in[i]);
  brain[i] = __float2bfloat16_rn(in[i]);
}
