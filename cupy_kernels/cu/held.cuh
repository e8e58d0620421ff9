// A row is read from device memory once and held on the chip until it is written: in registers, or where it is too
// long for them as raw elements in dynamic shared memory. A thread reads back only what it put there itself, so the
// row needs no barrier.

template <class T, int VEC, int PER, int TEAM> struct Held {
  float row[PER][VEC];
  __device__ __forceinline__ explicit Held(unsigned char*) {}
  __device__ __forceinline__ int steps(int) const { return PER; }
  __device__ __forceinline__ void put(int step, int, const float (&value)[VEC]) {
#pragma unroll
    for (int i = 0; i < VEC; i++) row[step][i] = value[i];
  }
  __device__ __forceinline__ void get(int step, int, float (&value)[VEC]) const {
#pragma unroll
    for (int i = 0; i < VEC; i++) value[i] = row[step][i];
  }
};

template <class T, int VEC, int TEAM> struct Held<T, VEC, 0, TEAM> {
  T* row;
  __device__ __forceinline__ explicit Held(unsigned char* dynamic) : row(reinterpret_cast<T*>(dynamic)) {}
  __device__ __forceinline__ int steps(int d) const { return (d + TEAM * VEC - 1) / (TEAM * VEC); }
  __device__ __forceinline__ void put(int, int column, const float (&value)[VEC]) { keep<T, VEC>(row + column, value); }
  __device__ __forceinline__ void get(int, int column, float (&value)[VEC]) const { fetch<T, VEC>(row + column, value); }
};
