// Runs every test, or those of --gtest_filter=..., and ends with one plain line, alone: "N passed,
// N failed, N skipped". Before it are the names of the skipped tests and once more the messages of
// the failed ones, so that the end of a long log says why.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/base/log.h"

namespace shoal::test {

// Null in tests/table, which has no kernels. Defined in support/cpu_kernels.cpp.
[[gnu::weak]] void hold_kernels(char** argv, const char* name);

}  // namespace shoal::test

namespace {

struct Tally {
  int passed = 0;
  std::vector<std::string> skipped, failed;             // names; messages
  std::vector<std::pair<double, std::string>> seconds;  // of each test that ran
};

// "Suite.Name at file:line: the first lines of what it said", of its first failure.
std::string first_failure(const std::string& name, const testing::TestResult& result) {
  constexpr std::size_t kMost = 1500;  // characters; a message may hold a whole log
  for (int p = 0; p < result.total_part_count(); ++p) {
    const testing::TestPartResult& part = result.GetTestPartResult(p);
    if (!part.failed()) continue;
    std::string said = part.message();
    if (said.size() > kMost)
      said = said.substr(0, kMost / 2) + "\n[...]\n" + said.substr(said.size() - kMost / 2);
    return name + " at " + (part.file_name() ? part.file_name() : "?") + ":" +
           std::to_string(part.line_number()) + ": " + said;
  }
  return name;
}

Tally tally(const testing::UnitTest& run) {
  Tally result;
  for (int s = 0; s < run.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *run.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (!test.should_run()) continue;
      const std::string name = std::string(suite.name()) + "." + test.name();
      result.seconds.emplace_back(static_cast<double>(test.result()->elapsed_time()) / 1000, name);
      if (test.result()->Skipped())
        result.skipped.push_back(name);
      else if (test.result()->Passed())
        ++result.passed;
      else
        result.failed.push_back(first_failure(name, *test.result()));
    }
  }
  return result;
}

// --seed=N replays one history of the tests that try many by seed, --seeds=N tries that many,
// --first_seed=N begins there; these tests read the values from the environment. --slowest=N
// lists the N tests that took longest. Returns false if another word is there.
bool read_flags(int argc, char** argv) {
  constexpr struct {
    std::string_view flag;
    const char* name;
  } kFlags[] = {{"--seed=", "SHOAL_TEST_SEED"},
                {"--seeds=", "SHOAL_TEST_SEEDS"},
                {"--first_seed=", "SHOAL_TEST_FIRST_SEED"},
                {"--slowest=", "SHOAL_TEST_SLOWEST"}};
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    bool known = false;
    for (const auto& [flag, name] : kFlags) {
      if (!word.starts_with(flag)) continue;
      setenv(name, argv[i] + flag.size(), 1);
      known = true;
    }
    if (!known) {
      std::fprintf(stderr,
                   "unknown flag %s; known: --seed=N, --seeds=N, --first_seed=N, --slowest=N and "
                   "gtest's\n",
                   argv[i]);
      return false;
    }
  }
  return true;
}

// The tests that took longest, the slowest first.
void print_slowest(Tally& tally) {
  const char* const count = std::getenv("SHOAL_TEST_SLOWEST");
  if (count == nullptr) return;
  std::ranges::sort(tally.seconds, std::greater{});
  tally.seconds.resize(
      std::min(tally.seconds.size(), std::size_t{std::strtoul(count, nullptr, 10)}));
  for (const auto& [seconds, name] : tally.seconds)
    std::printf("slow: %8.2f s %s\n", seconds, name.c_str());
}

// Starts the program again with OpenMP's threads asleep while they wait, for tests run side by side
// on few cores: a thread that spins keeps the one it waits for off its core (the conformance tests
// of layers took five times as long). OpenMP reads the variable before main begins. The programs
// that tests start do not have it.
void sleep_while_waiting(char** argv) {
  constexpr const char* kPolicy = "OMP_WAIT_POLICY";
  constexpr const char* kIsSet = "SHOAL_TEST_WAITS_ASLEEP";
  if (std::getenv(kIsSet) != nullptr) {
    ::unsetenv(kPolicy);
    ::unsetenv(kIsSet);
  } else if (std::getenv(kPolicy) == nullptr) {
    ::setenv(kPolicy, "passive", 1);
    ::setenv(kIsSet, "1", 1);
    ::execv("/proc/self/exe", argv);  // returns only if it fails: all is as it was but slower
  }
}

}  // namespace

// The variable SHOAL_CPU_KERNELS holds the kernels of the tests, and those of the tools that they
// run, as --cpu_kernels does.
int main(int argc, char** argv) {
  sleep_while_waiting(argv);
  shoal::start_log(argv[0]);
  const char* const kernels = std::getenv("SHOAL_CPU_KERNELS");
  if (kernels != nullptr && shoal::test::hold_kernels != nullptr)
    shoal::test::hold_kernels(argv, kernels);
  testing::InitGoogleTest(&argc, argv);
  if (!read_flags(argc, argv)) return 2;
  const int code = RUN_ALL_TESTS();
  Tally result = tally(*testing::UnitTest::GetInstance());
  std::fflush(stderr);
  print_slowest(result);
  for (const std::string& name : result.skipped) std::printf("skipped: %s\n", name.c_str());
  for (const std::string& said : result.failed) std::printf("failed: %s\n", said.c_str());
  std::printf("%d passed, %zu failed, %zu skipped\n", result.passed, result.failed.size(),
              result.skipped.size());
  std::fflush(stdout);
  if (result.passed + static_cast<int>(result.failed.size()) == 0 &&
      !testing::GTEST_FLAG(list_tests)) {
    std::fprintf(stderr, "no test ran\n");
    return 1;
  }
  return code;
}
