// This file alone asks whether the build has MPI.
#include "shoal/parallel/sums/mpi_sum.h"

#include "shoal/base/bytes.h"
#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/base/mutex.h"

#if SHOAL_MPI

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "shoal/base/try.h"
#include "shoal/parallel/roster.h"

namespace shoal::parallel {
namespace {

// The longest delay of a worker in a live job for other reasons than its batch. The table gives up
// a silent process earlier, and its error ends a wait here.
constexpr std::chrono::minutes kPatience{30};

Status status_of(int code) {
  if (code == MPI_SUCCESS) return {};
  std::string words(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, words.data(), &length);
  return Error{Code::kPeer, "MPI: " + words.substr(0, static_cast<std::size_t>(length))};
}

bool is_begun() {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  return begun != 0 && ended == 0;
}

int size_of_world() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

// Ends the process if it still exists when the job has failed, or after half an hour: MPI_Init and
// MPI_Finalize wait for all ranks, have no deadline, and no other call ends them.
class Deadline {
 public:
  explicit Deadline(const char* call, std::function<Status()> job = {})
      : call_(call), job_(std::move(job)), thread_([this] { watch(); }) {}
  ~Deadline() {
    const MutexLock lock(mutex_);
    is_over_ = true;
    over_.notify_one();
  }
  Deadline(const Deadline&) = delete;

 private:
  void watch() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    const MutexLock lock(mutex_);
    while (!over_.wait_for(mutex_, std::chrono::milliseconds(100), [this] { return is_over_; })) {
      Status status = job_ ? job_() : Status();
      if (status.ok() && std::chrono::steady_clock::now() > end)
        status = Error{Code::kTimeout, str("not all came within ", kPatience.count(), " minutes")};
      if (status.ok()) continue;
      LOG(ERROR) << call_ << " waited for all ranks: " << status.error().message;
      std::_Exit(static_cast<int>(status.error().code));
    }
  }

  const char* const call_;
  const std::function<Status()> job_;
  Mutex mutex_;
  Condition over_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

class MpiSum final : public VectorSum {
 public:
  MpiSum(table::Table& table, std::size_t count)
      : table_(table), count_(count), block_(count / ranks() + (count % ranks() > 0)) {
    CHECK(block_ * ranks() <= std::numeric_limits<int>::max()) << count << " numbers of one sum";
    buffers_ = std::make_unique<Buffers>();
    buffers_->numbers.resize(block_ * ranks());
    buffers_->part.resize(block_);
  }
  // Keeps the memory of an unfinished sum, into which MPI may still write.
  ~MpiSum() override {
    if (request_ != MPI_REQUEST_NULL)
      static_cast<void>(buffers_.release());
    else if (group_ != MPI_COMM_NULL && is_begun())
      MPI_Comm_free(&group_);
  }

  std::span<float> numbers() override { return std::span(buffers_->numbers).first(count_); }
  table::Destination destination(table::RowId row) override {
    CHECK(false) << "row " << row << " of a sum by MPI";
    return numbers();
  }

  Status expect(table::Clock, RowWaits& waits) override {
    return group_ == MPI_COMM_NULL ? find_ranks(waits) : status_;
  }

  // Sums in one call if that gives all ranks the same bits; otherwise each rank sums a part of the
  // numbers, then all get all parts.
  void start() override {
    since_ = table_.now();
    if (same_bits_) return sum_whole();
    step_ = Step::kParts;
    take(MPI_Ireduce_scatter_block(buffers_->numbers.data(), buffers_->part.data(),
                                   static_cast<int>(block_), MPI_FLOAT, MPI_SUM, group_,
                                   &request_));
  }

  void progress() override {
    if (is_done() || !has_come()) return;
    if (step_ == Step::kWhole) {
      step_ = Step::kDone;
      return;
    }
    step_ = Step::kWhole;
    take(MPI_Iallgather(buffers_->part.data(), static_cast<int>(block_), MPI_FLOAT,
                        buffers_->numbers.data(), static_cast<int>(block_), MPI_FLOAT, group_,
                        &request_));
  }

  bool is_done() const override { return step_ == Step::kDone; }

  // Polls: MPI progresses only in calls, and has no wait with a deadline.
  Status wait(RowWaits& waits) override {
    const table::Instant from = table_.now();
    std::this_thread::yield();
    waits.add(table_.now() - from);
    TRY(status_);
    TRY(table_.status());
    if (from - since_ < kPatience) return {};
    return Error{Code::kTimeout, str("worker ", table_.worker(), " has waited ", kPatience.count(),
                                     " minutes for the sum of ", count_, " numbers by MPI")};
  }

 private:
  void sum_whole() {
    step_ = Step::kWhole;
    take(MPI_Iallreduce(MPI_IN_PLACE, buffers_->numbers.data(), static_cast<int>(count_), MPI_FLOAT,
                        MPI_SUM, group_, &request_));
  }

