// Clients, shards and schemes on a simulated network with every kind of fault, by seed; what is
// promised is checked on each history:
//   I1  an acknowledged push is applied exactly once            I2  a read has all it must have,
//   and the reader's own I3  a row's version rises by one an update, and says what is in it I5  BSP
//   gives the bits of a run without faults              I6  nobody waits longer than the limit I7
//   a next generation begins with what the last ended with   I8  what waits in queues is bounded
// One history: `tests/all --seed=N --gtest_filter=Faults.*`. More of them: `--seeds=N` (`make
// soak`).
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/simulated_cluster.h"

namespace shoal::table::faults_test {
namespace {

constexpr std::uint64_t kSeeds = 10'000;

// A number from the environment, where main() puts its flags.
std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* words = std::getenv(name);
  return words == nullptr ? otherwise : std::strtoull(words, nullptr, 10);
}

// "" or what a history did not keep.
std::string broken_promise(std::uint64_t seed, ClusterRun& run) {
  const ClusterCase one = draw_case(seed);
  run = run_cluster(one);
  if (!run.wrong.empty()) return run.wrong;
  if (one.staleness != 0) return "";
  const ClusterRun calm = run_cluster(without_faults(one));
  if (!calm.wrong.empty()) return "without faults: " + calm.wrong;
  const std::string different = difference(run.reads, calm.reads);
  if (!different.empty()) return "I5: " + different + " is not as without faults";
  if (!one.next || one.next->staleness != 0) return "";
  const std::string later = difference(run.next_reads, calm.next_reads);
  return later.empty() ? "" : "I5: in the second generation " + later + " is not as without faults";
}

// The seed that each core is trying, for a CHECK or a crash that ends the process.
class Trying {
 public:
  static constexpr std::size_t kMost = 64;
  static std::atomic<std::uint64_t>& seed(std::size_t core) {
    static std::atomic<std::uint64_t> seeds[kMost];
    return seeds[core % kMost];
  }
  static void say(int signal) {
    for (std::size_t core = 0; core < kMost; ++core) {
      if (const std::uint64_t seed = Trying::seed(core))
        std::fprintf(stderr, "while trying --seed=%llu\n", static_cast<unsigned long long>(seed));
    }
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
};

// Many histories, on all cores.
class Trial {
 public:
  Trial(std::uint64_t first, std::uint64_t count)
      : next_(first), end_(first + count), count_(count) {}

  void run() {
    std::vector<std::jthread> threads;
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const auto before_abort = std::signal(SIGABRT, Trying::say),
               before_crash = std::signal(SIGSEGV, Trying::say);
    for (unsigned core = 0; core < cores; ++core)
      threads.emplace_back([this, core] { try_seeds(Trying::seed(core)); });
    threads.clear();
    std::signal(SIGABRT, before_abort);
    std::signal(SIGSEGV, before_crash);
  }
  const std::map<std::uint64_t, std::string>& wrong() const { return wrong_; }
  const ClusterRun& sum() const { return sum_; }
  std::uint64_t tried() const { return tried_; }

 private:
  void try_seeds(std::atomic<std::uint64_t>& trying) {
    for (std::uint64_t seed = next_++; seed < end_; seed = next_++) {
      ClusterRun run;
      trying = seed;
      const std::string broken = broken_promise(seed, run);
      const std::lock_guard lock(mutex_);
      if (!broken.empty()) {
        wrong_[seed] = broken;
        if (wrong_.size() >= 5) next_ = end_;
      }
      sum_.frames += run.frames;
      sum_.lost += run.lost;
      sum_.resets += run.resets;
      sum_.repeated += run.repeated;
      sum_.late += run.late;
      if (++tried_ % 50'000 == 0) {
        std::printf("%llu of %llu histories, %zu wrong\n", static_cast<unsigned long long>(tried_),
                    static_cast<unsigned long long>(count_), wrong_.size());
        std::fflush(stdout);
      }
    }
    trying = 0;
  }

  std::atomic<std::uint64_t> next_;  // seed
  const std::uint64_t end_, count_;
  std::mutex mutex_;
  std::uint64_t tried_ = 0;
  std::map<std::uint64_t, std::string> wrong_;
  ClusterRun sum_;
};

TEST(Faults, EveryHistoryKeepsWhatIsPromised) {
  const std::uint64_t one = number_from("SHOAL_TEST_SEED", 0);
  Trial trial(one == 0 ? number_from("SHOAL_TEST_FIRST_SEED", 1) : one,
              one == 0 ? number_from("SHOAL_TEST_SEEDS", kSeeds) : 1);
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
}

}  // namespace
}  // namespace shoal::table::faults_test
