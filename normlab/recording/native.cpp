// One pass over a tensor in host memory: everything that a recorded step needs to know of it.
//
// Tokens are read from memory once and stay in the caches for what follows.
//
// Each function writes the sums of its kind in the order that normlab/recording/sums.py gives them, and behind those of
// an activation the largest absolute value and the root mean square of each token in float32; behind those of a
// gradient its largest absolute value. It returns the number of tokens that entered, or -1 where a token that counts is
// not finite or its root mean square is too small for float32: the caller then takes the careful way.

#include "one_pass/activation.h"
#include "one_pass/gradient.h"
#include "one_pass/pair.h"
#include "one_pass/squares.h"

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(ONE_ISA)
#define EVERY_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_ISA
#endif

namespace {
enum Dtype { FLOAT32, FLOAT16, BFLOAT16 };
}

// The functions that are called from outside. `stored` says the dtype; `at` holds the shape and, for each tensor, the
// strides of its sequences and tokens, all in entries; `keep` has an entry a token, or is null where all count.
// Without `vectors`, sums over the tokens of a sequence are left out, and what follows from them is meaningless.

#define BY_DTYPE(call)                            \
  switch (stored) {                               \
    case FLOAT32: { typedef float T; return call; } \
    case FLOAT16: { typedef Float16 T; return call; } \
    default: { typedef BFloat16 T; return call; } \
  }

extern "C" EVERY_ISA int64_t normlab_activation(int stored, const void *x, const int64_t *at, const bool *keep,
                                                bool vectors, double *sums) {
  const Shape shape = {at[0], at[1], at[2]};
  const Strides strides = {at[3], at[4]};
  BY_DTYPE(activation(static_cast<const T *>(x), shape, strides, keep, vectors, reinterpret_cast<Activation *>(sums)))
}

extern "C" EVERY_ISA int64_t normlab_gradient(int stored, const void *x, const int64_t *at, const bool *keep,
                                              double *sums) {
  const Shape shape = {at[0], at[1], at[2]};
  const Strides strides = {at[3], at[4]};
  BY_DTYPE(gradient(static_cast<const T *>(x), shape, strides, keep, reinterpret_cast<Gradient *>(sums)))
}

// The tensors are update, skip and, or null, the sum as it was stored.
extern "C" EVERY_ISA int64_t normlab_pair(int stored, const void *update, const void *skip, const void *total,
                                          const int64_t *at, const bool *keep, double *sums) {
  const Shape shape = {at[0], at[1], at[2]};
  const Strides strides[3] = {{at[3], at[4]}, {at[5], at[6]}, {total ? at[7] : 0, total ? at[8] : 0}};
  BY_DTYPE(pair(Terms<T>{static_cast<const T *>(update), static_cast<const T *>(skip), static_cast<const T *>(total)},
                shape, strides, keep, reinterpret_cast<Pair *>(sums)))
}

// Sums of squares of many contiguous tensors; -1 for one that has an entry which is not finite.
extern "C" EVERY_ISA void normlab_squares(int64_t number, const int *dtypes, const void *const *tensors,
                                          const int64_t *counts, double *sums) {
  for (int64_t tensor = 0; tensor < number; ++tensor) {
    const int stored = dtypes[tensor];
    const void *x = tensors[tensor];
    sums[tensor] = [&]() __attribute__((always_inline)) -> double {
      BY_DTYPE(squares(static_cast<const T *>(x), counts[tensor]))
    }();
  }
}

// The functions are called by ctypes. Where Python's headers are there the library can be imported too, for tools that
// import every module; the module is empty.
#if __has_include(<Python.h>)
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&definition); }
#endif
