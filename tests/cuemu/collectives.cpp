// Barriers, shuffles and votes, and what goes wrong with them.
#include <stdio.h>

#include "engine.h"

namespace cuemu {

namespace {

struct Group {
  Collective what;
  unsigned mask, arrived;
};
// The groups of lanes of each warp of which some wait. Disjoint masks may be under way at once.
std::vector<Group> pending[MOST_THREADS / WARP];

const char* name(Collective what) {
  return what == Collective::shuffle ? "shuffle" : what == Collective::ballot ? "vote" : "__syncwarp";
}

std::string hex(unsigned mask) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

void check_mask(Collective what, unsigned mask, int warp, int lane, const std::string& place) {
  const std::string doing = std::string(name(what)) + " at " + place + " by " + engine.where(engine.self());
  if (!(mask >> lane & 1u)) engine.fail(doing + ": the mask " + hex(mask) + " does not name the calling lane");
  for (int other = 0; other < WARP; other++) {
    const int id = warp * WARP + other;
    if (!(mask >> other & 1u)) continue;
    if (id >= engine.threads) engine.fail(doing + ": the mask " + hex(mask) + " names lanes that the block has not");
    if (engine.fibers[id].state == State::finished)
      engine.fail(doing + ": lane " + std::to_string(other) + " of the mask has exited");
  }
}

uint64_t resolve(const Group& group, int warp) {
  Fiber* lanes = &engine.fibers[warp * WARP];
  uint64_t votes = 0;
  for (int lane = 0; lane < WARP; lane++)
    if (group.mask >> lane & 1u) votes |= (lanes[lane].given & 1u) << lane;
  for (int lane = 0; lane < WARP; lane++) {
    if (!(group.mask >> lane & 1u)) continue;
    Fiber& fiber = lanes[lane];
    if (group.what == Collective::shuffle) {
      if (!(group.mask >> fiber.source & 1u))
        engine.fail("shuffle at " + site(fiber.file, fiber.line) + " by " + engine.where(fiber) + ": it reads lane " +
                    std::to_string(fiber.source) + ", which is not in the mask " + hex(group.mask));
      fiber.received = lanes[fiber.source].given;
    } else {
      fiber.received = votes;
    }
    if (&fiber != &engine.self()) {
      fiber.state = State::ready;
      engine.ready.push_back(fiber.id);
    }
  }
  // Only __syncwarp orders memory among the lanes; a shuffle moves registers.
  if (group.what == Collective::sync) warp_passed(warp, group.mask);
  return engine.self().received;
}

}  // namespace

void forget_warps(int threads) {
  for (int warp = 0; warp * WARP < threads; warp++) pending[warp].clear();
}

void lane_exits() {
  const int own = lane();
  for (const Group& group : pending[engine.running / WARP])
    if (group.mask >> own & 1u)
      engine.fail(std::string(name(group.what)) + ": lane " + std::to_string(own) + " of the mask has exited, " +
                  engine.where(engine.self()) + "; others wait for it");
}

int lane() { return engine.running % WARP; }

uint64_t collective(Collective what, unsigned mask, uint64_t value, int source, const char* file, int line) {
  Fiber& self = engine.self();
  const int warp = self.id / WARP, own = self.id % WARP;
  self.given = value, self.source = source, self.file = file, self.line = line;
  auto& groups = pending[warp];
  size_t found = 0;
  while (found < groups.size() && groups[found].mask != mask) found++;
  if (found == groups.size()) {
    check_mask(what, mask, warp, own, site(file, line));
    for (const Group& group : groups)
      if (group.mask & mask)
        engine.fail("lanes of one warp call with overlapping masks " + hex(group.mask) + " and " + hex(mask) + " at " +
                    site(file, line));
    groups.push_back({what, mask, 0});
  }
  Group& group = groups[found];
  if (!(mask >> own & 1u)) check_mask(what, mask, warp, own, site(file, line));
  if (group.what != what)
    engine.fail(std::string("lanes of one warp wait in a ") + name(group.what) + " and in a " + name(what) + " at " +
                site(file, line));
  group.arrived |= 1u << own;
  if (group.arrived != mask) {
    self.state = State::warp;
    engine.leave();
    return self.received;
  }
  const Group complete = group;
  groups.erase(groups.begin() + (long)found);
  return resolve(complete, warp);
}

void barrier(const char* file, int line) {
  Fiber& self = engine.self();
  self.file = file, self.line = line, self.state = State::barrier;
  if (engine.finished > 0)
    engine.fail("barrier divergence: " + engine.where(self) + " waits in __syncthreads at " + site(file, line) + " and " +
                std::to_string(engine.finished) + " of " + std::to_string(engine.threads) +
                " threads have exited already");
  if (++engine.waiting == engine.threads) {
    for (int id = 0; id < engine.threads; id++) {
      Fiber& fiber = engine.fibers[id];
      if (fiber.line != line || (fiber.file != file && strcmp(fiber.file, file) != 0))
        engine.fail("barrier divergence: " + engine.where(self) + " waits at " + site(file, line) + ", " +
                    engine.where(fiber) + " at " + site(fiber.file, fiber.line));
      fiber.state = State::ready;
      engine.ready.push_back(fiber.id);
    }
    engine.waiting = 0;
    barrier_passed();
  }
  engine.leave();
}

}  // namespace cuemu
