// Where the numbers of a tensor are, for those tensors whose memory can be read as it is.

#pragma once

#include "../one_pass/tokens.h"
#include "dlpack.h"

namespace {

struct View {
  const void *data;
  Dtype stored;
  Shape shape;
  Strides strides;
  int64_t tokens() const { return shape.sequences * shape.tokens; }
  int64_t entries() const { return tokens() * shape.width; }
  bool is_like(const View &other) const {
    return stored == other.stored && shape.sequences == other.shape.sequences && shape.tokens == other.shape.tokens &&
           shape.width == other.shape.width;
  }
};

inline bool is_plain(PyObject *object) {
  const PyObject *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
  return type == torch.tensor || type == torch.parameter;
}

// Whether the memory of a tensor can be read at all: strided numbers of 16 or 32 bits in host memory.
inline bool is_readable(PyObject *tensor, Dtype &stored) {
  if (!is_plain(tensor) || !is_true(tensor, names.is_cpu)) return false;
  const Ref dtype = attribute(tensor, names.dtype);
  int found = 0;
  while (found < DTYPES && torch.dtypes[found] != dtype) ++found;
  stored = static_cast<Dtype>(found);
  return found < DTYPES && attribute(tensor, names.layout) == torch.strided && asked(tensor, names.is_neg) == Py_False;
}

inline const void *memory_of(PyObject *tensor) {
  const uintptr_t address = PyLong_AsUnsignedLongLong(asked(tensor, names.data_ptr));
  return reinterpret_cast<const void *>(address);
}

// Does so by the getters of torch, one after the other.
inline bool read_slowly(PyObject *tensor, View &view, int64_t (&sizes)[3], int64_t (&steps)[3]) {
  if (!is_readable(tensor, view.stored)) return false;
  const Ref shape = attribute(tensor, names.shape), strides = asked(tensor, names.stride);
  if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(static_cast<PyObject *>(shape)) != 3) return false;
  for (int axis = 0; axis < 3; ++axis) {
    sizes[axis] = number(entry(shape, axis));
    steps[axis] = number(entry(strides, axis));
  }
  view.data = memory_of(tensor);
  if (PyErr_Occurred()) throw Raised();
  return true;
}

// Does so by DLPack, where torch offers that: a tenth of the time.
inline bool read_fast(PyObject *tensor, View &view, int64_t (&sizes)[3], int64_t (&steps)[3]) {
  if (!is_plain(tensor)) return false;
  DLTensor described;
  done(describe(tensor, &described));
  const auto [code, bits, lanes] = described.dtype;
  if (described.device_type != DL_HOST || described.axes != 3 || lanes != 1 || !described.strides) return false;
  if (code == DL_FLOAT && bits == 32)
    view.stored = FLOAT32;
  else if (code == DL_FLOAT && bits == 16)
    view.stored = FLOAT16;
  else if (code == DL_BFLOAT && bits == 16)
    view.stored = BFLOAT16;
  else
    return false;
  std::memcpy(sizes, described.shape, sizeof sizes);
  std::memcpy(steps, described.strides, sizeof steps);
  view.data = static_cast<const char *>(described.data) + described.byte_offset;
  return described.data && asked(tensor, names.is_neg) == Py_False;
}

// Reads where the numbers of a tensor [sequence, token, feature] are; false, and no exception, if it is not one that
// has entries, a token's one behind the other, and memory that can be read.
inline bool read(PyObject *tensor, View &view) {
  try {
    int64_t sizes[3], steps[3];
    if (!(describe ? read_fast : read_slowly)(tensor, view, sizes, steps)) return false;
    view.shape = {sizes[0], sizes[1], sizes[2]};
    view.strides = {steps[0], steps[1]};
    return view.data && view.entries() && (steps[2] == 1 || sizes[2] == 1);
  } catch (const Raised &) {
    // What hides its memory, as tensors under a transform of torch.func do, goes another way.
    PyErr_Clear();
    return false;
  }
}

// Reads where a mask is, null where there is none; false if it is not one of the view's tokens.
inline bool read_mask(PyObject *mask, const View &view, const bool *&keep) {
  keep = nullptr;
  if (mask == Py_None) return true;
  try {
    if (!is_plain(mask) || !is_true(mask, names.is_cpu) || attribute(mask, names.dtype) != torch.boolean ||
        asked(mask, names.is_contiguous) != Py_True)
      return false;
    const Ref shape = attribute(mask, names.shape);
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(static_cast<PyObject *>(shape)) != 2 ||
        number(entry(shape, 0)) != view.shape.sequences ||
        number(entry(shape, 1)) != view.shape.tokens)
      return false;
    keep = static_cast<const bool *>(memory_of(mask));
    if (PyErr_Occurred()) throw Raised();
    return keep != nullptr;
  } catch (const Raised &) {
    PyErr_Clear();
    return false;
  }
}

// The number of changes in place so far, or -1 where torch does not count them.
inline int64_t version(PyObject *tensor) {
  if (asked(tensor, names.is_inference) == Py_True) return -1;
  return number(attribute(tensor, names._version));
}

}  // namespace
