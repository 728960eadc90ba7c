// Clients, shards and schemes on a simulated network with every kind of fault, by seed; what is
// promised is checked on each history:
//   I1  an acknowledged push is applied exactly once            I2  a read has all it must have,
//   and the reader's own I3  a row's version rises by one an update, and says what is in it I5  BSP
//   gives the bits of a run without faults              I6  nobody waits longer than the limit I7
//   a next generation begins with what the last ended with   I8  what waits in queues is bounded
// One history: `tests/all --seed=N --gtest_filter=Faults.*`. More of them: `--seeds=N` (`make
// soak`).
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "support/seed_trial.h"
#include "support/simulated_cluster.h"

namespace shoal::table::faults_test {
namespace {

constexpr std::uint64_t kSeeds = 10'000;

// "" or what a history did not keep.
std::string broken_promise(std::uint64_t seed, ClusterRun& run) {
  const ClusterCase one = draw_case(seed);
  run = run_cluster(one);
  if (!run.wrong.empty()) return run.wrong;
  if (one.staleness != 0 || (!one.losses.empty() && one.losses[0].worker >= 0)) return "";
  const ClusterRun calm = run_cluster(without_faults(one));
  if (!calm.wrong.empty()) return "without faults: " + calm.wrong;
  const std::string different = difference(run.reads, calm.reads);
  if (!different.empty()) return "I5: " + different + " is not as without faults";
  if (!one.next || one.next->staleness != 0) return "";
  const std::string later = difference(run.next_reads, calm.next_reads);
  return later.empty() ? "" : "I5: in the second generation " + later + " is not as without faults";
}

TEST(Faults, EveryHistoryKeepsWhatIsPromised) {
  Trial trial(broken_promise, kSeeds);
  trial.run();
  for (const auto& [seed, broken] : trial.wrong())
    ADD_FAILURE() << broken << "\n  " << describe(draw_case(seed)) << "\n  again: --seed=" << seed;
  const ClusterRun& sum = trial.sum();
  std::printf(
      "%llu histories: %llu frames, %llu lost, %llu connections broken, %llu pushes came again, "
      "%llu messages after their generation\n",
      static_cast<unsigned long long>(trial.tried()), static_cast<unsigned long long>(sum.frames),
      static_cast<unsigned long long>(sum.lost), static_cast<unsigned long long>(sum.resets),
      static_cast<unsigned long long>(sum.repeated), static_cast<unsigned long long>(sum.late));
  if (trial.tried() < kSeeds) return;  // too few to say
  EXPECT_GT(sum.lost, trial.tried());  // the faults that are asked for happen
  EXPECT_GT(sum.resets, trial.tried() / 10);
  EXPECT_GT(sum.repeated, trial.tried() / 10);
  EXPECT_GT(sum.late, trial.tried() / 10);
  EXPECT_GT(sum.losses, trial.tried() / 20);
}

}  // namespace
}  // namespace shoal::table::faults_test
