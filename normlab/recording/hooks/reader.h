// Reads the modules whose tensors are as most are: exactly what `Observer.module_ran` does, without the interpreter.
//
// A call of a module is taken whole or not at all: as long as anything about it may need another way nothing has been
// changed, and Python does it. All that is known of a pass stands in containers that Python made and uses too.

#pragma once

#include <unordered_map>
#include <vector>

#include "found.h"

namespace {

// A tensor of a module: argument number `argument`, or its result where that is negative.
struct Port {
  Py_ssize_t argument;
  Ref watch, forward, backward;
  bool reduced, tokens;  // `tokens`: whether its numbers of sequences and tokens are asked for
  long uses;  // sums of other modules that need it later
};

// A term of a sum: the module's port of this index, or, where that is negative, a tensor that is remembered.
struct Operand {
  Py_ssize_t index;
  Ref watch;
};

struct Sum {
  Ref pair, slots;
  Operand update, skip;
  Py_ssize_t last;
  bool stored;
};

struct Module {
  Ref identity;
  bool usual;
  std::vector<Port> ports;
  std::vector<Sum> sums;
};

typedef std::unordered_map<const void *, Module> Modules;

// The tensors of a module that are read at once, and its sums.
constexpr size_t PORTS = 8, SUMS = 4;
// Tokens of an activation of which a histogram is kept: that is Python's.
constexpr int64_t MANY = 1 << 16;

// Hooks that were put on tensors: a weak reference to the tensor's dictionary of hooks, and the hook.
typedef std::vector<std::pair<Ref, Ref>> Hooked;

// `observer` is None unless a step is going on, so that the two do not keep each other alive.
struct Reader {
  PyObject_HEAD
  PyObject *observer, *found, *remembered, *awaited, *calls, *ran, *through_base;
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

inline Ref new_awaiting(PyObject *reader, PyObject *ledger, PyObject *mask, PyObject *bookings);

inline void append(PyObject *list, std::initializer_list<PyObject *> objects) {
  for (PyObject *object : objects) done(PyList_Append(list, object));
}

inline Ref found_of(Reader *reader, PyObject *tensor) {
  const Ref key = got(PyLong_FromVoidPtr(tensor));
  Ref known = item(reader->found, key);
  if (known && is_still(as<Found>(known), tensor)) return known;
  Ref made = new_found(tensor);
  done(PyDict_SetItem(reader->found, key, made));
  return made;
}

// A tensor of the call that is being read.
struct Seen {
  PyObject *tensor;
  View view;
  bool has_gradient;
  Ref held;  // what keeps a tensor alive that is no longer an argument or a result
};

class Call {
 public:
  Call(Reader *reader, const Module &module) : reader(reader), module(module) {}

  // Whether everything about the call is usual. Nothing has been changed so far.
  bool is_usual(PyObject *args, PyObject *result) {
    mask = attribute(reader->observer, names.mask);
    ledger = attribute(reader->observer, names.ledger);
    if (ledger == Py_None) return false;
    for (size_t at = 0; at < module.ports.size(); ++at) {
      const Port &port = module.ports[at];
      PyObject *tensor = result;
      if (port.argument >= 0) {
        if (port.argument >= PyTuple_GET_SIZE(args)) return false;
        tensor = entry(args, port.argument);
      }
      Seen &one = seen[at];
      one.tensor = tensor;
      if (!read(tensor, one.view) || one.view.tokens() > MANY || !read_mask(mask, one.view, keep[at])) return false;
      one.has_gradient = is_true(tensor, names.requires_grad);
    }
    for (size_t at = 0; at < module.sums.size(); ++at) {
      const Sum &sum = module.sums[at];
      if (!find(sum.update, updates[at]) || !find(sum.skip, skips[at])) return false;
      const View &last = seen[sum.last].view;
      if (!updates[at].view.is_like(last) || !skips[at].view.is_like(last)) return false;
    }
    return true;
  }

  void take() {
    count();
    for (size_t at = 0; at < module.ports.size(); ++at) take(module.ports[at], seen[at], keep[at]);
    for (size_t at = 0; at < module.sums.size(); ++at) take(module.sums[at], updates[at], skips[at]);
  }

 private:
  void count() {
    number_of_call = Ref(PyLong_FromLong(0));
    if (!reader->once) {
      if (Ref before = item(reader->calls, module.identity)) number_of_call = std::move(before);
      const Ref next = got(PyLong_FromLongLong(number(number_of_call) + 1));
      done(PyDict_SetItem(reader->calls, module.identity, next));
    }
    first = number(number_of_call) == 0;
    done(PySet_Add(reader->ran, module.identity));
  }

