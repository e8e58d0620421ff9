// What follows the kernel's source: the dynamic shared memory (as much as any architecture has), and entries.
thread_local __align__(16) unsigned char dynamic_shared[CUEMU_MOST_DYNAMIC];

extern "C" __attribute__((visibility("default"))) void* cuemu_dynamic() { return dynamic_shared; }

#define CUEMU_ENTRY(NAME) \
  extern "C" __attribute__((visibility("default"))) void NAME##_entry(void** arguments) { cuemu::call(&NAME, arguments); }
