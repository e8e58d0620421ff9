// The part of DLPack 1.3 by which torch says where a tensor's numbers are (github.com/dmlc/dlpack, "exchange API").

#pragma once

#include "objects.h"

namespace {

constexpr int32_t DL_HOST = 1;
constexpr uint8_t DL_FLOAT = 2, DL_BFLOAT = 4;
constexpr uint32_t DL_MAJOR = 1;

struct DLDataType { uint8_t code, bits; uint16_t lanes; };

struct DLTensor {
  void *data;
  int32_t device_type, device_id, axes;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct DLExchange {
  uint32_t major, minor;
  DLExchange *previous;
  void *allocate, *from_object, *to_object;
  int (*describe)(void *object, DLTensor *out);
};

// Says where the numbers of a tensor of torch are: 0, or -1 and an exception. Null where torch is too old for it.
int (*describe)(void *tensor, DLTensor *out) = nullptr;

// Finds it; once, when the module is imported.
inline void find_describe() {
#ifndef ONLY_GETTERS
  const Ref capsule = Ref(PyObject_GetAttrString(torch.tensor, "__dlpack_c_exchange_api__"));
  const auto *api = capsule ? static_cast<DLExchange *>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api")) : nullptr;
  PyErr_Clear();
  if (api && api->major == DL_MAJOR) describe = api->describe;
#endif
}

}  // namespace
