// What is read at a module without the interpreter: its tensors, and the sums that they are terms of.

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

}  // namespace