  enum class Step { kDone, kParts, kWhole };
  struct Buffers {
    std::vector<float> numbers, part;
    std::vector<std::int64_t> own, all;  // by rank: its worker, its count, its bits of a trial
  };

  static std::size_t ranks() { return static_cast<std::size_t>(size_of_world()); }
  void take(int code) {
    if (status_.ok()) status_ = status_of(code);
  }
  bool has_come() {
    int come = 0;
    take(MPI_Test(&request_, &come, MPI_STATUS_IGNORE));
    return status_.ok() && come != 0;
  }
  Status finish(RowWaits& waits) {
    while (!has_come()) TRY(wait(waits));
    return {};
  }

  // Makes a group of all ranks for this sum alone, so that sums do not wait for each other's turn.
  // Every worker must be there once, with as many numbers.
  Status find_ranks(RowWaits& waits) {
    since_ = table_.now();
    take(MPI_Comm_idup(MPI_COMM_WORLD, &group_, &request_));
    TRY(finish(waits));
    take(MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN));
    auto& [numbers, part, own, all] = *buffers_;
    // The order of a sum depends on the ranks and the count, and not on the numbers.
    for (std::size_t i = 0; i < count_; ++i)
      numbers[i] = std::sin(static_cast<float>(i % 1009) + static_cast<float>(table_.worker()));
    sum_whole();
    TRY(finish(waits));
    step_ = Step::kDone;
    own = {table_.worker(), static_cast<std::int64_t>(count_),
           crc32c({reinterpret_cast<const char*>(numbers.data()), count_ * sizeof(float)})};
    std::ranges::fill(numbers, 0.0f);
    all.resize(3 * ranks());
    take(MPI_Iallgather(own.data(), 3, MPI_INT64_T, all.data(), 3, MPI_INT64_T, group_, &request_));
    TRY(finish(waits));
    std::vector<std::int64_t> workers, expected;
    same_bits_ = true;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      workers.push_back(all[3 * rank]);
      expected.push_back(static_cast<std::int64_t>(rank));
      same_bits_ = same_bits_ && all[3 * rank + 2] == own[2];
      if (all[3 * rank + 1] != own[1])
        return Error{Code::kPeer, str("MPI: rank ", rank, " sums ", all[3 * rank + 1],
                                      " numbers where this worker sums ", own[1])};
    }
    std::ranges::sort(workers);
    if (workers != expected)
      return Error{Code::kPeer,
                   "MPI: its ranks are not exactly the workers of this job; start all with one "
                   "mpirun or srun"};
    return {};
  }

  table::Table& table_;
  const std::size_t count_, block_;  // numbers; of a rank's part
  std::unique_ptr<Buffers> buffers_;
  MPI_Comm group_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  Step step_ = Step::kDone;
  bool same_bits_ = false;  // of a sum in one call, at all ranks
  Status status_{};
  table::Instant since_{};
};

}  // namespace

std::string why_no_mpi() { return ""; }

void begin_mpi(const table::Table& table, const std::string& name) {
  const auto refuse = [&](const auto&... words) {
    throw ConfigError(Code::kConfig, name, ": exchange MPI: ", words...);
  };
  const table::RosterBody& roster = table.roster();
  const int workers = workers_of(roster);
  // A process that does not begin MPI would keep the others in MPI_Init.
  for (const auto& process : roster.processes)
    if (process.worker < 0 && process.server >= 0)
      refuse("process ", process.rank, " is a server and no worker; all processes must be workers");
  if (!is_begun()) {
    int threads = 0;
    const Deadline deadline("MPI_Init", [&table] { return table.status(); });
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::string version(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    MPI_Get_library_version(version.data(), &length);
    LOG(INFO) << "MPI: " << size_of_world() << " ranks; "
              << version.substr(0, version.find_first_of(",\n"));
  }
  if (size_of_world() != workers)
    refuse("MPI has ", size_of_world(), size_of_world() == 1 ? " process" : " processes",
           ", and the job has ", workers,
           " workers. Its ranks are fixed: start all with one mpirun or srun, and let none join or "
           "leave");
}

std::unique_ptr<VectorSum> make_mpi_sum(table::Table& table, std::size_t count) {
  return std::make_unique<MpiSum>(table, count);
}

void end_mpi() {
  if (!is_begun()) return;
  const Deadline deadline("MPI_Finalize");
  MPI_Finalize();
}

}  // namespace shoal::parallel

#else

namespace shoal::parallel {

std::string why_no_mpi() {
  return "this build has no MPI: install Open MPI (libopenmpi-dev) and build with make MPI=1";
}
void begin_mpi(const table::Table&, const std::string&) { CHECK(false) << why_no_mpi(); }
std::unique_ptr<VectorSum> make_mpi_sum(table::Table&, std::size_t) {
  CHECK(false) << why_no_mpi();
  return nullptr;
}
void end_mpi() {}

}  // namespace shoal::parallel

#endif
