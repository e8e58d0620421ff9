// What the scheduler (engine.cpp), its collectives (collectives.cpp) and the checks (checks.cpp) know of each other.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "cuemu.h"
#include "fiber.h"

namespace cuemu {

enum class State { ready, barrier, warp, finished };

struct Fiber {
  Context context;
  Position at;
  int id = 0;
  State state = State::ready;
  const char* file = "";  // where it waits
  int line = 0;
  uint64_t given = 0, received = 0;
  int source = 0;
};

struct Engine {
  std::vector<Fiber> fibers;
  std::vector<int> ready;
  Context scheduler;
  char* stacks = nullptr;
  int running = -1;  // the fiber that runs; -1 outside of kernels
  int threads = 0, finished = 0, waiting = 0;
  std::string error;

  Fiber& self() { return fibers[running]; }
  void leave();                             // back to the scheduler; returns when the fiber is resumed
  void fail(const std::string& why);        // the first failure is kept; never returns to the kernel
  std::string where(const Fiber& fiber);    // "thread 33 of block 2"
};

extern Engine engine;
constexpr size_t STACK_BYTES = 64 * 1024;
constexpr int WARP = 32, MOST_THREADS = 1024;

std::string site(const char* file, int line);
void forget_warps(int threads);  // before a block
void lane_exits();               // nobody may wait for the lane that runs

// The checks. They do something only in modules that were compiled for them.
struct Segment {
  char* base = nullptr;  // the module's shared memory
  size_t bytes = 0;
  char* dynamic = nullptr;  // its last part is the dynamic one, of which the launch asked for `dynamic_bytes`
  size_t dynamic_bytes = 0;
};
void begin_launch(const Segment& shared);
void begin_block();
void end_block();
void barrier_passed();
void warp_passed(int warp, unsigned mask);

}  // namespace cuemu
