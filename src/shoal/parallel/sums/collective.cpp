#include "shoal/parallel/sums/collective.h"

#include <algorithm>
#include <bit>

#include "shoal/base/log.h"
#include "shoal/table/placement.h"

namespace shoal::parallel {
namespace {

// Strips under way at one time: enough to keep a link busy while sums travel, and few enough that a
// fresh sum is sent while a cache holds it.
constexpr std::size_t kStripsAtOnce = 16;

using Transfers = std::vector<Transfer>;

void add(Transfers& all, int round, int from, int to, std::size_t first, std::size_t end,
         bool adds) {
  if (first < end) all.push_back({round, from, to, first, end - first, adds});
}

// Returns the level of a worker in the tree; worker 0's is 0.
int level_of(int worker) { return std::bit_width(static_cast<unsigned>(worker) + 1) - 1; }

void tree(Transfers& all, int workers, std::size_t count) {
  const int deepest = level_of(workers - 1);
  for (int worker = 1; worker < workers; ++worker) {
    const int parent = (worker - 1) / 2, level = level_of(worker);
    add(all, deepest - level, worker, parent, 0, count, true);
    add(all, deepest + level - 1, parent, worker, 0, count, false);
  }
}

// Returns the first number of a part, of which there are as many as workers.
std::size_t begin_of(int part, int workers, std::size_t count) {
  return count * static_cast<std::size_t>(part) / static_cast<std::size_t>(workers);
}

// Adds the transfers of a ring. Part p is complete at worker p - 1, after it came past all others.
void ring(Transfers& all, int workers, std::size_t count) {
  for (int round = 0; round < 2 * (workers - 1); ++round)
    for (int worker = 0; worker < workers; ++worker) {
      const int part = (worker - round + 2 * workers) % workers;
      add(all, round, worker, (worker + 1) % workers, begin_of(part, workers, count),
          begin_of(part + 1, workers, count), round < workers - 1);
    }
}

struct Range {
  std::size_t first = 0, end = 0;
};

// Returns the part that a worker keeps when its halves were exchanged over all distances down to
// `least`.
Range kept_by(int worker, int distance, int least, Range part) {
  for (; distance >= least; distance /= 2) {
    const std::size_t middle = part.first + (part.end - part.first) / 2;
    ((worker & distance) != 0 ? part.first : part.end) = middle;
  }
  return part;
}

void halving_doubling(Transfers& all, int workers, std::size_t count) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(workers)));
  const int rounds = std::bit_width(static_cast<unsigned>(core)) - 1;
  const int last = 2 * rounds + 1;
  for (int worker = core; worker < workers; ++worker) {
    add(all, 0, worker, worker - core, 0, count, true);
    add(all, last, worker - core, worker, 0, count, false);
  }
  for (int worker = 0; worker < core; ++worker)
    for (int round = 0; round < rounds; ++round) {
      const int distance = core >> (round + 1), partner = worker ^ distance;
      const Range given = kept_by(partner, core / 2, distance, {0, count}),
                  own = kept_by(worker, core / 2, distance, {0, count});
      add(all, 1 + round, worker, partner, given.first, given.end, true);
      add(all, last - 1 - round, worker, partner, own.first, own.end, false);
    }
}

// Adds direct transfers. Part p is summed at worker p. Workers begin with their neighbours, so that
// no worker is sent everything at the same time.
void direct(Transfers& all, int workers, std::size_t count) {
  const auto begin = [&](int part) { return begin_of(part, workers, count); };
  for (int distance = 1; distance < workers; ++distance)
    for (int worker = 0; worker < workers; ++worker) {
      const int other = (worker + distance) % workers;
      add(all, 0, worker, other, begin(other), begin(other + 1), true);
      add(all, 1, worker, other, begin(worker), begin(worker + 1), false);
    }
}

// Fills in Step::together and Step::more.
void find_together(Strip& strip) {
  for (std::size_t i = 1; i < strip.size(); ++i) {
    Step &before = strip[i - 1], &step = strip[i];
    if (!step.adds || !before.adds || step.sends || before.sends || step.first != before.first)
      continue;
    step.together = before.together + 1;
    before.more = true;
  }
}

Load tree_load(int workers) {
  const int levels = std::bit_width(static_cast<unsigned>(workers)) - 1;
  // A parent of two that is not the root has them, or itself and a parent, on the same link.
  const double up = workers == 2 ? 1 : 2;
  return {
      .busiest = workers >= 5 ? 3.0 : up,
      .in_turn = 2 * up * (levels - 1) + 2.0 * (std::has_single_bit(unsigned(workers)) ? 1 : up),
      .rounds = 2 * levels};
}

}  // namespace

