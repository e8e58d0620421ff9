// The scheduler: one fiber for each thread of a block, blocks one after another.
#include "engine.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cuemu {

Engine engine;
const Position* here = nullptr;
dim3 block_shape, grid_shape;

namespace {

enum Schedule { FIFO, LIFO, RANDOM };
using Kernel = void (*)(void**);

Kernel kernel;
void** arguments;
sigjmp_buf after_fault;
char fault_text[160];

void run_thread() {
  kernel(arguments);
  engine.self().state = State::finished;
  engine.finished++;
  lane_exits();
  if (engine.waiting > 0)
    for (Fiber& fiber : engine.fibers)
      if (fiber.state == State::barrier)
        engine.fail("barrier divergence: " + engine.where(engine.self()) + " exits and " + engine.where(fiber) +
                    " waits in __syncthreads at " + site(fiber.file, fiber.line));
  engine.leave();
}

void on_fault(int, siginfo_t* info, void*) {
  if (engine.running < 0) _exit(139);
  snprintf(fault_text, sizeof fault_text, "memory fault at address %p by %s", info->si_addr,
           engine.where(engine.self()).c_str());
  siglongjmp(after_fault, 1);
}

// Catches faults of the kernel while it lives, so that a wild pointer does not end the Python process.
struct FaultGuard {
  struct sigaction old_segv, old_bus;
  stack_t old_stack;
  FaultGuard() {
    static char* alternate = (char*)mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t own = {};
    own.ss_sp = alternate;
    own.ss_size = 1 << 16;
    sigaltstack(&own, &old_stack);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &old_segv);
    sigaction(SIGBUS, &action, &old_bus);
  }
  ~FaultGuard() {
    sigaction(SIGSEGV, &old_segv, nullptr);
    sigaction(SIGBUS, &old_bus, nullptr);
    sigaltstack(&old_stack, nullptr);
  }
};

// CuPy always compiles with -ftz=true: subnormal float32 numbers are zero, read or written.
struct FlushToZero {
#if defined(__x86_64__)
  unsigned before = _mm_getcsr();
  FlushToZero() { _mm_setcsr(before | 0x8040u); }
  ~FlushToZero() { _mm_setcsr(before); }
#endif
};

int next(Schedule schedule, std::mt19937& random, size_t& head) {
  auto& ready = engine.ready;
  if (schedule == FIFO) {
    const int id = ready[head++];
    if (head == ready.size()) ready.clear(), head = 0;
    return id;
  }
  if (schedule == RANDOM) std::swap(ready[random() % ready.size()], ready.back());
  const int id = ready.back();
  ready.pop_back();
  return id;
}

void prepare_block(dim3 block) {
  engine.finished = engine.waiting = 0;
  engine.ready.clear();
  forget_warps(engine.threads);
  for (int id = 0; id < engine.threads; id++) {
    Fiber& fiber = engine.fibers[id];
    fiber.id = id, fiber.state = State::ready, fiber.file = "", fiber.line = 0;
    fiber.at = {{id % block_shape.x, id / block_shape.x % block_shape.y, id / (block_shape.x * block_shape.y)}, block};
    fiber.context.prepare(engine.stacks + (size_t)id * STACK_BYTES, STACK_BYTES, run_thread);
    engine.ready.push_back(id);
  }
}

std::string deadlock() {
  std::string text = "deadlock:";
  int named = 0;
  for (int id = 0; id < engine.threads && named < 4; id++) {
    const Fiber& fiber = engine.fibers[id];
    if (fiber.state == State::finished || (id > 0 && fiber.line == engine.fibers[id - 1].line && named > 0)) continue;
    text += std::string(named++ ? "; " : " ") + engine.where(fiber) + " waits " +
            (fiber.state == State::barrier ? "in __syncthreads" : "for its warp") + " at " + site(fiber.file, fiber.line);
  }
  return text;
}

