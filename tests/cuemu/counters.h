// How many bytes and 32-byte sectors of device memory a kernel moves.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace cuemu {

// For reads and writes of one array: bytes that lanes asked for; 32-byte sectors that the warps' instructions touch,
// each instruction on its own; the fewest sectors that could hold as many bytes; instructions of warps.
struct Traffic {
  uint64_t bytes[2], sectors[2], fewest[2], instructions[2];
};

void count(int array, int thread, uintptr_t address, size_t size, bool write, uintptr_t pc);
void finish_block();
void reset_counters();

}  // namespace cuemu
