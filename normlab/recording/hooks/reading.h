// Where the numbers of a tensor are, for those tensors whose memory can be read as it is.

#pragma once

#include <cstring>

#include "../one_pass/tokens.h"
#include "dlpack.h"

namespace {

constexpr int MOST_AXES = 8;

constexpr int64_t bytes(Dtype stored) { return stored == FLOAT32 ? 4 : 2; }

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

inline const void *memory_of(PyObject *tensor) {
  const uintptr_t address = PyLong_AsUnsignedLongLong(asked(tensor, names.data_ptr));
  return reinterpret_cast<const void *>(address);
}

// What torch says of a tensor: its dtype, where its numbers are, and how they lie there.
struct Described {
  Dtype stored;  // DTYPES where it is another one
  int64_t each;  // bytes of an entry
  const void *data;
  int axes;
  int64_t sizes[MOST_AXES], steps[MOST_AXES];
};

// Does so by the getters of torch, one after the other.
inline bool describe_slowly(PyObject *tensor, Described &found) {
  if (!is_true(tensor, names.is_cpu) || attribute(tensor, names.layout) != torch.strided) return false;
  const Ref dtype = attribute(tensor, names.dtype);
  int known = 0;
  while (known < DTYPES && torch.dtypes[known] != dtype) ++known;
  const Ref shape = attribute(tensor, names.shape), strides = asked(tensor, names.stride);
  if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(static_cast<PyObject *>(shape)) > MOST_AXES) return false;
  found.stored = static_cast<Dtype>(known);
  found.each = number(asked(tensor, names.element_size));
  found.axes = PyTuple_GET_SIZE(static_cast<PyObject *>(shape));
  for (int axis = 0; axis < found.axes; ++axis) {
    found.sizes[axis] = number(entry(shape, axis));
    found.steps[axis] = number(entry(strides, axis));
  }
  found.data = memory_of(tensor);
  if (PyErr_Occurred()) throw Raised();
  return true;
}

inline Dtype dtype_of(const DLDataType &type) {
  if (type.lanes != 1) return DTYPES;
  if (type.code == DL_FLOAT && type.bits == 32) return FLOAT32;
  if (type.code == DL_FLOAT && type.bits == 16) return FLOAT16;
  return type.code == DL_BFLOAT && type.bits == 16 ? BFLOAT16 : DTYPES;
}

// Does so by DLPack, where torch offers that: a tenth of the time.
inline bool describe_fast(PyObject *tensor, Described &found) {
  DLTensor described;
  done(describe(tensor, &described));
  if (described.device_type != DL_HOST || described.axes > MOST_AXES) return false;
  if (described.axes && !described.strides) return false;
  found.stored = dtype_of(described.dtype);
  found.each = described.dtype.bits * described.dtype.lanes / 8;
  found.axes = described.axes;
  for (int axis = 0; axis < found.axes; ++axis) {
    found.sizes[axis] = described.shape[axis];
    found.steps[axis] = described.strides[axis];
  }
  found.data = described.data ? static_cast<const char *>(described.data) + described.byte_offset : nullptr;
  return true;
}

// Whether the storage of a tensor that does not begin where its storage does holds less than its entries. Where it does
// begin there, the memory of one that was freed is at the address zero.
inline bool is_freed_view(PyObject *tensor, const Described &found) {
  const int64_t offset = number(asked(tensor, names.storage_offset));
  if (!offset) return false;
  int64_t entries = offset + 1;
  for (int axis = 0; axis < found.axes; ++axis) {
    if (!found.sizes[axis]) return false;
    entries += (found.sizes[axis] - 1) * found.steps[axis];
  }
  return number(asked(asked(tensor, names.untyped_storage), names.nbytes)) < entries * found.each;
}

// False, and no exception, for a tensor whose memory cannot be read. What hides its memory, as tensors under a
// transform of torch.func do, goes another way.
inline bool located(PyObject *tensor, Described &found) {
  try {
    return is_plain(tensor) && (describe ? describe_fast : describe_slowly)(tensor, found) && found.data &&
           !is_freed_view(tensor, found);
  } catch (const Raised &) {
    PyErr_Clear();
    return false;
  }
}

// The same for one whose memory holds its numbers as they are, of a dtype that is reduced here.
inline bool described(PyObject *tensor, Described &found) {
  try {
    return located(tensor, found) && found.stored < DTYPES && asked(tensor, names.is_neg) == Py_False;
  } catch (const Raised &) {
    PyErr_Clear();
    return false;
  }
}

// Reads where the numbers of a tensor [sequence, token, feature] are; false if it is not one that has entries, a
// token's one behind the other, and memory that can be read.
inline bool read(PyObject *tensor, View &view) {
  Described found;
  if (!described(tensor, found) || found.axes != 3) return false;
  view.data = found.data;
  view.stored = found.stored;
  view.shape = {found.sizes[0], found.sizes[1], found.sizes[2]};
  view.strides = {found.steps[0], found.steps[1]};
  return view.data && view.entries() && (found.steps[2] == 1 || found.sizes[2] == 1);
}

// Numbers that lie one behind the other.
struct Row {
  const void *data;
  Dtype stored;
  int64_t entries;
};

// Reads where the numbers of a contiguous tensor are, those of some places of its first axis if `places` is a pair;
// false where there are none, or places that are neither None nor a pair within the axis. Raises if that has no numbers.
inline bool read_row(PyObject *tensor, PyObject *places, Row &row) {
  Described found;
  if (!described(tensor, found)) return false;
  int64_t behind = 1;
  for (int axis = found.axes; axis--;) {
    if (found.sizes[axis] != 1 && found.steps[axis] != behind) return false;
    behind *= found.sizes[axis];
  }
  row = {found.data, found.stored, behind};
  if (places != Py_None) {
    if (!PyTuple_Check(places) || PyTuple_GET_SIZE(places) != 2 || !found.axes || !behind) return false;
    const int64_t from = number(entry(places, 0)), to = number(entry(places, 1)), each = behind / found.sizes[0];
    if (from < 0 || to > found.sizes[0] || from > to) return false;
    row.data = static_cast<const char *>(row.data) + from * each * bytes(row.stored);
    row.entries = (to - from) * each;
  }
  return row.data && row.entries;
}

// A number that some of the entries give, spread over all of them, and the bytes that all take; 0 where there are none
// that can be read.
inline uint64_t sample(PyObject *tensor, int64_t &size) {
  constexpr int64_t samples = 16;
  Described found;
  size = 0;
  // Of a dtype that is wider, or packed into less than a byte, nothing is read.
  if (!located(tensor, found) || found.each < 1 || found.each > 8) return 0;
  int64_t number = 1;
  for (int axis = 0; axis < found.axes; ++axis) number *= found.sizes[axis];
  if (!number) return 0;
  size = number * found.each;
  uint64_t mixed = 1;
  for (int64_t at = 0; at < samples; ++at) {
    int64_t place = at * (number - 1) / (samples - 1), offset = 0;
    for (int axis = found.axes; axis--; place /= found.sizes[axis])
      offset += place % found.sizes[axis] * found.steps[axis];
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char *>(found.data) + offset * found.each, found.each);
    mixed = (mixed ^ bits) * 0x9E3779B97F4A7C15;
    mixed ^= mixed >> 32;
  }
  return mixed | 1;
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

// The number of changes in place so far, or -1 where torch does not count them, as in inference mode: it raises then.
inline int64_t version(PyObject *tensor) {
  const Ref counted = Ref(PyObject_GetAttr(tensor, names._version));
  if (counted) return number(counted);
  PyErr_Clear();
  return -1;
}

}  // namespace
