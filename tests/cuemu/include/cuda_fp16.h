// IEEE half precision for the emulator: the type and the two conversions that the kernels use, with CUDA's names.
#pragma once

#include <stdint.h>
#include <string.h>

struct __half {
  unsigned short bits;
};

inline float __half2float(__half h) {
  const uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16, exponent = (h.bits >> 10) & 31u, fraction = h.bits & 1023u;
  float value;
  if (exponent == 0) {
    value = (float)fraction * 0x1p-24f;  // subnormal: exact in float
    uint32_t raw;
    memcpy(&raw, &value, 4);
    raw |= sign;
    memcpy(&value, &raw, 4);
    return value;
  }
  const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  const uint32_t raw = sign | wide << 23 | fraction << 13;
  memcpy(&value, &raw, 4);
  return value;
}

inline __half __float2half_rn(float value) {
  uint32_t raw;
  memcpy(&raw, &value, 4);
  const unsigned short sign = (unsigned short)(raw >> 16 & 0x8000u);
  const uint32_t size = raw & 0x7fffffffu;
  if (size > 0x7f800000u) return {0x7fff};                                      // CUDA's one NaN
  if (size >= 0x477ff000u) return {(unsigned short)(sign | 0x7c00u)};           // rounds to 65536 or more
  if (size < 0x33000001u) return {sign};                                        // half of the least subnormal, or less
  const int exponent = (int)(size >> 23) - 127;
  const uint32_t fraction = (size & 0x7fffffu) | 0x800000u;
  const int shift = exponent < -14 ? 13 + (-14 - exponent) : 13;
  uint32_t kept = fraction >> shift;
  const uint32_t rest = fraction & ((1u << shift) - 1u), half = 1u << (shift - 1);
  if (rest > half || (rest == half && (kept & 1u))) kept++;
  // The carry out of the fraction is a larger exponent, as it should be; the hidden bit is one exponent step.
  const uint32_t base = exponent < -14 ? 0u : (uint32_t)(exponent + 14) << 10;
  return {(unsigned short)(sign | (base + kept))};
}
