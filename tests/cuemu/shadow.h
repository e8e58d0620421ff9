// What is remembered of each piece of memory, and which pairs of accesses no barrier orders.
#pragma once

#include <stdint.h>

namespace cuemu {

// One access: who, when, and from which instruction. `epoch` counts barriers (and block starts) over the whole launch,
// `warp_epoch` the __syncwarps of the accessing thread's warp.
struct Access {
  uint32_t block = 0;  // 1 + its number in the launch; 0: no access yet
  uint32_t epoch = 0, warp_epoch = 0;
  int32_t thread = 0;
  uintptr_t pc = 0;
};

inline bool unordered(const Access& before, const Access& now, bool shared) {
  if (!before.block) return false;
  if (before.block != now.block) return !shared;  // nothing orders blocks; each has a shared memory of its own
  if (before.thread == now.thread || before.epoch != now.epoch) return false;
  return before.thread / 32 != now.thread / 32 || before.warp_epoch == now.warp_epoch;
}

struct Shadow {
  Access write, read, other_read;  // the last write, the last read, and the last read by another thread than that

  // Returns the earlier access that races with `now`, or nullptr, and remembers `now`.
  const Access* enter(const Access& now, bool is_write, bool shared) {
    static thread_local Access culprit;
    const Access* found = unordered(write, now, shared) ? &write : nullptr;
    if (is_write && !found) found = unordered(read, now, shared) ? &read : nullptr;
    if (is_write && !found) found = unordered(other_read, now, shared) ? &other_read : nullptr;
    if (found) culprit = *found;
    if (is_write) {
      write = now;
    } else {
      if (read.thread != now.thread || read.block != now.block) other_read = read;
      read = now;
    }
    return found ? &culprit : nullptr;
  }
};

}  // namespace cuemu
