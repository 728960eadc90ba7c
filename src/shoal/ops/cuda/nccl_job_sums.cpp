#include "shoal/ops/cuda/nccl_job_sums.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/ops/cuda/nccl.h"
#include "shoal/ops/cuda/numbers.h"
#include "shoal/tensor/cuda/device.h"
#include "shoal/tensor/cuda/event.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

using shoal::cuda::CudaEvent;
using shoal::cuda::CudaStream;

// NCCL's calls return before they are carried out ("in progress"), and the next may be made when
// the last has been. So sums that cannot be queued yet stand in line, and each call here goes on
// with the line.
class NcclJobSums final : public JobSums {
 public:
  NcclJobSums(Context& ctx, const Nccl& nccl, const ncclUniqueId& group, int rank, int size,
              int slots)
      : ctx_(ctx),
        nccl_(nccl),
        own_(stream().runtime(), stream().ordinal(),
             static_cast<const shoal::cuda::CudaDevice&>(ctx.device()).default_stream()) {
    for (int slot = 0; slot < slots; ++slot) slots_.emplace_back(stream());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    stream().handle();  // makes its GPU the thread's
    take(nccl_.CommInitRankConfig(&comm_, size, group, rank, &config), "joining a group of GPUs");
  }
  // A group whose sums are all made is left in order; another is torn down, so that no kernel goes
  // on waiting for members that do not come.
  ~NcclJobSums() override {
    if (comm_ == nullptr) return;
    if (!is_whole() || !leave())
      nccl_.CommAbort(comm_);
    else
      nccl_.CommDestroy(comm_);
  }

  bool is_joined() override {
    advance();
    return !is_busy_;
  }

  void start(int slot, std::span<Tensor* const> x) override {
    Slot& own = slot_at(slot);
    CHECK(own.is_done) << "slot " << slot << " has sums that are not made";
    own.is_done = own.is_queued = false;
    own.numbers.clear();
    for (Tensor* const one : x)
      own.numbers.emplace_back(mut(ctx_, *one), static_cast<std::size_t>(one->count()));
    own.offered.record(stream());
    line_.push_back(slot);
    advance();
  }

  bool is_done(int slot) override {
    advance();
    Slot& own = slot_at(slot);
    if (!own.is_done && own.is_queued && own.made.reached()) {
      own.made.hold(stream());
      own.is_done = true;
    }
    return own.is_done;
  }

 private:
  struct Slot {
    explicit Slot(CudaStream& of)
        : offered(of.runtime(), of.ordinal()), made(of.runtime(), of.ordinal()) {}
    CudaEvent offered, made;
    std::vector<std::span<float>> numbers;
    bool is_queued = false, is_done = true;
  };

  CudaStream& stream() const { return shoal::cuda::stream_of(ctx_); }
  Slot& slot_at(int slot) { return slots_[static_cast<std::size_t>(slot)]; }
  bool is_whole() const {
    return !is_broken_ && !is_busy_ &&
           std::ranges::all_of(slots_, [](const Slot& slot) { return slot.is_done; });
  }

  // Takes the result of a call. After one that failed no sum is made any more.
  void take(ncclResult_t result, const char* what) {
    is_busy_ = result == ncclInProgress;
    if (is_busy_) return;
    is_broken_ = result != ncclSuccess;
    check(nccl_, result, what);
  }

  // Asks how the last call, or one under way, goes on: a member may be lost.
  void ask() {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_.CommGetAsyncError(comm_, &state);
    take(asked == ncclSuccess ? state : asked, "summing over GPUs of several processes");
  }

  void advance() {
    if (is_broken_) throw DeviceError("sums over GPUs of several processes failed before");
    if (is_busy_) ask();
    while (!is_busy_ && !line_.empty()) {
      Slot& slot = slot_at(line_.front());
      if (!is_called_) {
        is_called_ = true;
        slot.offered.hold(own_);
        sum(slot.numbers);
        continue;
      }
      slot.made.record(own_);
      slot.is_queued = true;
      is_called_ = false;
      line_.pop_front();
    }
    if (!is_busy_) ask();
  }

  // One launch of NCCL's for all of them.
  void sum(const std::vector<std::span<float>>& all) {
    take(nccl_.GroupStart(), "beginning sums over GPUs of several processes");
    ncclResult_t worst = ncclSuccess;
    for (const std::span<float> one : all) {
      const ncclResult_t result = nccl_.AllReduce(one.data(), one.data(), one.size(), ncclFloat32,
                                                  ncclSum, comm_, own_.handle());
      if (result != ncclSuccess && result != ncclInProgress) worst = result;
    }
    const ncclResult_t ended = nccl_.GroupEnd();
    take(worst != ncclSuccess ? worst : ended, "starting sums over GPUs of several processes");
  }

  // Returns whether NCCL has flushed what it had to do, within a few seconds.
  bool leave() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(5);
    ncclResult_t state = nccl_.CommFinalize(comm_);
    while (state == ncclInProgress && Clock::now() < end) {
      std::this_thread::yield();
      if (nccl_.CommGetAsyncError(comm_, &state) != ncclSuccess) return false;
    }
    return state == ncclSuccess;
  }

  Context& ctx_;
  const Nccl& nccl_;
  CudaStream own_;  // on which it sums
  std::deque<Slot> slots_;
  std::deque<int> line_;    // slots whose sums are not queued
  bool is_called_ = false;  // for the first in line NCCL was called
  bool is_busy_ = false;    // with the last call
  bool is_broken_ = false;
  ncclComm_t comm_ = nullptr;
};

Why why_not(const Context& ctx) {
  Why why;
  nccl_for(ctx, why);
  return why;
}

const Nccl& functions(const Context& ctx) {
  Why why;
  const Nccl* const nccl = nccl_for(ctx, why);
  CHECK(nccl != nullptr) << why;
  return *nccl;
}

std::string name_group(const Context& ctx) {
  const Nccl& nccl = functions(ctx);
  ncclUniqueId id;
  check(nccl, nccl.GetUniqueId(&id), "naming a group of GPUs");
  return {id.internal, sizeof id.internal};
}

std::unique_ptr<JobSums> join(Context& ctx, const std::string& group, int rank, int size,
                              int slots) {
  ncclUniqueId id;
  if (group.size() != sizeof id.internal)
    throw DeviceError(
        str("a group of GPUs has a name of ", sizeof id.internal, " bytes, not ", group.size()));
  std::memcpy(id.internal, group.data(), group.size());
  return std::make_unique<NcclJobSums>(ctx, functions(ctx), id, rank, size, slots);
}

}  // namespace

const JobSumsImpl kNcclJobSums{why_not, name_group, join};

}  // namespace shoal::ops::cuda
