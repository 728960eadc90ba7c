#include "shoal/ops/cuda/nccl_sums.h"

#include <chrono>
#include <deque>
#include <set>
#include <thread>

#include "shoal/base/error.h"
#include "shoal/base/mutex.h"
#include "shoal/ops/cuda/nccl.h"
#include "shoal/ops/cuda/numbers.h"
#include "shoal/tensor/cuda/device.h"
#include "shoal/tensor/cuda/event.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

using shoal::cuda::CudaEvent;
using shoal::cuda::CudaStream;

// One GPU, and its part of the slots.
struct Member {
  Member(Context& of, int slots)
      : context(of),
        stream(shoal::cuda::stream_of(of)),
        own(stream.runtime(), stream.ordinal(),
            static_cast<const shoal::cuda::CudaDevice&>(of.device()).default_stream()),
        health(stream.runtime(), stream.ordinal()) {
    for (int slot = 0; slot < slots; ++slot) {
      offered.emplace_back(stream.runtime(), stream.ordinal());
      done.emplace_back(stream.runtime(), stream.ordinal());
    }
    numbers.resize(static_cast<std::size_t>(slots));
  }
  Context& context;
  CudaStream& stream;                        // on which it computes
  CudaStream own;                            // on which it sums and copies
  CudaEvent health;                          // of the watch's thread
  std::deque<CudaEvent> offered, done;       // by slot
  std::vector<std::vector<float*>> numbers;  // by slot
};

// A GPU that fails leaves those that sum with it waiting for ever, and the threads that wait for
// them. So a thread asks all GPUs how they are, and ends all sums when one has failed.
class NcclSums final : public DeviceSums {
 public:
  NcclSums(std::span<Context* const> contexts, int slots, const Nccl& nccl)
      : nccl_(nccl), uses_(static_cast<std::size_t>(slots)), counts_(uses_.size()) {
    std::vector<int> ordinals;
    for (Context* context : contexts) {
      members_.emplace_back(*context, slots);
      ordinals.push_back(members_.back().stream.ordinal());
    }
    comms_.resize(ordinals.size());
    check(nccl_,
          nccl_.CommInitAll(comms_.data(), static_cast<int>(ordinals.size()), ordinals.data()),
          "connecting GPUs");
    watch_ = std::jthread([this] { watch(); });
  }
  ~NcclSums() override {
    try {
      for (Member& member : members_) member.own.synchronize();
    } catch (const DeviceError&) {  // which a failed GPU has told before
    }
    {
      MutexLock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    watch_.join();
    if (failure_.empty())
      for (const ncclComm_t comm : comms_) nccl_.CommDestroy(comm);
  }

  void throw_if_failed() override {
    MutexLock lock(mutex_);
    throw_if_failed_locked();
  }

  void offer(int context, int slot, Use use, std::span<Tensor* const> tensors) override {
    Member& member = members_[static_cast<std::size_t>(context)];
    const auto at = static_cast<std::size_t>(slot);
    member.numbers[at].clear();
    for (Tensor* tensor : tensors)
      member.numbers[at].push_back(numbers(member.context, context == 0, use, *tensor));
    if (context == 0) {
      uses_[at] = use;
      counts_[at].clear();
      for (const Tensor* tensor : tensors)
        counts_[at].push_back(static_cast<std::size_t>(tensor->count()));
    }
    member.offered[at].record(member.stream);
  }

  void start(int slot) override {
    MutexLock lock(mutex_);  // or the watch could end what is begun here
    throw_if_failed_locked();
    const auto at = static_cast<std::size_t>(slot);
    for (Member& member : members_) member.offered[at].hold(member.own);
    check(nccl_, nccl_.GroupStart(), "beginning a sum of GPUs");
    for (std::size_t i = 0; i < counts_[at].size(); ++i)
      for (std::size_t m = 0; m < members_.size(); ++m) queue(m, at, i);
    check(nccl_, nccl_.GroupEnd(), "starting a sum of GPUs");
    for (Member& member : members_) member.done[at].record(member.own);
  }

  bool done(int slot) override {
    throw_if_failed();
    return members_[0].done[static_cast<std::size_t>(slot)].reached();
  }

  void take(int context, int slot) override {
    throw_if_failed();
    Member& member = members_[static_cast<std::size_t>(context)];
    member.done[static_cast<std::size_t>(slot)].hold(member.stream);
  }

 private:
  static constexpr std::chrono::milliseconds kTick{200};

  void throw_if_failed_locked() REQUIRES(mutex_) {
    if (!failure_.empty())
      throw DeviceError(str("the sums of all GPUs of this process were ended: ", failure_));
  }

  void watch() {
    MutexLock lock(mutex_);
    while (!changed_.wait_for(mutex_, kTick, [this]() REQUIRES(mutex_) { return is_over_; })) {
      failure_ = trouble();
      if (failure_.empty()) continue;
      for (const ncclComm_t comm : comms_) nccl_.CommAbort(comm);
      return;
    }
  }
  // Of a GPU or of NCCL; "" if there is none.
  std::string trouble() {
    try {
      for (Member& member : members_) member.health.record(member.own);
      for (const ncclComm_t comm : comms_) {
        ncclResult_t state = ncclSuccess;
        check(nccl_, nccl_.CommGetAsyncError(comm, &state), "asking after sums of GPUs");
        if (state != ncclInProgress) check(nccl_, state, "summing on GPUs");
      }
      return "";
    } catch (const DeviceError& error) {
      return error.what();
    }
  }

  static float* numbers(Context& ctx, bool first, Use use, Tensor& tensor) {
    if (use == Use::kSum && first) return mut(ctx, tensor);
    if (use == Use::kCopy && !first) return write(ctx, tensor);
    return const_cast<float*>(read(ctx, tensor));  // which NCCL's one type of pointer asks for
  }

  void queue(std::size_t m, std::size_t slot, std::size_t i) {
    Member& member = members_[m];
    float* const own = member.numbers[slot][i];
    const std::size_t count = counts_[slot][i];
    const cudaStream_t stream = member.own.handle();
    check(nccl_,
          uses_[slot] == Use::kSum
              ? nccl_.Reduce(own, own, count, ncclFloat32, ncclSum, 0, comms_[m], stream)
              : nccl_.Broadcast(own, own, count, ncclFloat32, 0, comms_[m], stream),
          "summing on GPUs");
  }

  const Nccl& nccl_;
  std::vector<Use> uses_;                         // by slot
  std::vector<std::vector<std::size_t>> counts_;  // by slot, of its tensors
  std::deque<Member> members_;
  std::vector<ncclComm_t> comms_;
  Mutex mutex_;
  Condition changed_;
  std::string failure_ GUARDED_BY(mutex_);  // for which the sums were ended
  bool is_over_ GUARDED_BY(mutex_) = false;
  std::jthread watch_;
};

}  // namespace

std::unique_ptr<DeviceSums> make_nccl_sums(std::span<Context* const> contexts, int slots,
                                           Why& why) {
  std::set<const Device*> devices;
  for (Context* context : contexts) {
    if (context->device().backend() != contexts[0]->device().backend())
      why = str(context->device().name(), " is no GPU");
    if (!devices.insert(&context->device()).second)
      why = str(context->device().name(), " is there twice");
  }
  if (!why.empty()) return nullptr;
  const Nccl* const nccl = nccl_for(*contexts[0], why);
  if (nccl == nullptr) return nullptr;
  return std::make_unique<NcclSums>(contexts, slots, *nccl);
}

}  // namespace shoal::ops::cuda
