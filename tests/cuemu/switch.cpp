// The switch between fibers on x86-64.
#include "fiber.h"

#if defined(__x86_64__) && !defined(CUEMU_PORTABLE)
asm(R"(
.text
.globl cuemu_switch
.type cuemu_switch, @function
cuemu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuemu_switch, .-cuemu_switch
)");
#endif