void run_block(dim3 block, Schedule schedule, std::mt19937& random) {
  prepare_block(block);
  size_t head = 0;
  while (engine.finished < engine.threads && engine.error.empty()) {
    if (engine.ready.empty()) {
      engine.error = deadlock();
      return;
    }
    engine.running = next(schedule, random, head);
    here = &engine.self().at;
    Context::swap(engine.scheduler, engine.self().context);
  }
}

// Apart from its caller, whose locals a jump out of the fault handler could clobber.
void __attribute__((noinline)) survive_block(dim3 block, Schedule schedule, std::mt19937& random) {
  if (sigsetjmp(after_fault, 1))
    engine.error = fault_text;
  else
    run_block(block, schedule, random);
}

void poison(const Segment& shared, size_t most_dynamic) {
  char *end = shared.base + shared.bytes, *after = shared.dynamic + most_dynamic;
  memset(shared.base, 0xff, (size_t)(shared.dynamic - shared.base));
  memset(shared.dynamic, 0xff, shared.dynamic_bytes);
  memset(after, 0xff, (size_t)(end - after));
}

std::string refuse(const dim3& grid, const dim3& block, const Segment& shared, size_t most_dynamic) {
  const unsigned long long threads = (unsigned long long)block.x * block.y * block.z;
  if (threads == 0 || threads > MOST_THREADS) return "a block of " + std::to_string(threads) + " threads";
  if (threads % WARP) return "a block of " + std::to_string(threads) + " threads, which is no multiple of 32";
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return "an empty grid";
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return "a grid beyond 2^31-1, 65535 or 65535 blocks";
  if (shared.dynamic_bytes > most_dynamic)
    return std::to_string(shared.dynamic_bytes) + " bytes of dynamic shared memory, more than " +
           std::to_string(most_dynamic);
  return "";
}

}  // namespace

std::string site(const char* file, int line) { return std::string(file) + ":" + std::to_string(line); }

std::string Engine::where(const Fiber& fiber) {
  return "thread " + std::to_string(fiber.id) + " of block " + std::to_string(fiber.at.block.x);
}

void Engine::leave() { Context::swap(self().context, scheduler); }

void Engine::fail(const std::string& why) {
  if (error.empty()) error = why;
  for (;;) leave();  // the scheduler resumes nobody after an error
}

}  // namespace cuemu

using namespace cuemu;

// Runs `blocks` blocks from `first` on; 0 if all is well. `shape` holds the grid's three and the block's three numbers.
extern "C" int cuemu_launch(void (*entry)(void**), void** values, const unsigned* shape, unsigned long long first,
                            unsigned long long blocks, char* shared_base, size_t shared_bytes, char* dynamic,
                            size_t dynamic_bytes, size_t most_dynamic, int schedule, unsigned seed) {
  const Segment shared = {shared_base, shared_bytes, dynamic, dynamic_bytes};
  grid_shape = {shape[0], shape[1], shape[2]};
  block_shape = {shape[3], shape[4], shape[5]};
  kernel = entry, arguments = values;
  engine.error = refuse(grid_shape, block_shape, shared, most_dynamic);
  if (!engine.error.empty()) return 1;
  engine.threads = (int)(block_shape.x * block_shape.y * block_shape.z);
  engine.fibers.resize(engine.threads);
  if (!engine.stacks)
    engine.stacks = (char*)mmap(nullptr, STACK_BYTES * MOST_THREADS, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  std::mt19937 random(seed);
  begin_launch(shared);
  {
    FaultGuard guard;
    FlushToZero flush;
    for (unsigned long long b = first; b < first + blocks && engine.error.empty(); b++) {
      // Shared memory holds whatever was there before: NaN shows who reads it.
      poison(shared, most_dynamic);
      begin_block();
      survive_block({(unsigned)(b % grid_shape.x), (unsigned)(b / grid_shape.x % grid_shape.y),
                     (unsigned)(b / ((unsigned long long)grid_shape.x * grid_shape.y))},
                    (Schedule)schedule, random);
      end_block();
    }
  }
  engine.running = -1;
  return !engine.error.empty();
}

extern "C" const char* cuemu_error() { return engine.error.c_str(); }