std::vector<Transfer> transfers_of(Way way, int workers, std::size_t count) {
  CHECK(is_collective(way) && workers > 0) << name_of(way) << " of " << workers << " workers";
  Transfers all;
  if (workers == 1) return all;
  const auto schedule = way == Way::kTree     ? tree
                        : way == Way::kRing   ? ring
                        : way == Way::kDirect ? direct
                                              : halving_doubling;
  schedule(all, workers, count);
  std::ranges::stable_sort(all, {}, &Transfer::round);
  return all;
}

// Cuts strips. Transfers are as long as rows of the table: two of them fill the window of a link,
// so that none waits for the one before it to arrive. The largest of halves is half of a strip.
// Strips are longer where a plan would get too many rows.
std::vector<std::size_t> strips_of(Way way, int workers, std::size_t count) {
  constexpr std::size_t kMostRows = 1u << 17;
  const auto all = static_cast<std::size_t>(workers);
  const bool has_parts = way == Way::kRing || way == Way::kDirect;
  const std::size_t parts = has_parts ? all : 1;
  const std::size_t transfers = 2 * all *
                                (has_parts           ? all
                                 : way == Way::kTree ? 1
                                                     : std::bit_width(all));
  std::size_t length = (way == Way::kHalvingDoubling ? 2 : 1) * table::kRowFloats;
  while (length < table::kMaxRowFloats && count / (length * parts) * transfers > kMostRows)
    length *= 2;
  std::vector<std::size_t> begins;
  for (std::size_t at = 0; at < count; at += length * parts) begins.push_back(at);
  begins.push_back(count);
  return begins;
}

std::vector<std::vector<Strip>> steps_of(Way way, int workers, std::size_t count) {
  const std::vector<std::size_t> begins = strips_of(way, workers, count);
  std::vector<std::vector<Strip>> by_worker(static_cast<std::size_t>(workers),
                                            std::vector<Strip>(begins.size() - 1));
  std::vector<std::size_t> steps(by_worker.size());
  std::size_t transfer = 0;
  for (std::size_t strip = 0; strip + 1 < begins.size(); ++strip) {
    const std::vector<Transfer> all = transfers_of(way, workers, begins[strip + 1] - begins[strip]);
    const auto add = [&](const Transfer& one, std::size_t number, bool sends) {
      const auto worker = static_cast<std::size_t>(sends ? one.from : one.to);
      by_worker[worker][strip].push_back({.transfer = transfer + number,
                                          .index = steps[worker]++,
                                          .sends = sends,
                                          .adds = one.adds,
                                          .first = begins[strip] + one.first,
                                          .count = one.count});
    };
    for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
      while (end < all.size() && all[end].round == all[first].round) ++end;
      for (const bool sends : {true, false})
        for (std::size_t i = first; i < end; ++i) add(all[i], i, sends);
    }
    transfer += all.size();
  }
  for (std::vector<Strip>& strips : by_worker) std::ranges::for_each(strips, find_together);
  return by_worker;
}

void StepsDone::restart() {
  std::ranges::fill(next_, 0);
  unfinished_ = strips_.size();
}

void StepsDone::advance(const std::function<bool(const Step&)>& act) {
  if (is_done()) return;
  unfinished_ = 0;
  for (std::size_t strip = 0; strip < strips_.size(); ++strip) {
    std::size_t& next = next_[strip];
    while (unfinished_ < kStripsAtOnce && next < strips_[strip].size() && act(strips_[strip][next]))
      ++next;
    unfinished_ += next < strips_[strip].size();
  }
}

const Step& StepsDone::awaited() const {
  CHECK(!is_done()) << "no step is left";
  std::size_t strip = 0;
  while (next_[strip] == strips_[strip].size()) ++strip;
  return strips_[strip][next_[strip]];
}

// ---- costs ----

// The tests check these against the transfers themselves.
Load load_of(Way way, int workers) {
  if (workers < 2) return {};
  const double all = workers;
  if (way == Way::kTree) return tree_load(workers);
  if (way == Way::kRing || way == Way::kDirect)
    return {.busiest = 2 * (all - 1) / all,
            .in_turn = 2 * (all - 1) / all,
            .rounds = way == Way::kDirect ? 2 : 2 * (workers - 1)};
  CHECK(way == Way::kHalvingDoubling) << name_of(way) << " is no collective";
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(workers)));
  const int levels = static_cast<int>(std::bit_width(static_cast<unsigned>(core))) - 1;
  const double halves = 2.0 * (core - 1) / core;
  const bool folds = workers > core;
  return {.busiest = halves + (folds ? 1 : 0),
          .in_turn = halves + (folds ? 2 : 0),
          .rounds = 2 * levels + (folds ? 2 : 0)};
}

}  // namespace shoal::parallel
