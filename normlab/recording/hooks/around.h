// The three hooks around every module of the process: what they do for most modules, and Python for the others.
//
// Each does what the method of the same name of `attachment.py` does, or calls it.

#pragma once

#include "awaiting.h"

namespace {

struct Around {
  PyObject_HEAD
  PyObject *attachment, *reader, *model, *unseen;
  unsigned long thread;
};

extern PyTypeObject AroundType;

inline Ref by_python(Around *around, PyObject *method, PyObject *const *args, Py_ssize_t count) {
  const Ref function = attribute(around->attachment, method);
  return got(PyObject_Vectorcall(function, args, count, nullptr));
}

inline const Module *watched(const Around *around, const PyObject *module) {
  const Modules &modules = *as<Reader>(around->reader)->modules;
  const auto found = modules.find(module);
  return found == modules.end() ? nullptr : &found->second;
}

inline bool is_own_thread(const Around *around) { return PyThread_get_thread_ident() == around->thread; }

inline bool is_unseen(const Around *around) {
  PyObject *value;
  done(PyContextVar_Get(around->unseen, nullptr, &value));
  return Ref(value) == Py_True;
}

inline bool is_recomputing() { return number(got(PyObject_CallNoArgs(torch.task))) != -1; }

inline bool is_empty(PyObject *object, PyObject *name) {
  const Ref dictionary = attribute(object, name);
  return PyDict_Check(dictionary) && PyDict_GET_SIZE(static_cast<PyObject *>(dictionary)) == 0;
}

// Whether nothing has to be done before a module runs.
inline bool starts_quietly(const Around *around, PyObject *module) {
  if (!is_own_thread(around) || module == around->model) return false;
  if (!is_true(attribute(around->attachment, names._eager), names.forced)) {
    // Once the compiler is loaded, code may be compiled.
    const int loaded = PyDict_Contains(PyImport_GetModuleDict(), names.dynamo);
    done(loaded);
    if (loaded) return false;
  }
  return !watched(around, module) || is_empty(module, names._forward_hooks);
}

inline bool is_taken(const Around *around, PyObject *module, PyObject *args, PyObject *result) {
  if (!is_own_thread(around)) return false;
  const Module *watch = watched(around, module);
  if (!watch) return true;
  Reader *reader = as<Reader>(around->reader);
  return watch->usual && reader->armed && PyTuple_Check(args) && is_empty(around->attachment, names._behind) &&
         !is_unseen(around) && !is_recomputing() && ran(reader, *watch, args, result);
}

PyObject *before(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  return for_python([&] {
    Around *around = as<Around>(self);
    const bool is_quiet = count == 2 && starts_quietly(around, args[0]);
    return is_quiet ? none() : by_python(around, names._before, args, count);
  });
}

PyObject *after(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  return for_python([&] {
    Around *around = as<Around>(self);
    if (count != 4 || !is_taken(around, args[0], args[1], args[3])) return by_python(around, names._after, args, count);
    done(PyObject_SetAttr(around->attachment, names._done, args[0]));
    return none();
  });
}

PyObject *over(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  return for_python([&] {
    Around *around = as<Around>(self);
    if (count != 3 || !is_own_thread(around) || args[0] == around->model ||
        attribute(around->attachment, names._done) != args[0])
      return by_python(around, names._over, args, count);
    done(PyObject_SetAttr(around->attachment, names._done, Py_None));
    return none();
  });
}

PyObject *around_new(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *attachment, *reader, *model, *unseen;
  unsigned long thread;
  if (!PyArg_ParseTuple(args, "OO!OOk", &attachment, &ReaderType, &reader, &model, &unseen, &thread)) return nullptr;
  Around *around = as<Around>(type->tp_alloc(type, 0));
  if (!around) return nullptr;
  around->attachment = Py_NewRef(attachment);
  around->reader = Py_NewRef(reader);
  around->model = Py_NewRef(model);
  around->unseen = Py_NewRef(unseen);
  around->thread = thread;
  return reinterpret_cast<PyObject *>(around);
}

void around_free(PyObject *self) {
  Around *around = as<Around>(self);
  for (PyObject *held : {around->attachment, around->reader, around->model, around->unseen}) Py_XDECREF(held);
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef around_methods[] = {
    {"before", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(before)), METH_FASTCALL, nullptr},
    {"after", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(after)), METH_FASTCALL, nullptr},
    {"over", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(over)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject AroundType = {PyVarObject_HEAD_INIT(nullptr, 0) "normlab.recording._native.Around"};

inline void ready_around() {
  AroundType.tp_new = around_new;
  ready<Around>(AroundType, around_free, around_methods, nullptr);
}

}  // namespace
