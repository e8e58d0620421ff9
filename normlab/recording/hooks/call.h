// Reads the modules whose tensors are as most are: exactly what `Observer.module_ran` does, without the interpreter.
//
// A call of a module is taken whole or not at all: as long as anything about it may need another way nothing has been
// changed, and Python does it. All that is known of a pass stands in containers that Python made and uses too.

#pragma once

#include "awaiting.h"

namespace {

// Tokens of an activation of which a histogram is kept: that is Python's.
constexpr int64_t MANY = 1 << 16;

inline Ref found_of(Reader *reader, PyObject *tensor) {
  const Ref key = got(PyLong_FromVoidPtr(tensor));
  Ref known = item(reader->found, key);
  if (known && is_still(as<Found>(known), tensor)) return known;
  Ref made = new_found(tensor);
  done(PyDict_SetItem(reader->found, key, made));
  return made;
}

inline bool holds(PyObject *tuple, PyObject *object) {
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(tuple); ++at)
    if (entry(tuple, at) == object) return true;
  return false;
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

  void take(PyObject *args, PyObject *result) {
    count();
    renew(args, result);
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

  // What a module gives and was not given is new, and so is all that a later call reads: a kernel may have written it
  // into a tensor that has been seen, past what torch counts.
  void renew(PyObject *args, PyObject *result) {
    const bool is_passed_on = first && holds(args, result);
    for (size_t at = 0; at < module.ports.size(); ++at) {
      if (module.ports[at].argument < 0 ? is_passed_on : first) continue;
      const Ref key = got(PyLong_FromVoidPtr(seen[at].tensor));
      if (item(reader->found, key)) done(PyDict_DelItem(reader->found, key));
    }
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
    reader->hooked->emplace_back(std::move(hooks), Ref::to(awaiting));
  }

  // An in-place change of a view takes its hooks out of the graph; those of its base stay.
  void hook_base(const Seen &one, PyObject *awaiting) {
    if (attribute(one.tensor, names._base) == Py_None) return;
    const Ref found = got(PyObject_CallFunctionObjArgs(reader->on_base, awaiting, one.tensor, nullptr));
    if (found != Py_None) hook(entry(found, 0), entry(found, 1));
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
  call.take(args, result);
  return true;
}

}  // namespace
