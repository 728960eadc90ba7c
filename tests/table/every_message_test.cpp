// Loses a process of small jobs just before and just after each message that is delivered, under
// each scheme: a worker that dies, a worker that lives on and hears of nothing, a server, or both
// roles at once; with and without second copies; and with a second loss during the recovery.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "support/schemes.h"
#include "support/seed_trial.h"
#include "support/simulated_cluster.h"

namespace shoal::table::every_message_test {
namespace {

struct Small {
  const char* scheme;
  Clock staleness = kUnbounded;
  bool exact = false;  // each number that is read tells which pushes are in it
  float clip = -1;
};
constexpr Small kSchemes[] = {{"bsp", 0, true},
                              {"bsp", 0, true, 1e9f},
                              {"bsp", 0, false, 0.01f},
                              {"ssp 1", 1, true},
                              {"async", kUnbounded, true},
                              {"dc_asgd"},
                              {"drift_barrier 1"},
                              {"elastic"},
                              {"esync"},
                              {"grouped groups=0,1|2"},
                              {"local_steps"},
                              {"sync_backup backup=1"},
                              {"weed_out max_version_lag=2"}};
constexpr Loss kVictims[] = {
    {.worker = 1}, {.worker = 1, .lives = true}, {.server = 1}, {.worker = 1, .server = 1}};
// Server 2 has the copies of server 1: with both some rows are gone.
constexpr Loss kSecond[] = {
    {.worker = 2}, {.server = 3}, {.worker = 2, .server = 3}, {.server = 2}};
constexpr std::uint64_t kJobs = 2 * std::size(kVictims) * std::size(kSchemes);

// Returns the job of a seed: the first kJobs seeds have all jobs, on a network without faults.
ClusterCase small_job(std::uint64_t seed) {
  const std::uint64_t number = (seed - 1) % kJobs;
  const auto& [scheme, staleness, exact, clip] = kSchemes[number % std::size(kSchemes)];
  ClusterCase one;
  one.seed = seed;
  one.plan.scheme = scheme_of(scheme);
  one.plan.clip = clip;
  one.plan.workers = 3;
  one.plan.servers = 4;
  one.plan.copies = 1 + number / (kJobs / 2);
  for (std::uint16_t server = 0; server < one.plan.servers; ++server)
    one.plan.rows.edit().push_back(
        {.length = one.plan.workers + kFractions, .priority = server, .server = server});
  one.staleness = staleness;
  one.exact = exact;
  one.stops.assign(one.plan.workers, 2);
  one.losses = {kVictims[number / std::size(kSchemes) % std::size(kVictims)]};
  one.network.link.latency = std::chrono::milliseconds(1);
  one.network.link.jitter = std::chrono::milliseconds(1);
  Random random(seed, 8);
  if (seed > kJobs) one.network = draw_network(random);
  return one;
}

// Returns "" or the promise that a run breaks. `calm` is the run without a loss.
std::string broken_by(const ClusterCase& one, const ClusterRun& calm, ClusterRun& sum) {
  const ClusterRun run = run_cluster(one);
  sum.frames += run.frames;
  sum.losses += run.losses;
  ++sum.messages;
  if (!run.wrong.empty()) return run.wrong;
  const auto loses = [&](int Loss::*role, int number) {
    return std::ranges::count(one.losses, number, role) > 0;
  };
  const bool keeps_rows =
      one.plan.copies == 2 && !(loses(&Loss::server, 1) && loses(&Loss::server, 2));
  if (run.ended) return keeps_rows ? "the job ends, though no row is lost" : "";
  const bool keeps_workers = !loses(&Loss::worker, 1) && !loses(&Loss::worker, 2);
  if (one.staleness != 0 || !keeps_rows || !keeps_workers) return "";
  const std::string different = difference(run.reads, calm.reads);
  return different.empty() ? "" : "I5: " + different + " is not as without a loss";
}

// Tries all losses of a seed's job. Returns "" or the first that breaks a promise.
std::string broken_promise(std::uint64_t seed, ClusterRun& sum) {
  ClusterCase one = small_job(seed);
  const Loss first = one.losses.at(0);
  ClusterCase without = one;
  without.losses.clear();
  const ClusterRun calm = run_cluster(without);
  if (!calm.wrong.empty()) return "without a loss: " + calm.wrong;
  for (std::uint64_t message = 1; message <= calm.messages; ++message)
    for (const bool before : {true, false}) {
      one.losses = {first};
      one.losses[0].message = message;
      one.losses[0].before = before;
      Random random(seed, 9 + 2 * message + before);
      one.losses[0].breaks = random.below(2) == 0;
      std::string broken = broken_by(one, calm, sum);
      if (broken.empty()) {
        one.losses.push_back(kSecond[random.below(std::size(kSecond))]);
        if (random.below(2) == 0)
          one.losses[1].message = message + 1 + random.below(calm.messages / 2);
        else
          one.losses[1].at = std::chrono::microseconds(random.below(100'000));
        broken = broken_by(one, calm, sum);
      }
      if (!broken.empty()) return broken + "\n  " + describe(one);
    }
  return "";
}

TEST(Faults, ALossAtAnyMessageKeepsWhatIsPromised) {
  Trial trial(broken_promise, kJobs, 1000);
  trial.run();
  for (const auto& [seed, broken] : trial.wrong())
    ADD_FAILURE() << broken << "\n  again: --seed=" << seed;
  const ClusterRun& sum = trial.sum();
  std::printf("%llu jobs, %llu histories with %llu losses\n",
              static_cast<unsigned long long>(trial.tried()),
              static_cast<unsigned long long>(sum.messages),
              static_cast<unsigned long long>(sum.losses));
  EXPECT_GT(sum.losses, 100 * trial.tried());
}

}  // namespace
}  // namespace shoal::table::every_message_test
