// The steps by which all workers get the sum of a vector of which each has a summand. Pure.
//
// Every element is summed in one order, at one worker at a time, and then copied: so all workers
// hold the same bits, in every run. Sources: FireCaffe (Iandola et al., CVPR 2016) for the tree;
// Patarasuk and Yuan (JPDC 2009) for the ring; Rabenseifner (ICCS 2004) and Thakur et al. (IJHPCA
// 2005) for halving and doubling.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "shoal/parallel/exchange/way.h"

namespace shoal::parallel {

// Some numbers of the vector that one worker sends another.
struct Transfer {
  int round = 0;
  int from = 0, to = 0;              // workers
  std::size_t first = 0, count = 0;  // the numbers first ... first + count - 1
  // The receiver adds them to its own; otherwise they replace its own.
  bool adds = false;
};

// Returns all transfers of a collective way, in the order of rounds; none without numbers. In a
// round a worker first sends all its transfers, then takes those that it receives, in this order.
// TREE: worker w's children are 2w + 1 and 2w + 2. DIRECT: part p of the vector is summed at worker
// p. HALVING_DOUBLING: where `workers` is no power of two, those beyond the largest one below it
// add to a partner first, and get the sum from it last.
std::vector<Transfer> transfers_of(Way way, int workers, std::size_t count);

// The work of a collective for each number of a long vector, and its messages that wait for each
// other.
struct Load {
  double busiest = 0;  // the most that one worker sends, or receives
  double in_turn = 0;  // the sum over rounds of the most that one worker sends, or receives, in it
  int rounds = 0;
};
Load load_of(Way way, int workers);

// Returns the parts of a vector that go through all transfers one beside the other, so that links
// stay busy while sums travel: the start of each part, in order, and at the end `count`.
std::vector<std::size_t> strips_of(Way way, int workers, std::size_t count);

// A worker's part of a transfer.
struct Step {
  std::size_t transfer = 0;  // counts those of all strips, in their order
  std::size_t index = 0;     // counts the worker's steps
  bool sends = false, adds = false;
  std::size_t first = 0, count = 0;  // of the whole vector
  // For a step that adds: how many such steps just before it add to the same numbers, and whether
  // the next one does.
  std::size_t together = 0;
  bool more = false;
};
using Strip = std::vector<Step>;
// Returns, by worker, the steps of each strip, in the order in which the worker carries them out.
std::vector<std::vector<Strip>> steps_of(Way way, int workers, std::size_t count);

// Tracks a worker's progress in its steps. A few strips are under way at a time, and do not wait
// for each other; the next one begins when one of them is done.
class StepsDone {
 public:
  // `strips` outlive it. There is nothing to do before restart().
  explicit StepsDone(const std::vector<Strip>& strips) : strips_(strips), next_(strips.size()) {}
  void restart();
  // Carries out step after step of each strip until `act` returns false, where one has to wait.
  void advance(const std::function<bool(const Step&)>& act);
  bool is_done() const { return unfinished_ == 0; }
  // Returns the step for which the first unfinished strip waits.
  const Step& awaited() const;

 private:
  const std::vector<Strip>& strips_;
  std::vector<std::size_t> next_;  // by strip
  std::size_t unfinished_ = 0;     // strips
};

}  // namespace shoal::parallel
