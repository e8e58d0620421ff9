// What one pass over a tensor wrote: an object that Python reads as a buffer of numbers.

#pragma once

#include <utility>

#include "reading.h"

namespace {

// Memory for the numbers of many tensors. Each for itself would lie between the tensors of a model and break up the
// heap, which makes every one of those dearer; it is let go when nobody holds any of it.
struct Block {
  int64_t holders, used;
  double numbers[1 << 15];
};

struct Written {
  PyObject_HEAD
  PyObject *kind;
  int64_t tokens, length;
  Block *block;  // null where the numbers have memory of their own
  double *numbers;
};

extern PyTypeObject WrittenType;

constexpr int64_t BLOCK = sizeof(Block::numbers) / sizeof(double);

// The block that is being filled, which is held here too; under the lock of the interpreter.
Block *filling = nullptr;

inline void let_go(Block *block) {
  if (block && !--block->holders) PyMem_RawFree(block);
}

inline void take_memory(Written *written, int64_t length) {
  if (length > BLOCK / 8) {
    written->numbers = static_cast<double *>(PyMem_RawMalloc(length * sizeof(double)));
  } else {
    if (filling && filling->used + length > BLOCK) {
      // If nobody holds any of it, it can be filled again.
      if (filling->holders == 1)
        filling->used = 0;
      else
        let_go(std::exchange(filling, nullptr));
    }
    if (!filling) {
      filling = static_cast<Block *>(PyMem_RawMalloc(sizeof(Block)));
      if (filling) filling->holders = 1, filling->used = 0;
    }
    if (filling) {
      ++filling->holders;
      written->block = filling;
      written->numbers = filling->numbers + filling->used;
      filling->used += length;
    }
  }
  if (!written->numbers) {
    PyErr_NoMemory();
    throw Raised();
  }
}

inline Ref new_written(PyObject *kind, int64_t length) {
  Ref made = got(reinterpret_cast<PyObject *>(PyObject_New(Written, &WrittenType)));
  Written *written = as<Written>(made);
  written->kind = Py_NewRef(kind);
  written->tokens = 0;
  written->length = length;
  written->block = nullptr;
  written->numbers = nullptr;
  take_memory(written, length);
  return made;
}

void written_free(PyObject *self) {
  Written *written = as<Written>(self);
  Py_DECREF(written->kind);
  if (written->block)
    let_go(written->block);
  else
    PyMem_RawFree(written->numbers);
  PyObject_Free(self);
}

int written_buffer(PyObject *self, Py_buffer *view, int flags) {
  Written *written = as<Written>(self);
  return PyBuffer_FillInfo(view, self, written->numbers, written->length * sizeof(double), 1, flags);
}

PyBufferProcs written_buffers = {written_buffer, nullptr};

PyMemberDef written_members[] = {
    {"kind", T_OBJECT, offsetof(Written, kind), READONLY, nullptr},
    {"tokens", T_LONGLONG, offsetof(Written, tokens), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject WrittenType = {PyVarObject_HEAD_INIT(nullptr, 0) "normlab.recording._native.Written"};

inline void ready_written() {
  WrittenType.tp_as_buffer = &written_buffers;
  ready<Written>(WrittenType, written_free, nullptr, written_members);
}

// Entries from which on other threads may run while a tensor is read.
constexpr int64_t LONG = 1 << 20;

// Lets `pass` write the numbers of a kind; null, and no exception, where the tensor needs another way.
template <class Pass>
Ref written_by(PyObject *kind, int64_t length, int64_t entries, Pass pass) {
  Ref made = new_written(kind, length);
  Written *written = as<Written>(made);
  PyThreadState *state = entries < LONG ? nullptr : PyEval_SaveThread();
  written->tokens = pass(written->numbers);
  if (state) PyEval_RestoreThread(state);
  return written->tokens < 0 ? Ref() : std::move(made);
}

constexpr int64_t ACTIVATION = sizeof(Activation) / sizeof(double);
constexpr int64_t GRADIENT = sizeof(Gradient) / sizeof(double);
constexpr int64_t PAIR = sizeof(Pair) / sizeof(double);

inline Ref activation_of(const View &x, const bool *keep, bool vectors) {
  const int64_t at[] = {x.shape.sequences, x.shape.tokens, x.shape.width, x.strides.sequence, x.strides.token};
  return written_by(names.activation, ACTIVATION + (x.tokens() + 1) / 2, x.entries(), [&](double *numbers) {
    return normlab_activation(x.stored, x.data, at, keep, vectors, numbers);
  });
}

inline Ref gradient_of(const View &g, const bool *keep) {
  const int64_t at[] = {g.shape.sequences, g.shape.tokens, g.shape.width, g.strides.sequence, g.strides.token};
  return written_by(names.gradient, GRADIENT, g.entries(),
                    [&](double *numbers) { return normlab_gradient(g.stored, g.data, at, keep, numbers); });
}

// `total` is null where the sum is not stored.
inline Ref pair_of(const View &u, const View &s, const View *total, const bool *keep) {
  const Strides last = total ? total->strides : Strides{0, 0};
  const int64_t at[] = {u.shape.sequences,  u.shape.tokens,  u.shape.width, u.strides.sequence, u.strides.token,
                        s.strides.sequence, s.strides.token, last.sequence, last.token};
  return written_by(names.pair, PAIR, u.entries(), [&](double *numbers) {
    return normlab_pair(u.stored, u.data, s.data, total ? total->data : nullptr, at, keep, numbers);
  });
}

}  // namespace
