// Tests sums by MPI: the same bits at all ranks, jobs that train as by the table, and errors.
// Skipped by name where this build has no MPI or there is no mpirun.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "shoal/parallel/sums/mpi_sum.h"
#include "support/distributed_train.h"
#include "support/still_table.h"

namespace shoal::test::mpi_test {
namespace {

constexpr const char* kFails = "SHOAL_JOB_FAILS";    // set: so does the job of a rank's table
constexpr const char* kFolder = "SHOAL_SUMS_GO_TO";  // set: this program is a rank under mpirun
constexpr std::size_t kCounts[] = {1, 7, 1000, 300'001};
constexpr int kClocks = 3;

// Returns a command of mpirun without the search for leaks: Open MPI does not free everything, and
// AddressSanitizer would end each rank with an error for that.
std::vector<std::string> mpirun(int ranks, const std::vector<std::string>& more) {
  std::vector<std::string> words = {
      "/usr/bin/env", "ASAN_OPTIONS=detect_leaks=0", "mpirun",         "-n",
      str(ranks),     "--allow-run-as-root",         "--oversubscribe"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string why_skipped() {
  if (!parallel::why_no_mpi().empty()) return parallel::why_no_mpi();
  return run_program({"/usr/bin/env", "mpirun", "--version"}).code == 0 ? "" : "no mpirun is here";
}

// ---- a rank ----

// A sum asks no more than this of its table. The job lives, unless `status` is an error.
class Alive final : public StillTable {
 public:
  Alive(int worker, int workers, Status status = {})
      : StillTable(worker, workers), status_(std::move(status)) {}
  Status status() const override { return status_; }

 private:
  const Status status_;
};

float summand(int worker, int clock, std::size_t i) {
  return std::sin(static_cast<float>(i) + 0.1f * static_cast<float>(worker + 7 * clock));
}

// Makes several sums at a time, which each rank carries on in an order of its own.
void sum_as_rank(int rank, int ranks, const std::string& folder) {
  Alive table(rank, ranks);
  parallel::begin_mpi(table, "test");
  parallel::RowWaits waits(table);
  std::ofstream file(str(folder, "/", rank), std::ios::binary);
  std::vector<std::unique_ptr<parallel::VectorSum>> sums;
  for (const std::size_t count : kCounts) sums.push_back(parallel::make_mpi_sum(table, count));
  for (int clock = 0; clock < kClocks; ++clock) {
    for (const auto& sum : sums) {
      ASSERT_OK(sum->expect(clock, waits));
      for (std::size_t i = 0; i < sum->numbers().size(); ++i)
        sum->numbers()[i] = summand(rank, clock, i);
      sum->start();
    }
    for (std::size_t s = 0; s < sums.size(); ++s) {
      auto& sum = sums[(s + static_cast<std::size_t>(rank)) % sums.size()];
      for (; !sum->is_done(); sum->progress()) {
        ASSERT_OK(sum->wait(waits));
        for (const auto& other : sums) other->progress();
      }
    }
    for (const auto& sum : sums)
      file.write(reinterpret_cast<const char*>(sum->numbers().data()),
                 static_cast<std::streamsize>(sum->numbers().size_bytes()));
  }
  sums.clear();
  parallel::end_mpi();
}

TEST(Mpi, RanksHaveTheSameBitsInEveryRun) {
  if (const char* folder = std::getenv(kFolder))
    return sum_as_rank(std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")),
                       std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE")), folder);
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  for (const int ranks : {3, 4}) {
    std::string first;
    for (int run = 0; run < (ranks == 3 ? 2 : 1); ++run) {
      const std::string folder = fresh_directory("mpi");
      const Ran ran = run_program(mpirun(
          ranks, {"-x", str(kFolder, "=", folder), std::filesystem::read_symlink("/proc/self/exe"),
                  "--gtest_filter=Mpi.RanksHaveTheSameBitsInEveryRun"}));
      ASSERT_EQ(0, ran.code) << ran.out << ran.err;
      if (run == 0) first = get_file(folder + "/0");
      for (int rank = 0; rank < ranks; ++rank)
        ASSERT_TRUE(first == get_file(str(folder, "/", rank))) << ranks << " ranks, " << rank;
    }
    std::size_t at = 0;
    float worst = 0;
    for (int clock = 0; clock < kClocks; ++clock)
      for (const std::size_t count : kCounts)
        for (std::size_t i = 0; i < count; ++i, at += sizeof(float)) {
          float sum = 0, found = 0;
          for (int rank = 0; rank < ranks; ++rank) sum += summand(rank, clock, i);
          if (at + sizeof found > first.size()) break;
          std::memcpy(&found, first.data() + at, sizeof found);
          worst = std::max(worst, std::abs(sum - found));
        }
    EXPECT_EQ(at, first.size());
    EXPECT_LE(worst, 1e-5);
  }
}

// Starts two ranks, of which one never begins MPI.
TEST(Mpi, WaitForAnotherRankEndsWhenTheJobFails) {
  if (std::getenv(kFails) != nullptr)
    return parallel::begin_mpi(Alive(0, 2, Error{Code::kPeer, "worker 1 was lost"}), "test");
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const Ran ran = run_program(mpirun(
      1,
      {"-x", str(kFails, "=1"), std::filesystem::read_symlink("/proc/self/exe"),
       "--gtest_filter=Mpi.WaitForAnotherRankEndsWhenTheJobFails", ":", "-n", "1", "sleep", "60"}));
  EXPECT_EQ(static_cast<int>(Code::kPeer), ran.code);
  EXPECT_HAS(ran.err, "MPI_Init waited for all ranks: worker 1 was lost");
}

// ---- jobs ----

class MpiTrain : public DistributedTrain {
 protected:
  void SetUp() override {
    DistributedTrain::SetUp();
    if (IsSkipped()) return;
    if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  }
  static std::vector<std::string> command(int ranks, const std::string& solver,
                                          const std::vector<std::string>& more) {
    std::vector<std::string> words = mpirun(ranks, {"-x", "SHOAL_JOB_TOKEN=token-of-the-job"});
    for (const std::string& word : alone(solver, more)) words.push_back(word);
    return words;
  }
  // Returns the losses that a job has shown.
  static std::vector<double> losses(const std::string& log) {
    std::vector<double> all;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);)
      if (const std::size_t at = line.find("), loss = "); at != std::string::npos)
        all.push_back(std::stod(line.substr(at + 10)));
    return all;
  }
};

TEST_F(MpiTrain, TrainsAsTheTableDoes) {
  for (const char* more :
       {" clip_gradients: 0.5 iter_size: 2 scheme { iterations: 5 } scheme { base_lr: 0.01 }",
        " scheme { type: 'local_steps' local_steps: 2 }"}) {
    SCOPED_TRACE(more);
    const std::string path = solver(
        "job", plain_net(4), str("max_iter: 12 display: 1 snapshot_after_train: false", more));
    const Ran table = run_program(command(3, path, {})),
              mpi = run_program(command(3, path, {"--exchange=MPI"}));
    ASSERT_EQ(0, table.code) << table.err;
    ASSERT_EQ(0, mpi.code) << mpi.err;
    EXPECT_HAS(mpi.err, "Exchange: the gradients of all layers travel by MPI");
    const std::vector<double> wanted = losses(table.err), found = losses(mpi.err);
    ASSERT_EQ(wanted.size(), found.size());
    EXPECT_EQ(12u, found.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(wanted[i], found[i], 2e-5 * (1 + std::abs(wanted[i]))) << i;
  }
}

// The launcher, mpirun, ends the others, whose own errors name the lost process.
TEST_F(MpiTrain, EndsWithAnErrorWhenARankDies) {
  const std::string path = solver("killed", plain_net(4), "max_iter: 10000000 display: 100");
  const Running job = start_program(command(3, path, {"--exchange=MPI"}));
  ASSERT_TRUE(wait_for_text(job, "Iteration 100 "));
  std::istringstream ranks(
      get_file(str("/proc/", job.process, "/task/", job.process, "/children")));
  int last = 0;
  for (int rank = 0; ranks >> rank;) last = rank;
  ASSERT_GT(last, 0);
  ::kill(last, SIGKILL);
  const Ran ran = wait_for(job);
  EXPECT_NE(0, ran.code);
  EXPECT_HAS(ran.err, "lost");
}

TEST_F(MpiTrain, RefusesAJobThatMpiDoesNotKnow) {
  const std::string path = solver("refused", plain_net(4), "max_iter: 4");
  const auto ran = wait(start(2, path, {"--exchange=MPI"}));
  for (const Ran& process : ran) EXPECT_NE(0, process.code);
  EXPECT_HAS(ran[0].err + ran[1].err,
             "exchange MPI: MPI has 1 process, and the job has 2 workers. Its ranks are fixed");
}

}  // namespace
}  // namespace shoal::test::mpi_test
