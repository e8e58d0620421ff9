// How numbers are stored and moved: float, half or bfloat16 in memory, float in registers.

// Rounds to nearest even. Cutting instead would shift every mean by half a unit in the last place.
template <class T> struct Storage;
template <> struct Storage<float> {
  static __device__ __forceinline__ float widen(float stored) { return stored; }
  static __device__ __forceinline__ float round(float value) { return value; }
};
template <> struct Storage<__half> {
  static __device__ __forceinline__ float widen(__half stored) { return __half2float(stored); }
  static __device__ __forceinline__ __half round(float value) { return __float2half_rn(value); }
};
template <> struct Storage<__nv_bfloat16> {
  static __device__ __forceinline__ float widen(__nv_bfloat16 stored) { return __bfloat162float(stored); }
  static __device__ __forceinline__ __nv_bfloat16 round(float value) { return __float2bfloat16_rn(value); }
};

// The value that is left of `value` after a round trip through memory.
template <class T> __device__ __forceinline__ float stored_as(float value) {
  return Storage<T>::widen(Storage<T>::round(value));
}

template <int BYTES> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

// N elements that are moved by as few instructions as the hardware has: at most 16 bytes each.
template <class T, int N> union Packed {
  static constexpr int kBytes = (int)sizeof(T) * N < 16 ? (int)sizeof(T) * N : 16;
  static constexpr int kWords = (int)sizeof(T) * N / kBytes;
  typename Word<kBytes>::type word[kWords];
  T at[N];
};

// Reads what no thread writes during the kernel (ld.global.nc).
template <class T, int N> __device__ __forceinline__ void read(const T* from, float (&value)[N]) {
  using P = Packed<T, N>;
  P packed;
#pragma unroll
  for (int i = 0; i < P::kWords; i++) packed.word[i] = __ldg(reinterpret_cast<const typename Word<P::kBytes>::type*>(from) + i);
#pragma unroll
  for (int i = 0; i < N; i++) value[i] = Storage<T>::widen(packed.at[i]);
}

// Streams past the caches: nobody reads the output in this kernel.
template <class T, int N> __device__ __forceinline__ void write(T* to, const float (&value)[N]) {
  using P = Packed<T, N>;
  P packed;
#pragma unroll
  for (int i = 0; i < N; i++) packed.at[i] = Storage<T>::round(value[i]);
#pragma unroll
  for (int i = 0; i < P::kWords; i++) __stcs(reinterpret_cast<typename Word<P::kBytes>::type*>(to) + i, packed.word[i]);
}

// The same for shared memory, and for device memory that this kernel may also write.
template <class T, int N> __device__ __forceinline__ void fetch(const T* from, float (&value)[N]) {
  using P = Packed<T, N>;
  P packed;
#pragma unroll
  for (int i = 0; i < P::kWords; i++) packed.word[i] = reinterpret_cast<const typename Word<P::kBytes>::type*>(from)[i];
#pragma unroll
  for (int i = 0; i < N; i++) value[i] = Storage<T>::widen(packed.at[i]);
}
template <class T, int N> __device__ __forceinline__ void keep(T* to, const float (&value)[N]) {
  using P = Packed<T, N>;
  P packed;
#pragma unroll
  for (int i = 0; i < N; i++) packed.at[i] = Storage<T>::round(value[i]);
#pragma unroll
  for (int i = 0; i < P::kWords; i++) reinterpret_cast<typename Word<P::kBytes>::type*>(to)[i] = packed.word[i];
}

// Where a row starts, in elements. With `group` rows a group, the groups lie `group_stride` apart: the heads of a
// packed projection are rows without being copied. 64 bits throughout: row times stride passes 2^31 in real models.
struct Rows {
  long long stride, group, group_stride;
  __device__ __forceinline__ long long at(long long row) const {
    return group ? row / group * group_stride + row % group * stride : row * stride;
  }
};
