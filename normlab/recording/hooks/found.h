// A tensor at one moment of its life, held weakly, and what is known of it.

#pragma once

#include "written.h"

namespace {

struct Found {
  PyObject_HEAD
  PyObject *ref, *record, *bookings;
  int64_t version;
  uint64_t sampled;  // of its entries: not everybody who writes into a tensor lets torch count
};

extern PyTypeObject FoundType;

inline PyObject *referred(PyObject *ref) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *object;
  done(PyWeakref_GetRef(ref, &object));
  Py_XDECREF(object);
  return object;
#else
  PyObject *object = PyWeakref_GetObject(ref);
  return object == Py_None ? nullptr : object;
#endif
}

inline Ref new_found(PyObject *tensor) {
  Ref ref = got(PyWeakref_NewRef(tensor, nullptr));
  const int64_t now = version(tensor);
  int64_t size;
  const uint64_t sampled = sample(tensor, size);
  Ref made = got(reinterpret_cast<PyObject *>(PyObject_New(Found, &FoundType)));
  Found *found = as<Found>(made);
  found->ref = ref.give();
  found->record = Py_NewRef(Py_None);
  found->bookings = Py_NewRef(Py_None);
  found->version = now;
  found->sampled = sampled;
  return made;
}

inline bool is_still(const Found *found, PyObject *tensor) {
  if (referred(found->ref) != tensor || found->version < 0 || found->version != version(tensor)) return false;
  int64_t size;
  // What cannot be read, as freed memory, tells nothing.
  const uint64_t now = sample(tensor, size);
  return !now || !found->sampled || now == found->sampled;
}

inline void replace(PyObject *&held, PyObject *by) {
  PyObject *before = held;
  held = Py_NewRef(by);
  Py_DECREF(before);
}

PyObject *found_new(PyTypeObject *, PyObject *args, PyObject *) {
  PyObject *tensor;
  if (!PyArg_ParseTuple(args, "O", &tensor)) return nullptr;
  return for_python([&] { return new_found(tensor); });
}

void found_free(PyObject *self) {
  Found *found = as<Found>(self);
  Py_DECREF(found->ref);
  Py_DECREF(found->record);
  Py_DECREF(found->bookings);
  PyObject_Free(self);
}

PyObject *found_is_still(PyObject *self, PyObject *tensor) {
  return for_python([&] { return got(PyBool_FromLong(is_still(as<Found>(self), tensor))); });
}

PyObject *found_tensor(PyObject *self, PyObject *) {
  return for_python([&] {
    const Found *found = as<Found>(self);
    Ref tensor = Ref::to(referred(found->ref));
    return tensor && is_still(found, tensor) ? std::move(tensor) : none();
  });
}

PyMethodDef found_methods[] = {
    {"is_still", found_is_still, METH_O, nullptr},
    {"tensor", found_tensor, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef found_members[] = {
    {"record", T_OBJECT, offsetof(Found, record), 0, nullptr},
    {"bookings", T_OBJECT, offsetof(Found, bookings), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject FoundType = {PyVarObject_HEAD_INIT(nullptr, 0) "normlab.recording._native.Found"};

inline void ready_found() {
  FoundType.tp_new = found_new;
  ready<Found>(FoundType, found_free, found_methods, found_members);
}

}  // namespace
