// Where a module's shared memory is: the thread-local segment that holds a given address.
#include <link.h>
#include <stdint.h>

namespace {

struct Search {
  uintptr_t inside;
  uintptr_t base;
  size_t bytes;
};

int visit(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t base = (uintptr_t)info->dlpi_tls_data;
    if (header.p_type != PT_TLS || !base) continue;
    if (search.inside >= base && search.inside < base + header.p_memsz) {
      search.base = base, search.bytes = header.p_memsz;
      return 1;
    }
  }
  return 0;
}

}  // namespace

extern "C" int cuemu_segment(uintptr_t inside, uintptr_t* base, size_t* bytes) {
  Search search = {inside, 0, 0};
  if (!dl_iterate_phdr(visit, &search)) return 0;
  *base = search.base, *bytes = search.bytes;
  return 1;
}
