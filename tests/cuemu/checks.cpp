// The checked build. A kernel compiled with -fsanitize=thread calls a hook at every access to memory; these hooks are
// the emulator's own, so no sanitizer library is linked or loaded. They find accesses outside of what the kernel was
// given, misaligned vectors, writes to inputs, races, and reads of shared memory that nobody wrote.
#include <dlfcn.h>
#include <stdio.h>

#include <memory>

#include "counters.h"
#include "engine.h"
#include "shadow.h"

namespace cuemu {

namespace {

struct Region {
  uintptr_t base = 0;
  size_t bytes = 0, granule = 1;
  bool writable = true, shared = false;
  std::unique_ptr<Shadow[]> shadow;
  bool holds(uintptr_t address, size_t size) const { return address >= base && address + size <= base + bytes; }
};

std::vector<Region> regions;  // what the launch was given; the module's shared memory is regions[0]
size_t last_region;
Segment shared_memory;
uint32_t block_number, epoch;
uint32_t warp_epochs[MOST_THREADS / WARP];
bool counting;

std::string place(uintptr_t pc) {
  Dl_info info;
  char text[600] = "an unknown place";
  // The harness turns this into file and line. One byte back: the address is where the hook returns to.
  if (dladdr((void*)pc, &info)) snprintf(text, sizeof text, "[[%s+0x%zx]]", info.dli_fname, pc - 1 - (uintptr_t)info.dli_fbase);
  return text;
}

std::string describe(const char* kind, size_t size, bool write, uintptr_t pc) {
  return std::string(kind) + (write ? " write of " : " read of ") + std::to_string(size) + " bytes at " + place(pc) +
         " by " + engine.where(engine.self());
}

Region* find(uintptr_t address, size_t size) {
  if (last_region < regions.size() && regions[last_region].holds(address, size)) return &regions[last_region];
  for (size_t i = 0; i < regions.size(); i++)
    if (regions[i].holds(address, size)) {
      last_region = i;
      return &regions[i];
    }
  return nullptr;
}

bool on_own_stack(uintptr_t address) {
  const uintptr_t stack = (uintptr_t)engine.stacks + (uintptr_t)engine.running * STACK_BYTES;
  return address >= stack && address < stack + STACK_BYTES;
}

// threadIdx and its like are reads of the emulator's own state.
bool built_in(uintptr_t address) {
  const uintptr_t fibers = (uintptr_t)engine.fibers.data();
  if (address >= fibers && address < fibers + engine.fibers.size() * sizeof(Fiber)) return true;
  return address == (uintptr_t)&here || (address >= (uintptr_t)&block_shape && address < (uintptr_t)(&block_shape + 1)) ||
         (address >= (uintptr_t)&grid_shape && address < (uintptr_t)(&grid_shape + 1));
}

bool beyond_dynamic(uintptr_t address, size_t size) {
  const uintptr_t limit = (uintptr_t)shared_memory.dynamic + shared_memory.dynamic_bytes;
  return address + size > limit && address >= (uintptr_t)shared_memory.dynamic;
}

void enter_shadow(Region& region, uintptr_t address, size_t size, bool write, uintptr_t pc) {
  const Access now = {block_number, epoch, warp_epochs[engine.running / WARP], engine.running, pc};
  for (size_t at = address - region.base, end = at + size; at < end; at += region.granule) {
    Shadow& shadow = region.shadow[at / region.granule];
    if (region.shared && !write && shadow.write.block != block_number)
      engine.fail(describe("uninitialised shared memory:", size, write, pc));
    if (const Access* before = shadow.enter(now, write, region.shared))
      engine.fail(std::string(region.shared ? "shared" : "global") + " memory race: " +
                  describe("", size, write, pc) + " and thread " + std::to_string(before->thread) + " of block " +
                  std::to_string(before->block - 1) + " at " + place(before->pc));
  }
}

void access(uintptr_t address, size_t size, bool write, uintptr_t pc, bool natural) {
  if (engine.running < 0 || on_own_stack(address)) return;
  if (natural && address % size) engine.fail(describe("misaligned", size, write, pc));
  Region* region = find(address, size);
  if (!region && !write && built_in(address)) return;
  if (!region || (region->shared && beyond_dynamic(address, size)))
    engine.fail(describe("out-of-bounds", size, write, pc));
  if (write && !region->writable) engine.fail(describe("read-only input:", size, write, pc));
  if (counting && !region->shared)
    count((int)(region - &regions[0]) - 1, engine.running, address, size, write, pc);
  enter_shadow(*region, address, size, write, pc);
}

}  // namespace

void begin_launch(const Segment& shared) {
  shared_memory = shared;
  block_number = epoch = 0;
  last_region = 0;
  if (regions.empty()) return;
  Region& own = regions[0];
  own.base = (uintptr_t)shared.base, own.bytes = shared.bytes, own.shared = true;
  own.shadow.reset(new Shadow[shared.bytes]);
}

void begin_block() { block_number++, epoch++; }
void end_block() {
  if (counting) finish_block();
}
void barrier_passed() { epoch++; }
void warp_passed(int warp, unsigned mask) {
  // A partial mask orders fewer lanes than this says; the kernels use full ones.
  if (mask == 0xffffffffu) warp_epochs[warp]++;
}

}  // namespace cuemu

using namespace cuemu;

extern "C" void cuemu_forget(int count_too) {
  regions.clear();
  regions.resize(1);
  counting = count_too;
  reset_counters();
}

extern "C" void cuemu_region(uintptr_t base, size_t bytes, size_t granule, int writable) {
  Region region;
  region.base = base, region.bytes = bytes, region.granule = granule, region.writable = writable;
  region.shadow.reset(new Shadow[bytes / granule + 1]);
  regions.push_back(std::move(region));
}

#define HERE ((uintptr_t)__builtin_return_address(0))
#define HOOKS(SIZE)                                                                                                  \
  extern "C" void __tsan_read##SIZE(void* a) { access((uintptr_t)a, SIZE, false, HERE, true); }                      \
  extern "C" void __tsan_write##SIZE(void* a) { access((uintptr_t)a, SIZE, true, HERE, true); }                      \
  extern "C" void __tsan_unaligned_read##SIZE(void* a) { access((uintptr_t)a, SIZE, false, HERE, false); }           \
  extern "C" void __tsan_unaligned_write##SIZE(void* a) { access((uintptr_t)a, SIZE, true, HERE, false); }           \
  extern "C" void __tsan_volatile_read##SIZE(void* a) { access((uintptr_t)a, SIZE, false, HERE, true); }             \
  extern "C" void __tsan_volatile_write##SIZE(void* a) { access((uintptr_t)a, SIZE, true, HERE, true); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" void __tsan_read_range(void* a, size_t size) { access((uintptr_t)a, size, false, HERE, false); }
extern "C" void __tsan_write_range(void* a, size_t size) { access((uintptr_t)a, size, true, HERE, false); }
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}