  // The list is asked for each time: while a tensor was read, another thread may have taken it to add it up.
  void book(PyObject *record, PyObject *slots, const View &view) {
    append(attribute(ledger, names._booked), {record, slots, number_of_call, torch.dtypes[view.stored], Py_None});
  }

  void take(const Port &port, const Seen &one, const bool *kept) {
    if (port.tokens) {
      const Ref tokens = got(Py_BuildValue("(LL)", static_cast<long long>(one.view.shape.sequences),
                                           static_cast<long long>(one.view.shape.tokens)));
      done(PyObject_SetAttr(reader->observer, names.tokens, tokens));
    }
    const Ref known = found_of(reader, one.tensor);
    Found *found = as<Found>(known);
    if (port.uses) {
      const Ref kept_for = got(Py_BuildValue("(OOl)", one.tensor, static_cast<PyObject *>(known), port.uses));
      done(PyDict_SetItem(reader->remembered, port.watch, kept_for));
    }
    const bool booked_here = PyList_GET_SIZE(static_cast<PyObject *>(port.forward)) > 0;
    if (booked_here || port.reduced) {
      if (found->record == Py_None) {
        Ref record = activation_of(one.view, kept, reader->vectors);
        if (!record) record = got(PyObject_CallMethodOneArg(reader->observer, names._activation, one.tensor));
        replace(found->record, record);
      }
      if (booked_here) book(found->record, port.forward, one.view);
    }
    if (PyList_GET_SIZE(static_cast<PyObject *>(port.backward))) await(port, one, found);
  }

  void await(const Port &port, const Seen &one, Found *found) {
    if (!one.has_gradient) {
      got(PyObject_CallMethodOneArg(reader->observer, names.without_gradient, port.watch));
      return;
    }
    if (first) done(PySet_Add(reader->awaited, port.watch));
    if (found->bookings == Py_None) {
      const Ref bookings = got(PyList_New(0));
      const Ref awaiting = new_awaiting(reinterpret_cast<PyObject *>(reader), ledger, mask, bookings);
      hook(one.tensor, awaiting);
      if (reader->in_place) hook_base(one, awaiting);
      replace(found->bookings, bookings);
    }
    append(found->bookings, {port.backward, number_of_call, torch.dtypes[one.view.stored]});
  }

  // Does what Tensor.register_hook does, without a handle, which would cost as much as all the rest.
  void hook(PyObject *tensor, PyObject *awaiting) {
    Ref hooks = attribute(tensor, names._backward_hooks);
    if (hooks == Py_None) {
      hooks = got(PyObject_CallNoArgs(torch.ordered));
      done(PyObject_SetAttr(tensor, names._backward_hooks, hooks));
      const Ref node = attribute(tensor, names.grad_fn);
      if (node != Py_None) got(PyObject_CallMethodOneArg(node, names._register_hook_dict, tensor));
    }
    done(PyObject_SetItem(hooks, awaiting, awaiting));
    reader->hooked->emplace_back(got(PyWeakref_NewRef(hooks, nullptr)), Ref::to(awaiting));
  }

  // An in-place change of a view takes its hooks out of the graph; those of its base stay.
  void hook_base(const Seen &one, PyObject *awaiting) {
    const Ref base = attribute(one.tensor, names._base);
    if (base == Py_None || !is_true(base, names.requires_grad) || asked(base, names.is_contiguous) != Py_True ||
        number(asked(base, names.numel)) != one.view.entries())
      return;
    const Ref shape = attribute(one.tensor, names.shape);
    hook(base, got(PyObject_CallFunctionObjArgs(torch.partial, reader->through_base, awaiting,
                                                static_cast<PyObject *>(shape), nullptr)));
  }

  // Finds a term of a sum; false if it is not there any more as it was.
  bool find(const Operand &operand, Seen &term) {
    if (operand.index >= 0) {
      term.tensor = seen[operand.index].tensor;
      term.view = seen[operand.index].view;
      return true;
    }
    term.held = item(reader->remembered, operand.watch);
    if (!term.held || Py_TYPE(entry(term.held, 1)) != &FoundType) return false;
    term.tensor = entry(term.held, 0);
    const Found *found = as<Found>(entry(term.held, 1));
    return found->record != Py_None && is_still(found, term.tensor) && read(term.tensor, term.view);
  }

  void forget(const Operand &operand) {
    if (operand.index >= 0) return;
    const Ref kept = item(reader->remembered, operand.watch);
    if (!kept) return;
    const int64_t uses = number(entry(kept, 2));
    if (uses <= 1) {
      done(PyDict_DelItem(reader->remembered, operand.watch));
      return;
    }
    const Ref less =
        got(Py_BuildValue("(OOL)", entry(kept, 0), entry(kept, 1), static_cast<long long>(uses - 1)));
    done(PyDict_SetItem(reader->remembered, operand.watch, less));
  }

