// One pass over a tensor in host memory: everything that a recorded step needs to know of it.
//
// Tokens are read from memory once and stay in the caches for what follows.
//
// Each pass writes the sums of its kind in the order that normlab/recording/sums.py gives them, and behind those of an
// activation the largest absolute value and the root mean square of each token in float32; behind those of a gradient
// its largest absolute value. It returns the number of tokens that entered, or -1 where a token that counts is not
// finite or its root mean square is too small for float32: the caller then takes the careful way.
//
// What Python sees of it is below, and in `hooks/` what happens around a module without the interpreter.

#include "one_pass/activation.h"
#include "one_pass/gradient.h"
#include "one_pass/pair.h"
#include "one_pass/squares.h"
#include "hooks/objects.h"

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(ONE_ISA)
#define EVERY_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_ISA
#endif

// `stored` says the dtype; `at` holds the shape and, for each tensor, the strides of its sequences and tokens, all in
// entries; `keep` has an entry a token, or is null where all count.
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

// The sum of squares of a contiguous tensor; -1 for one that has an entry which is not finite. `next` may be null.
extern "C" EVERY_ISA double normlab_squares(int stored, const void *x, int64_t count, const void *next) {
  BY_DTYPE(squares(static_cast<const T *>(x), count, static_cast<const T *>(next)))
}

#include "hooks/called.h"

namespace {

Ref or_none(Ref made) { return made ? std::move(made) : none(); }

PyObject *activation_for_python(PyObject *, PyObject *args) {
  PyObject *tensor, *mask;
  int vectors;
  if (!PyArg_ParseTuple(args, "OOp", &tensor, &mask, &vectors)) return nullptr;
  return for_python([&] {
    View x;
    const bool *keep;
    const bool is_taken = read(tensor, x) && read_mask(mask, x, keep);
    return or_none(is_taken ? activation_of(x, keep, vectors) : Ref());
  });
}

PyObject *gradient_for_python(PyObject *, PyObject *args) {
  PyObject *tensor, *mask;
  if (!PyArg_ParseTuple(args, "OO", &tensor, &mask)) return nullptr;
  return for_python([&] {
    View g;
    const bool *keep;
    const bool is_taken = read(tensor, g) && read_mask(mask, g, keep);
    return or_none(is_taken ? gradient_of(g, keep) : Ref());
  });
}

PyObject *pair_for_python(PyObject *, PyObject *args) {
  PyObject *update, *skip, *total, *mask;
  if (!PyArg_ParseTuple(args, "OOOO", &update, &skip, &total, &mask)) return nullptr;
  return for_python([&] {
    View u, s, t;
    const bool *keep;
    const bool is_stored = total != Py_None;
    const bool is_taken = read(update, u) && read(skip, s) && u.is_like(s) && read_mask(mask, u, keep) &&
                          (!is_stored || (read(total, t) && u.is_like(t)));
    return or_none(is_taken ? pair_of(u, s, is_stored ? &t : nullptr, keep) : Ref());
  });
}

// The numbers of entries and sums of squares of contiguous tensors, or of the places of their first axes that stand in
// a second sequence, one after the other; NaN where a tensor needs another way.
PyObject *sizes_for_python(PyObject *, PyObject *args) {
  PyObject *tensors, *places;
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &tensors, &PyList_Type, &places)) return nullptr;
  return for_python([&] {
    const Py_ssize_t count = PyList_GET_SIZE(tensors);
    if (PyList_GET_SIZE(places) != count) {
      PyErr_SetString(PyExc_ValueError, "give places for each tensor");
      throw Raised();
    }
    // Made first: it may start a collection of garbage, after which an address could be stale.
    Ref found = got(PyList_New(2 * count));
    std::vector<Row> rows(count + 1);
    for (Py_ssize_t at = 0; at < count; ++at)
      if (!read_row(PyList_GET_ITEM(tensors, at), PyList_GET_ITEM(places, at), rows[at])) rows[at].data = nullptr;
    for (Py_ssize_t at = 0; at < count; ++at) {
      const Row &row = rows[at];
      double entries = Py_NAN, sum = Py_NAN;
      if (row.data) {
        entries = static_cast<double>(row.entries);
        sum = normlab_squares(row.stored, row.data, row.entries, rows[at + 1].data);
        if (sum < 0) sum = Py_NAN;
      }
      PyList_SET_ITEM(static_cast<PyObject *>(found), 2 * at, got(PyFloat_FromDouble(entries)).give());
      PyList_SET_ITEM(static_cast<PyObject *>(found), 2 * at + 1, got(PyFloat_FromDouble(sum)).give());
    }
    return found;
  });
}

// Of each of some tensors how often it was changed in place, how many bytes it has, and a number of some entries; see
// `marks` in native.py.
PyObject *marks_for_python(PyObject *, PyObject *tensors) {
  return for_python([&] {
    const Ref every = got(PySequence_Fast(tensors, "give a list of tensors"));
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(static_cast<PyObject *>(every));
    Ref found = got(PyList_New(count));
    for (Py_ssize_t at = 0; at < count; ++at) {
      PyObject *tensor = PySequence_Fast_GET_ITEM(static_cast<PyObject *>(every), at);
      const int64_t changes = tensor == Py_None ? -1 : version(tensor);
      int64_t size = 0;
      const unsigned long long sampled = tensor == Py_None ? 0 : sample(tensor, size);
      Ref mark = got(Py_BuildValue("(LLK)", (long long)changes, (long long)size, sampled));
      PyList_SET_ITEM(static_cast<PyObject *>(found), at, mark.give());
    }
    return found;
  });
}

PyMethodDef functions[] = {
    {"activation", activation_for_python, METH_VARARGS, nullptr},
    {"gradient", gradient_for_python, METH_VARARGS, nullptr},
    {"pair", pair_for_python, METH_VARARGS, nullptr},
    {"sizes", sizes_for_python, METH_VARARGS, nullptr},
    {"marks", marks_for_python, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  return for_python([] {
    find_names();
    find_describe();
    ready_written();
    ready_found();
    ready_reader();
    ready_awaiting();
    ready_called();
    Ref module = got(PyModule_Create(&definition));
    for (PyTypeObject *type : {&WrittenType, &FoundType, &ReaderType, &AwaitingType, &CalledType})
      done(PyModule_AddType(module, type));
    return module;
  });
}
