// A fiber is a call that can be left and resumed: one for each CUDA thread of the block that runs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && !defined(CUEMU_PORTABLE)

// swapcontext saves the signal mask by two system calls a switch; this saves what the ABI says a callee must keep.
extern "C" void cuemu_switch(void** leave, void* enter);  // switch.cpp

struct Context {
  void* stack_pointer = nullptr;

  void prepare(char* stack, size_t size, void (*start)()) {
    // At entry a function finds its stack pointer 8 below a multiple of 16: the return address lies there.
    uintptr_t* top = (uintptr_t*)((uintptr_t)(stack + size) & ~(uintptr_t)15) - 2;
    *top = (uintptr_t)start;
    for (int saved = 0; saved < 6; saved++) *--top = 0;
    stack_pointer = top;
  }
  static void swap(Context& leave, Context& enter) { cuemu_switch(&leave.stack_pointer, enter.stack_pointer); }
};

#else

#include <ucontext.h>

struct Context {
  ucontext_t context;

  void prepare(char* stack, size_t size, void (*start)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    context.uc_link = nullptr;
    makecontext(&context, start, 0);
  }
  static void swap(Context& leave, Context& enter) { swapcontext(&leave.context, &enter.context); }
};

#endif
