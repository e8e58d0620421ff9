// What is called in place of a module that somebody listens to; see `called.py`, which does what is not usual.

#pragma once

#include "call.h"

namespace {

struct Called {
  PyObject_HEAD
  PyObject *module, *before, *listeners;
};

extern PyTypeObject CalledType;

inline bool is_unseen(const Reader *reader) {
  PyObject *value;
  done(PyContextVar_Get(reader->unseen, nullptr, &value));
  return Ref(value) == Py_True;
}

inline bool is_recomputing() { return number(got(PyObject_CallNoArgs(torch.task))) != -1; }

inline bool is_filled(PyObject *dictionary) {
  return !PyDict_Check(dictionary) || PyDict_GET_SIZE(dictionary) != 0;
}

inline bool has_wrapping_hooks(PyObject *module) {
  for (PyObject *hooks : torch.global_hooks)
    if (is_filled(hooks)) return true;
  for (PyObject *name : {names._forward_pre_hooks, names._backward_hooks, names._backward_pre_hooks})
    if (is_filled(attribute(module, name))) return true;
  return false;
}

// Whether code may be compiled: once the compiler is loaded, unless all code is run as it is written.
inline bool may_be_compiled(PyObject *listener) {
  if (is_true(attribute(listener, names.eager), names.forced)) return false;
  const int loaded = PyDict_Contains(PyImport_GetModuleDict(), names.dynamo);
  done(loaded);
  return loaded;
}

// The only listener that a module has, where it wants to be told of nothing before the module runs; or null.
inline Ref quiet_listener(PyObject *self) {
  const Called *called = as<Called>(self);
  if (PyList_GET_SIZE(called->listeners) != 1) return Ref();
  // The module and who calls it hold this once each; one more may be a copy of the module, which is to run itself, and
  // so may who calls it where it is the module's no more.
  if (Py_REFCNT(self) > 2 || attribute(called->module, names._compiled_call_impl) != self) return Ref();
  Ref listener = Ref::to(PyList_GET_ITEM(called->listeners, 0));
  const Ref held = attribute(listener, names.reader);
  if (Py_TYPE(static_cast<PyObject *>(held)) != &ReaderType) return Ref();
  const Reader *reader = as<Reader>(held);
  const bool is_quiet = reader->armed && reader->thread == PyThread_get_thread_ident() &&
                        reader->model != called->module && !may_be_compiled(listener) &&
                        !has_wrapping_hooks(called->module) && !is_unseen(reader) && !is_recomputing();
  return is_quiet ? std::move(listener) : Ref();
}

inline bool is_taken(PyObject *listener, PyObject *module, PyObject *args, PyObject *result) {
  const Ref held = attribute(listener, names.reader);
  // It may have ended while the module ran.
  if (Py_TYPE(static_cast<PyObject *>(held)) != &ReaderType || !as<Reader>(held)->armed) return false;
  Reader *reader = as<Reader>(held);
  const auto found = reader->modules->find(module);
  return found != reader->modules->end() && found->second.usual && ran(reader, found->second, args, result);
}

// The function of the same name of `called.py`, which cannot be imported before this is.
inline PyObject *attended() {
  static PyObject *function = nullptr;
  if (!function)
    function = attribute(got(PyImport_ImportModule("normlab.recording.called")), names.attended).give();
  return function;
}

PyObject *called_call(PyObject *self, PyObject *args, PyObject *keywords) {
  return for_python([&] {
    const Ref listener = quiet_listener(self), kwargs = keywords ? Ref::to(keywords) : got(PyDict_New());
    if (!listener) return got(PyObject_CallFunctionObjArgs(attended(), self, args, (PyObject *)kwargs, nullptr));
    const Ref module = Ref::to(as<Called>(self)->module);
    Ref result = got(PyObject_Call(attribute(module, names._call_impl), args, keywords));
    if (!is_taken(listener, module, args, result))
      got(PyObject_CallMethodObjArgs(listener, names.ran, (PyObject *)module, args, (PyObject *)kwargs,
                                     (PyObject *)result, nullptr));
    return result;
  });
}

PyObject *called_new(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *module, *before;
  if (!PyArg_ParseTuple(args, "OO", &module, &before)) return nullptr;
  return for_python([&] {
    Ref listeners = got(PyList_New(0)), made = got(type->tp_alloc(type, 0));
    Called *called = as<Called>(made);
    called->module = Py_NewRef(module);
    called->before = Py_NewRef(before);
    called->listeners = listeners.give();
    return made;
  });
}

// Copies and pickles of a module have nothing in this place, whatever way they are made.
PyObject *called_reduce(PyObject *, PyObject *) { return Py_BuildValue("O()", Py_TYPE(Py_None)); }

int called_traverse(PyObject *self, visitproc visit, void *arg) {
  const Called *called = as<Called>(self);
  Py_VISIT(called->module);
  Py_VISIT(called->before);
  Py_VISIT(called->listeners);
  return 0;
}

int called_clear(PyObject *self) {
  PyList_SetSlice(as<Called>(self)->listeners, 0, PY_SSIZE_T_MAX, nullptr);
  return 0;
}

void called_free(PyObject *self) {
  PyObject_GC_UnTrack(self);
  const Called *called = as<Called>(self);
  for (PyObject *held : {called->module, called->before, called->listeners}) Py_XDECREF(held);
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef called_methods[] = {
    {"__reduce__", called_reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef called_members[] = {
    {"module", T_OBJECT, offsetof(Called, module), READONLY, nullptr},
    {"before", T_OBJECT, offsetof(Called, before), READONLY, nullptr},
    {"listeners", T_OBJECT, offsetof(Called, listeners), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject CalledType = {PyVarObject_HEAD_INIT(nullptr, 0) "normlab.recording._native.Called"};

inline void ready_called() {
  CalledType.tp_new = called_new;
  CalledType.tp_call = called_call;
  CalledType.tp_traverse = called_traverse;
  CalledType.tp_clear = called_clear;
  ready<Called>(CalledType, called_free, called_methods, called_members, Py_TPFLAGS_HAVE_GC);
}

}  // namespace
