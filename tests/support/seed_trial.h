// Tries a check on many seeds, on all cores, or on the one that --seed names.
#pragma once

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

namespace shoal::table {

// Returns a number from the environment, where main() puts its flags.
inline std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* words = std::getenv(name);
  return words == nullptr ? otherwise : std::strtoull(words, nullptr, 10);
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

// Tries many histories, on all cores.
class Trial {
 public:
  // Returns "" or what is wrong with the history of a seed.
  using Broken = std::string (*)(std::uint64_t seed, ClusterRun& run);
  // Tries as many seeds as --seeds says, or `usual`. A seed with `histories` of them counts as so
  // many seeds of --seeds.
  Trial(Broken broken, std::uint64_t usual, std::uint64_t histories = 1)
      : broken_(broken),
        next_(one() == 0 ? number_from("SHOAL_TEST_FIRST_SEED", 1) : one()),
        count_(one() == 0 ? (number_from("SHOAL_TEST_SEEDS", usual * histories) + histories - 1) /
                                histories
                          : 1),
        end_(next_ + count_) {}

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
  static std::uint64_t one() { return number_from("SHOAL_TEST_SEED", 0); }
  void try_seeds(std::atomic<std::uint64_t>& trying) {
    for (std::uint64_t seed = next_++; seed < end_; seed = next_++) {
      ClusterRun run;
      trying = seed;
      const std::string broken = broken_(seed, run);
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
      sum_.losses += run.losses;
      sum_.messages += run.messages;
      if (++tried_ % 50'000 == 0) {
        std::printf("%llu of %llu histories, %zu wrong\n", static_cast<unsigned long long>(tried_),
                    static_cast<unsigned long long>(count_), wrong_.size());
        std::fflush(stdout);
      }
    }
    trying = 0;
  }

  const Broken broken_;
  std::atomic<std::uint64_t> next_;  // seed
  const std::uint64_t count_, end_;
  std::mutex mutex_;
  std::uint64_t tried_ = 0;
  std::map<std::uint64_t, std::string> wrong_;
  ClusterRun sum_;
};

}  // namespace shoal::table
