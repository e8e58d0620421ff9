// Python objects held by C++, and the names and objects of torch that are asked for again and again.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <initializer_list>
#include <new>

namespace {

// Thrown where Python has raised an exception; see `for_python`.
struct Raised {};

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject *owned) : object(owned) {}
  Ref(Ref &&other) noexcept : object(other.give()) {}
  Ref &operator=(Ref &&other) noexcept {
    PyObject *before = object;
    object = other.give();
    Py_XDECREF(before);
    return *this;
  }
  ~Ref() { Py_XDECREF(object); }
  static Ref to(PyObject *borrowed) { return Ref(Py_XNewRef(borrowed)); }
  operator PyObject *() const { return object; }
  PyObject *give() {
    PyObject *given = object;
    object = nullptr;
    return given;
  }

 private:
  PyObject *object = nullptr;
};

// An object as the struct that it is.
template <class Struct> Struct *as(PyObject *object) { return reinterpret_cast<Struct *>(object); }

// What stands at a place of a tuple, borrowed.
inline PyObject *entry(PyObject *tuple, Py_ssize_t at) { return PyTuple_GET_ITEM(tuple, at); }

// Returns to Python what `run` gives, or null and an exception: whatever is thrown ends here.
template <class Run>
PyObject *for_python(Run run) {
  try {
    return run().give();
  } catch (const Raised &) {
    return nullptr;
  } catch (const std::bad_alloc &) {
    return PyErr_NoMemory();
  }
}

inline Ref none() { return Ref::to(Py_None); }

inline Ref got(PyObject *owned) {
  if (!owned) throw Raised();
  return Ref(owned);
}

inline void done(int status) {
  if (status < 0) throw Raised();
}

// Completes a type, whose other slots have been filled in.
template <class Struct>
void ready(PyTypeObject &type, destructor free, PyMethodDef *methods, PyMemberDef *members, unsigned long flags = 0) {
  type.tp_basicsize = sizeof(Struct);
  type.tp_flags = Py_TPFLAGS_DEFAULT | flags;
  type.tp_dealloc = free;
  type.tp_methods = methods;
  type.tp_members = members;
  done(PyType_Ready(&type));
}

#define NAMES(X) \
  X(_backward_hooks) X(_backward_pre_hooks) X(_base) X(_booked) X(_call_impl) X(_compiled_call_impl) \
  X(_forward_pre_hooks) X(_version) X(attended) X(eager) X(ran) X(reader) \
  X(data_ptr) X(dtype) X(element_size) X(forced) X(is_contiguous) X(is_cpu) X(is_neg) X(layout) X(ledger) X(mask) \
  X(nbytes) X(_register_hook_dict) X(grad_fn) X(requires_grad) X(shape) X(storage_offset) X(stride) X(tokens) \
  X(untyped_storage) X(_activation) X(_compare) X(take_gradient) X(without_gradient) X(activation) X(gradient) X(pair)

#define DECLARE(name) PyObject *name;
struct { NAMES(DECLARE) PyObject *dynamo; } names;
#undef DECLARE

enum Dtype { FLOAT32, FLOAT16, BFLOAT16, DTYPES };

struct {
  PyObject *tensor, *parameter, *dtypes[DTYPES], *boolean, *strided, *task, *ordered;
  PyObject *global_hooks[3];
} torch;

inline Ref attribute(PyObject *object, PyObject *name) { return got(PyObject_GetAttr(object, name)); }
inline Ref asked(PyObject *object, PyObject *method) { return got(PyObject_CallMethodNoArgs(object, method)); }
inline bool is_true(PyObject *object, PyObject *name) { return attribute(object, name) == Py_True; }

// What stands in a dictionary, or null, and no exception, where nothing does.
inline Ref item(PyObject *dictionary, PyObject *key) {
  Ref found = Ref::to(PyDict_GetItemWithError(dictionary, key));
  if (!found && PyErr_Occurred()) throw Raised();
  return found;
}

inline int64_t number(PyObject *object) {
  const int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw Raised();
  return value;
}

// Finds the names and the objects of torch; once, when the module is imported.
inline void find_names() {
#define INTERN(name) names.name = got(PyUnicode_InternFromString(#name)).give();
  NAMES(INTERN)
#undef INTERN
  names.dynamo = got(PyUnicode_InternFromString("torch._dynamo")).give();
  const Ref module = got(PyImport_ImportModule("torch"));
  const auto of_torch = [&](const char *name) { return got(PyObject_GetAttrString(module, name)).give(); };
  torch.tensor = of_torch("Tensor");
  torch.dtypes[FLOAT32] = of_torch("float32");
  torch.dtypes[FLOAT16] = of_torch("float16");
  torch.dtypes[BFLOAT16] = of_torch("bfloat16");
  torch.boolean = of_torch("bool");
  torch.strided = of_torch("strided");
  const Ref nn = Ref(of_torch("nn")), inside = Ref(of_torch("_C"));
  torch.parameter = got(PyObject_GetAttrString(nn, "Parameter")).give();
  const Ref modules = got(PyImport_ImportModule("torch.nn.modules.module"));
  int at = 0;
  for (const char *name : {"_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks"})
    torch.global_hooks[at++] = got(PyObject_GetAttrString(modules, name)).give();
  const Ref collections = got(PyImport_ImportModule("collections"));
  torch.ordered = got(PyObject_GetAttrString(collections, "OrderedDict")).give();
  torch.task = got(PyObject_GetAttrString(inside, "_current_graph_task_id")).give();
}

}  // namespace
