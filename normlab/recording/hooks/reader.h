// What compiled code keeps of a pass, and which modules it reads.

#pragma once

#include "module.h"

namespace {

// Hooks that were put on tensors: the tensor's dictionary of hooks, and the hook.
typedef std::vector<std::pair<Ref, Ref>> Hooked;

// `observer` is None unless a step is going on, so that the two do not keep each other alive.
struct Reader {
  PyObject_HEAD
  PyObject *observer, *found, *remembered, *awaited, *calls, *ran, *on_base;
  // The gradient that was reduced last, as a Found, and the mask of it.
  PyObject *last, *last_mask;
  Modules *modules;
  Hooked *hooked;
  // Which thread it reads in, the model (its address), and what says whether nobody is to see what runs.
  unsigned long thread;
  const void *model;
  PyObject *unseen;
  bool once, in_place, vectors, armed, scaled;
};

extern PyTypeObject ReaderType;

PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *watched, *found, *remembered, *awaited, *calls, *ran, *on_base;
  int once, in_place, vectors;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!Oppp", &PyDict_Type, &watched, &PyDict_Type, &found,
                        &PyDict_Type, &remembered, &PySet_Type, &awaited, &PyDict_Type, &calls, &PySet_Type, &ran,
                        &on_base, &once, &in_place, &vectors))
    return nullptr;
  return for_python([&] {
    Ref made = got(type->tp_alloc(type, 0));
    Reader *reader = as<Reader>(made);
    reader->modules = new Modules();
    reader->observer = Py_NewRef(Py_None);
    reader->found = Py_NewRef(found);
    reader->remembered = Py_NewRef(remembered);
    reader->awaited = Py_NewRef(awaited);
    reader->calls = Py_NewRef(calls);
    reader->ran = Py_NewRef(ran);
    reader->on_base = Py_NewRef(on_base);
    reader->hooked = new Hooked();
    reader->last = Py_NewRef(Py_None);
    reader->last_mask = Py_NewRef(Py_None);
    reader->unseen = Py_NewRef(Py_None);
    reader->once = once;
    reader->in_place = in_place;
    reader->vectors = vectors;
    reader->armed = reader->scaled = false;
    PyObject *identity, *described;
    for (Py_ssize_t at = 0; PyDict_Next(watched, &at, &identity, &described);)
      reader->modules->emplace(PyLong_AsVoidPtr(identity), module_of(identity, described));
    return made;
  });
}

int reader_traverse(PyObject *self, visitproc visit, void *arg) {
  Reader *reader = as<Reader>(self);
  Py_VISIT(reader->observer);
  Py_VISIT(reader->found);
  Py_VISIT(reader->remembered);
  Py_VISIT(reader->awaited);
  Py_VISIT(reader->calls);
  Py_VISIT(reader->ran);
  if (reader->hooked)
    for (const auto &[hooks, hook] : *reader->hooked) {
      Py_VISIT(static_cast<PyObject *>(hooks));
      Py_VISIT(static_cast<PyObject *>(hook));
    }
  return 0;
}

int reader_clear(PyObject *self) {
  // Everything else is reached from these only.
  Reader *reader = as<Reader>(self);
  replace(reader->observer, Py_None);
  Hooked hooked;
  hooked.swap(*reader->hooked);
  return 0;
}

void reader_free(PyObject *self) {
  PyObject_GC_UnTrack(self);
  Reader *reader = as<Reader>(self);
  for (PyObject *held : {reader->observer, reader->found, reader->remembered, reader->awaited, reader->calls,
                         reader->ran, reader->on_base, reader->last, reader->last_mask, reader->unseen})
    Py_XDECREF(held);
  delete reader->modules;
  delete reader->hooked;
  Py_TYPE(self)->tp_free(self);
}

PyObject *reader_forget(PyObject *self, PyObject *) {
  Reader *reader = as<Reader>(self);
  return for_python([&] {
    replace(reader->last, Py_None);
    replace(reader->last_mask, Py_None);
    // Hooks of graphs that are gone need no removal: nobody else holds their dictionary, of which a tensor that was
    // hooked twice has one for both.
    std::unordered_map<PyObject *, Py_ssize_t> held;
    held.reserve(reader->hooked->size());
    for (const auto &hook : *reader->hooked) ++held[hook.first];
    Hooked alive;
    Hooked gone;
    for (auto &hook : *reader->hooked) {
      PyObject *hooks = hook.first;
      (Py_REFCNT(hooks) == held[hooks] ? gone : alive).push_back(std::move(hook));
    }
    reader->hooked->swap(alive);
    return none();
  });
}

PyObject *reader_close(PyObject *self, PyObject *) {
  Reader *reader = as<Reader>(self);
  return for_python([&] {
    replace(reader->observer, Py_None);
    reader->armed = false;
    Hooked hooked;
    hooked.swap(*reader->hooked);
    for (const auto &[hooks, hook] : hooked)
      // Somebody else may have cleared them.
      if (PyObject_DelItem(hooks, hook) < 0) PyErr_Clear();
    return none();
  });
}

PyObject *reader_listen(PyObject *self, PyObject *args) {
  Reader *reader = as<Reader>(self);
  PyObject *model, *unseen;
  if (!PyArg_ParseTuple(args, "kOO", &reader->thread, &model, &unseen)) return nullptr;
  return for_python([&] {
    reader->model = model;
    replace(reader->unseen, unseen);
    return none();
  });
}

PyMethodDef reader_methods[] = {
    {"listen", reader_listen, METH_VARARGS, nullptr},
    {"forget", reader_forget, METH_NOARGS, nullptr},
    {"close", reader_close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef reader_members[] = {
    {"observer", T_OBJECT, offsetof(Reader, observer), 0, nullptr},
    {"armed", T_BOOL, offsetof(Reader, armed), 0, nullptr},
    {"scaled", T_BOOL, offsetof(Reader, scaled), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject ReaderType = {PyVarObject_HEAD_INIT(nullptr, 0) "normlab.recording._native.Reader"};

inline void ready_reader() {
  ReaderType.tp_new = reader_new;
  ReaderType.tp_traverse = reader_traverse;
  ReaderType.tp_clear = reader_clear;
  ready<Reader>(ReaderType, reader_free, reader_methods, reader_members, Py_TPFLAGS_HAVE_GC);
}

}  // namespace
