// Draws the jobs that fault tests try: many small ones, of every kind.
#include <algorithm>

#include "shoal/base/random.h"
#include "shoal/table/placement.h"
#include "support/schemes.h"
#include "support/simulated_cluster.h"
#include "support/twice_codec.h"

namespace shoal::table {
namespace {

using namespace std::chrono_literals;

// Returns the rate of a fault: it is there in every other job, at most so often.
double some(Random& random, double most) { return random.below(2) == 0 ? 0 : random.unit() * most; }

void draw_scheme(Random& random, Segment& one) {
  struct Choice {
    const char* words;
    Clock staleness;
    float clip;
    bool exact;
  };
  constexpr Choice choices[] = {{"bsp", 0, -1, true},
                                {"ssp 0", 0, -1, true},
                                {"ssp 1", 1, -1, true},
                                {"ssp 3", 3, -1, true},
                                {"async", kUnbounded, -1, true},
                                {"bsp", 0, 1e9f, true},
                                {"bsp", 0, 1.f, false},
                                {"bsp", 0, -1, false}};
  const Choice& choice = choices[random.below(std::size(choices))];
  one.plan.scheme = scheme_of(choice.words);
  one.plan.clip = choice.clip;
  one.staleness = choice.staleness;
  one.exact = choice.exact;
  if (!one.exact)
    one.plan.rule = {.rule = random.below(2) == 0 ? optim::Rule::kAdam : optim::Rule::kSgd,
                     .momentum = 0.9f};
}

// Draws iterations that are left out, and rows that are read twice, in some jobs.
void draw_clocks(Random& random, Segment& one) {
  const double skips = some(random, 0.3), twice = some(random, 0.3);
  for (int worker = 0; worker < one.plan.workers; ++worker) {
    for (Clock clock = one.plan.start; clock < one.stops[static_cast<std::size_t>(worker)];
         ++clock) {
      if (random.unit() < skips) one.skipped.insert({worker, clock});
      if (random.unit() < twice) one.reads_twice.insert({worker, clock});
    }
  }
}

void draw_stops(Random& random, Segment& one) {
  const auto most = static_cast<std::uint64_t>(1 + random.below(kMostClocks));
  for (int worker = 0; worker < one.plan.workers; ++worker) {
    // Some workers retire early, or do nothing at all.
    const std::uint64_t least = random.below(4) == 0 ? random.below(most + 1) : most;
    one.stops.push_back(one.plan.start + static_cast<Clock>(least));
  }
}

// Draws clocks: workers without a bound go on each where it was.
void draw_begins(Random& random, Segment& one) {
  for (const Clock stop : one.stops)
    one.plan.clocks.push_back(
        one.plan.start +
        static_cast<Clock>(random.below(static_cast<std::uint64_t>(stop - one.plan.start) + 1)));
  one.plan.clocks[random.below(one.plan.clocks.size())] = one.plan.start;
}

// Sends some rows in another codec than float32 in half of the cases.
void draw_codecs(Random random, Segment& one) {
  if (random.below(2) == 0) return;
  one.plan.codecs = {{.id = test::kTwice}};
  for (Row& row : one.plan.rows.edit()) {
    if (random.below(2) == 0) row.push_codec = 1;
    if (random.below(2) == 0) row.pull_codec = 1;
  }
}

// Draws, after the first generation, one with another scheme, and perhaps with more workers or
// fewer. No worker retires at a change if that is not needed.
void draw_next(Random& random, ClusterCase& one) {
  Segment next;
  draw_scheme(random, next);
  next.plan.workers = static_cast<std::uint16_t>(1 + random.below(4));
  next.plan.servers = one.plan.servers;
  next.plan.generation = one.plan.generation + 1;
  next.plan.start = *std::ranges::max_element(one.stops);
  for (Row& row : one.plan.rows.edit())
    row.length = std::max(one.plan.workers, next.plan.workers) + kFractions;
  next.plan.rows = one.plan.rows;
  next.plan.codecs = one.plan.codecs;
  if (!one.exact && next.exact) next.exact = false;
  draw_stops(random, next);
  draw_clocks(random, next);
  const bool together =
      std::ranges::adjacent_find(one.stops, std::ranges::not_equal_to()) == one.stops.end();
  one.retires = !together && one.staleness != kUnbounded;
  if (next.staleness == kUnbounded && random.below(2) == 0) draw_begins(random, next);
  one.next = std::move(next);
}

// Draws second copies of rows, and in half of these jobs the loss of a process.
void draw_loss(Random random, ClusterCase& one) {
  if (one.plan.servers < 2 || random.below(3) == 0) return;
  one.plan.copies = 2;
  if (one.next) one.next->plan.copies = 2;
  if (random.below(2) == 0) return;
  Loss loss{.at = std::chrono::microseconds(random.below(random.below(2) == 0 ? 20'000 : 300'000))};
  if (random.below(3) > 0) loss.server = static_cast<int>(random.below(one.plan.servers));
  if (one.plan.workers > 1 && (loss.server < 0 || random.below(2) == 0))
    loss.worker = 1 + static_cast<int>(random.below(one.plan.workers - 1u));
  if (loss.server < 0 && loss.worker < 0) return;
  one.losses = {loss};
  one.next.reset();
}

}  // namespace

UnreliableLinkOptions draw_network(Random& random) {
  UnreliableLinkOptions network;
  network.link.latency = std::chrono::microseconds(10 + random.below(2000));
  network.link.jitter = std::chrono::microseconds(random.below(3000));
  const double bandwidths[] = {0, 0, 1e5, 1e6};
  network.link.bandwidth = bandwidths[random.below(4)];
  network.link.window = 64 + random.below(2000);
  network.faults.lose = some(random, 0.2);
  network.faults.repeat = some(random, 0.3);
  network.faults.reorder = some(random, 0.3);
  network.faults.delay = some(random, 0.2);
  network.faults.damage = some(random, 0.03);
  network.faults.reset = some(random, 0.05);
  network.faults.late = std::chrono::milliseconds(1 + random.below(300));
  network.faults.down = std::chrono::milliseconds(1 + random.below(200));
  return network;
}

ClusterCase draw_case(std::uint64_t seed) {
  Random random(seed, 0);
  ClusterCase one;
  one.seed = seed;
  draw_scheme(random, one);
  one.plan.workers = static_cast<std::uint16_t>(1 + random.below(4));
  one.plan.servers = static_cast<std::uint16_t>(1 + random.below(3));
  one.plan.start = random.below(3) == 0 ? static_cast<Clock>(random.below(1000)) : 0;
  one.plan.rows.edit().resize(one.plan.servers + random.below(4));
  for (RowId row = 0; row < one.plan.rows.size(); ++row) {
    one.plan.rows.edit()[row].length = one.plan.workers + kFractions;
    one.plan.rows.edit()[row].priority = row;
  }
  place(one.plan.rows.edit(), one.plan.servers);
  draw_codecs(Random(seed, 4), one);
  draw_stops(random, one);
  draw_clocks(random, one);
  one.order = random.below(4) == 0 ? Order::kArrival : Order::kPriority;
  one.compute = std::chrono::microseconds(random.below(4) == 0 ? 100'000 : 2'000);
  one.network = draw_network(random);
  if (Random more(seed, 3); more.below(2) == 0) draw_next(more, one);
  draw_loss(Random(seed, 5), one);
  return one;
}

ClusterCase without_faults(ClusterCase one) {
  one.network.faults = {};
  one.losses.clear();
  one.network.link.jitter = {};
  return one;
}

std::string describe(const ClusterCase& one) {
  const LinkFaults& faults = one.network.faults;
  std::string stops;
  for (const Clock stop : one.stops) stops += str(stops.empty() ? "" : ",", stop);
  std::string losses;
  for (const Loss& loss : one.losses)
    losses +=
        str(", worker ", loss.worker, " and server ", loss.server, " are lost ",
            loss.message == 0 ? str("after ", loss.at.count() / 1000, " us")
                              : str(loss.before ? "before" : "after", " message ", loss.message),
            loss.lives ? ", and live" : "", loss.breaks ? ", with what they have sent" : "");
  return str("seed ", one.seed, ": ", one.plan.scheme.words(), ", clip ", one.plan.clip, ", ",
             one.plan.workers, " workers from clock ", one.plan.start, " to ", stops, ", ",
             one.plan.servers, " servers, ", one.plan.rows.size(), " rows, ", one.skipped.size(),
             " iterations left out, ", one.reads_twice.size(), " read twice; lose ", faults.lose,
             ", repeat ", faults.repeat, ", reorder ", faults.reorder, ", delay ", faults.delay,
             ", damage ", faults.damage, ", reset ", faults.reset,
             one.plan.copies == 2 ? ", two copies" : "", losses,
             one.next ? str("; then ", one.next->plan.scheme.words(), ", clip ",
                            one.next->plan.clip, ", ", one.next->plan.workers, " workers")
                      : "");
}

}  // namespace shoal::table
