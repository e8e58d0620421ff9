// bfloat16 for the emulator: the type and the two conversions that the kernels use, with CUDA's names.
#pragma once

#include <stdint.h>
#include <string.h>

struct __nv_bfloat16 {
  unsigned short bits;
};

inline float __bfloat162float(__nv_bfloat16 b) {
  const uint32_t raw = (uint32_t)b.bits << 16;
  float value;
  memcpy(&value, &raw, 4);
  return value;
}

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  uint32_t raw;
  memcpy(&raw, &value, 4);
  if ((raw & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // CUDA's one NaN
  return {(unsigned short)((raw + 0x7fffu + (raw >> 16 & 1u)) >> 16)};
}
