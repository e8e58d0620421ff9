// A hook that reduces the gradient of one tensor, and holds no tensor itself.

#pragma once

#include "reader.h"

namespace {

struct Awaiting {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject *reader, *ledger, *keep, *bookings;
  // For a view that may be changed in place: what shares its count of changes, and that count when it was seen.
  PyObject *counter;
  long long version;
  bool fired;
};

extern PyTypeObject AwaitingType;

inline void append(PyObject *list, std::initializer_list<PyObject *> objects) {
  for (PyObject *object : objects) done(PyList_Append(list, object));
}

// Returns the record of a gradient; both terms of a sum get the same tensor, which is reduced once. Null, and no
// exception, where it needs another way.
inline Ref gradient_record(Reader *reader, PyObject *gradient, PyObject *mask) {
  View view;
  const bool *keep;
  if (reader->scaled || !read(gradient, view) || !read_mask(mask, view, keep)) return Ref();
  if (reader->last != Py_None && reader->last_mask == mask) {
    const Ref last = Ref::to(reader->last);
    const Found *found = as<Found>(last);
    if (is_still(found, gradient)) return Ref::to(found->record);
  }
  Ref record = gradient_of(view, keep);
  if (!record) return record;
  const Ref last = new_found(gradient);
  replace(as<Found>(last)->record, record);
  replace(reader->last, last);
  replace(reader->last_mask, mask);
  return record;
}

// Whether a part of the gradient passes the tensor by, because it was changed in place; its base has it all.
inline bool is_changed(const Awaiting *self) {
  if (self->counter == Py_None) return false;
  const Ref counter = Ref::to(self->counter);
  return number(attribute(counter, names._version)) != self->version;
}

inline void take_gradient(Awaiting *self, PyObject *gradient) {
  if (is_changed(self)) return;
  Reader *reader = as<Reader>(self->reader);
  const Ref observer = Ref::to(reader->observer);
  // There is no gradient where only other results of the same operation are used.
  if (observer == Py_None || gradient == Py_None) return;
  const Ref ledger = attribute(observer, names.ledger);
  if (ledger == Py_None || ledger != self->ledger) return;
  const Ref record = self->fired ? Ref() : gradient_record(reader, gradient, self->keep);
  if (!record) {
    got(PyObject_CallMethodObjArgs(observer, names.take_gradient, reinterpret_cast<PyObject *>(self),
                                   static_cast<PyObject *>(got(Py_BuildValue("((OO))", Py_None, gradient))), nullptr));
    return;
  }
  self->fired = true;
  const Ref booked = attribute(ledger, names._booked);
  // A slot list, the number of the call and the dtype, one after the other.
  for (Py_ssize_t at = 0; at + 2 < PyList_GET_SIZE(self->bookings); at += 3) {
    const auto booking = [&](int what) { return PyList_GET_ITEM(self->bookings, at + what); };
    append(booked, {record, booking(0), booking(1), booking(2), Py_None});
  }
}

PyObject *awaiting_call(PyObject *self, PyObject *const *args, size_t number, PyObject *) {
  if (PyVectorcall_NARGS(number) != 1) {
    PyErr_SetString(PyExc_TypeError, "a hook takes one gradient");
    return nullptr;
  }
  return for_python([&] {
    take_gradient(as<Awaiting>(self), args[0]);
    return none();
  });
}

inline Ref new_awaiting(PyObject *reader, PyObject *ledger, PyObject *mask, PyObject *bookings) {
  Awaiting *awaiting = PyObject_GC_New(Awaiting, &AwaitingType);
  if (!awaiting) throw Raised();
  awaiting->call = awaiting_call;
  awaiting->reader = Py_NewRef(reader);
  awaiting->ledger = Py_NewRef(ledger);
  awaiting->keep = Py_NewRef(mask);
  awaiting->bookings = Py_NewRef(bookings);
  awaiting->counter = Py_NewRef(Py_None);
  awaiting->version = 0;
  awaiting->fired = false;
  PyObject_GC_Track(awaiting);
  return Ref(reinterpret_cast<PyObject *>(awaiting));
}

int awaiting_traverse(PyObject *self, visitproc visit, void *arg) {
  Awaiting *awaiting = as<Awaiting>(self);
  Py_VISIT(awaiting->reader);
  Py_VISIT(awaiting->ledger);
  return 0;
}

void awaiting_free(PyObject *self) {
  PyObject_GC_UnTrack(self);
  Awaiting *awaiting = as<Awaiting>(self);
  for (PyObject *held : {awaiting->reader, awaiting->ledger, awaiting->keep, awaiting->bookings, awaiting->counter})
    Py_DECREF(held);
  PyObject_GC_Del(self);
}

PyMemberDef awaiting_members[] = {
    {"ledger", T_OBJECT, offsetof(Awaiting, ledger), READONLY, nullptr},
    {"keep", T_OBJECT, offsetof(Awaiting, keep), READONLY, nullptr},
    {"bookings", T_OBJECT, offsetof(Awaiting, bookings), READONLY, nullptr},
    {"counter", T_OBJECT, offsetof(Awaiting, counter), 0, nullptr},
    {"version", T_LONGLONG, offsetof(Awaiting, version), 0, nullptr},
    {"fired", T_BOOL, offsetof(Awaiting, fired), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject AwaitingType = {PyVarObject_HEAD_INIT(nullptr, 0) "normlab.recording._native.Awaiting"};

inline void ready_awaiting() {
  AwaitingType.tp_vectorcall_offset = offsetof(Awaiting, call);
  AwaitingType.tp_call = PyVectorcall_Call;
  AwaitingType.tp_traverse = awaiting_traverse;
  constexpr unsigned long flags = Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  ready<Awaiting>(AwaitingType, awaiting_free, nullptr, awaiting_members, flags);
}

}  // namespace