  void take(const Sum &sum, const Seen &update, const Seen &skip) {
    const View *total = sum.stored ? &seen[sum.last].view : nullptr;
    const Ref record = pair_of(update.view, skip.view, total, keep[sum.last]);
    if (!record) return compare(sum);
    forget(sum.update);
    forget(sum.skip);
    book(record, sum.slots, update.view);
  }

  void compare(const Sum &sum) {
    const Ref values = got(PyList_New(0));
    for (size_t at = 0; at < module.ports.size(); ++at) append(values, {seen[at].tensor});
    got(PyObject_CallMethodObjArgs(reader->observer, names._compare, static_cast<PyObject *>(sum.pair),
                                   static_cast<PyObject *>(values), static_cast<PyObject *>(number_of_call), nullptr));
  }

  Reader *reader;
  const Module &module;
  Ref mask, ledger, number_of_call;
  bool first = true;
  Seen seen[PORTS], updates[SUMS], skips[SUMS];
  const bool *keep[PORTS];
};

inline bool ran(Reader *reader, const Module &module, PyObject *args, PyObject *result) {
  Call call(reader, module);
  if (!call.is_usual(args, result)) return false;
  call.take();
  return true;
}

inline Operand operand_of(PyObject *described) {
  return {number(entry(described, 0)), Ref::to(entry(described, 1))};
}

// Takes in the description of a module that `usual.py` makes.
inline Module module_of(PyObject *identity, PyObject *described) {
  Module module = {Ref::to(identity), described != Py_None, {}, {}};
  if (!module.usual) return module;
  PyObject *ports, *sums;
  if (!PyArg_ParseTuple(described, "O!O!", &PyTuple_Type, &ports, &PyTuple_Type, &sums)) throw Raised();
  module.usual = static_cast<size_t>(PyTuple_GET_SIZE(ports)) <= PORTS &&
                 static_cast<size_t>(PyTuple_GET_SIZE(sums)) <= SUMS;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(ports); ++at) {
    Py_ssize_t argument;
    PyObject *watch, *forward, *backward;
    int reduced, tokens;
    long uses;
    if (!PyArg_ParseTuple(entry(ports, at), "nOO!O!ppl", &argument, &watch, &PyList_Type, &forward,
                          &PyList_Type, &backward, &reduced, &tokens, &uses))
      throw Raised();
    module.ports.push_back(
        {argument, Ref::to(watch), Ref::to(forward), Ref::to(backward), reduced != 0, tokens != 0, uses});
  }
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(sums); ++at) {
    Py_ssize_t last;
    PyObject *pair, *slots, *update, *skip;
    int stored;
    if (!PyArg_ParseTuple(entry(sums, at), "OOO!O!np", &pair, &slots, &PyTuple_Type, &update, &PyTuple_Type,
                          &skip, &last, &stored))
      throw Raised();
    module.sums.push_back(
        {Ref::to(pair), Ref::to(slots), operand_of(update), operand_of(skip), last, stored != 0});
  }
  return module;
}

PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *watched, *found, *remembered, *awaited, *calls, *ran, *through_base;
  int once, in_place, vectors;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!Oppp", &PyDict_Type, &watched, &PyDict_Type, &found,
                        &PyDict_Type, &remembered, &PySet_Type, &awaited, &PyDict_Type, &calls, &PySet_Type, &ran,
                        &through_base, &once, &in_place, &vectors))
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
    reader->through_base = Py_NewRef(through_base);
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
    for (const auto &hook : *reader->hooked) Py_VISIT(static_cast<PyObject *>(hook.second));
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
                         reader->ran, reader->through_base, reader->last, reader->last_mask, reader->unseen})
    Py_XDECREF(held);
  delete reader->modules;
  delete reader->hooked;
  Py_TYPE(self)->tp_free(self);
}

inline bool is_gone(const std::pair<Ref, Ref> &hook) { return !referred(hook.first); }

PyObject *reader_forget(PyObject *self, PyObject *) {
  Reader *reader = as<Reader>(self);
  return for_python([&] {
    replace(reader->last, Py_None);
    replace(reader->last_mask, Py_None);
    // Hooks of graphs that are gone need no removal.
    Hooked alive;
    for (auto &hook : *reader->hooked)
      if (!is_gone(hook)) alive.push_back(std::move(hook));
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
    for (const auto &[reference, hook] : hooked) {
      const Ref hooks = Ref::to(referred(reference));
      // Somebody else may have cleared them.
      if (hooks && PyObject_DelItem(hooks, hook) < 0) PyErr_Clear();
    }
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
