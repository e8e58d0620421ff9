// A warp's access is known only when all its lanes have made it: lanes that execute the same instruction for the same
// time belong together. That is how hardware coalesces them when no lane diverges.
#include "counters.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace cuemu {

namespace {

struct Instruction {
  uint64_t bytes = 0;
  std::vector<uintptr_t> sectors;
};
using Key = std::tuple<int, int, bool, uintptr_t, uint32_t>;  // array, warp, write, pc, how often before

std::map<Key, Instruction> instructions;
std::unordered_map<uint64_t, uint32_t> executed;  // by thread and pc
std::vector<Traffic> traffic;

}  // namespace

void count(int array, int thread, uintptr_t address, size_t size, bool write, uintptr_t pc) {
  const uint32_t turn = executed[(uint64_t)thread << 48 ^ pc]++;
  Instruction& instruction = instructions[{array, thread / 32, write, pc, turn}];
  instruction.bytes += size;
  for (uintptr_t sector = address / 32; sector <= (address + size - 1) / 32; sector++)
    instruction.sectors.push_back(sector);
}

void finish_block() {
  for (auto& [key, instruction] : instructions) {
    const size_t array = (size_t)std::get<0>(key);
    const bool write = std::get<2>(key);
    if (traffic.size() <= array) traffic.resize(array + 1);
    auto& sectors = instruction.sectors;
    std::sort(sectors.begin(), sectors.end());
    const size_t distinct = (size_t)(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
    traffic[array].bytes[write] += instruction.bytes;
    traffic[array].sectors[write] += distinct;
    traffic[array].fewest[write] += (instruction.bytes + 31) / 32;
    traffic[array].instructions[write]++;
  }
  instructions.clear();
  executed.clear();
}

void reset_counters() {
  instructions.clear();
  executed.clear();
  traffic.clear();
}

}  // namespace cuemu

extern "C" void cuemu_traffic(int array, uint64_t* eight) {
  const cuemu::Traffic none = {};
  const cuemu::Traffic& of = (size_t)array < cuemu::traffic.size() ? cuemu::traffic[(size_t)array] : none;
  const uint64_t* parts[] = {of.bytes, of.sectors, of.fewest, of.instructions};
  for (int i = 0; i < 8; i++) eight[i] = parts[i / 2][i % 2];
}
