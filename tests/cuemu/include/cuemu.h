// What a CUDA C source needs in order to be compiled by g++ and run by the emulator: the language's keywords, the
// built-in variables, and the intrinsics that the kernels use. An intrinsic that is not here does not compile, so
// nothing is imitated by accident.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// Every __shared__ object lands in the module's thread-local segment, whose address and size the emulator can ask the
// loader for: it poisons that segment before a block starts. All fibers run on one OS thread, so they share it.
#define __shared__ thread_local

struct dim3 {
  unsigned x, y, z;
};
struct alignas(4) ushort2 {
  unsigned short x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace cuemu {

struct Position {
  dim3 thread, block;
};
// The position of the fiber that runs now. Not thread-local, so that it is no part of the shared segment.
extern const Position* here;
extern dim3 block_shape, grid_shape;

enum class Collective : int { shuffle, ballot, sync };

void barrier(const char* file, int line);
// Blocks until every lane of `mask` has come; returns what `source` lanes gave, or for a ballot the votes.
uint64_t collective(Collective what, unsigned mask, uint64_t value, int source, const char* file, int line);
int lane();

#define CUEMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

template <class V>
V exchange(unsigned mask, V value, int source, const char* file, int line) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8, "shuffles move words of four or eight bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(V));
  bits = collective(Collective::shuffle, mask, bits, source, file, line);
  memcpy(&value, &bits, sizeof(V));
  return value;
}

template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
  using type = Indices<I...>;
};
template <class... A, int... I>
__attribute__((no_sanitize("thread"))) void call_with(void (*kernel)(A...), void** arguments, Indices<I...>) {
  kernel(*static_cast<A*>(arguments[I])...);
}
// Unpacks the `void**` that a launch passes, by the types of the kernel's own parameters.
template <class... A>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(A...), void** arguments) {
  call_with(kernel, arguments, typename MakeIndices<sizeof...(A)>::type());
}

}  // namespace cuemu

#define threadIdx (cuemu::here->thread)
#define blockIdx (cuemu::here->block)
#define blockDim (cuemu::block_shape)
#define gridDim (cuemu::grid_shape)

#define __align__(n) __attribute__((aligned(n)))

inline int min(int a, int b) { return b < a ? b : a; }

inline void __syncthreads(CUEMU_SITE) { cuemu::barrier(file, line); }

inline void __syncwarp(unsigned mask = 0xffffffffu, CUEMU_SITE) {
  cuemu::collective(cuemu::Collective::sync, mask, 0, cuemu::lane(), file, line);
}

inline unsigned __ballot_sync(unsigned mask, int vote, CUEMU_SITE) {
  return (unsigned)cuemu::collective(cuemu::Collective::ballot, mask, vote != 0, cuemu::lane(), file, line);
}
inline int __any_sync(unsigned mask, int vote, CUEMU_SITE) { return __ballot_sync(mask, vote, file, line) != 0; }
inline int __all_sync(unsigned mask, int vote, CUEMU_SITE) { return __ballot_sync(mask, vote, file, line) == mask; }

template <class V>
V __shfl_xor_sync(unsigned mask, V value, int lane_mask, int width = 32, CUEMU_SITE) {
  const int self = cuemu::lane(), other = self ^ lane_mask;
  // A lane of a later segment keeps its own value; one of an earlier segment may be read.
  const int source = other / width > self / width ? self : other;
  return cuemu::exchange(mask, value, source, file, line);
}
template <class V>
V __shfl_down_sync(unsigned mask, V value, unsigned delta, int width = 32, CUEMU_SITE) {
  const int self = cuemu::lane();
  const int source = self % width + (int)delta < width ? self + (int)delta : self;
  return cuemu::exchange(mask, value, source, file, line);
}
template <class V>
V __shfl_sync(unsigned mask, V value, int from, int width = 32, CUEMU_SITE) {
  const int self = cuemu::lane();
  return cuemu::exchange(mask, value, self / width * width + (from & (width - 1)), file, line);
}

template <class V>
__forceinline__ V __ldg(const V* pointer) {
  return *pointer;
}
template <class V>
__forceinline__ void __stcs(V* pointer, V value) {
  *pointer = value;
}

// The hardware's result is within 2 ulp; this one is correctly rounded but for a double rounding.
inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
