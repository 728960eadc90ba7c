#include "shoal/ops/cuda/nccl_sums.h"

#include <algorithm>
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

// One GPU's tensors of a slot.
struct Offer {
  std::vector<float*> numbers;
  std::vector<LayoutPtr> found;  // in which they were
};

// One GPU, and its part of the slots.
struct Member {
  Member(Context& of, int slots)
      : context(of),
        stream(shoal::cuda::stream_of(of)),
        own(stream.runtime(), stream.ordinal(),
            static_cast<const shoal::cuda::CudaDevice&>(of.device()).default_stream()),
        health(stream.runtime(), stream.ordinal()),
        offers(static_cast<std::size_t>(slots)) {
    for (int slot = 0; slot < slots; ++slot) {
      offered.emplace_back(stream.runtime(), stream.ordinal());
      done.emplace_back(stream.runtime(), stream.ordinal());
    }
  }
  Context& context;
  CudaStream& stream;                   // on which it computes
  CudaStream own;                       // on which it sums and copies
  CudaEvent health;                     // of the watch's thread
  std::deque<CudaEvent> offered, done;  // by slot
  std::vector<Offer> offers;            // by slot
};

// The part of a slot that all members have in common.
struct Slot {
  DeviceSums::Use use{};
  std::vector<std::size_t> counts;  // of its tensors
  // The layouts in which they are summed or copied: those that all members had the last time, so
  // that no member turns numbers. Set by start(), read by the offers after it.
  std::vector<LayoutPtr> layouts;
};

// A GPU that fails leaves those that sum with it waiting for ever, and the threads that wait for
// them. So a thread asks all GPUs how they are, and ends all sums when one has failed.
class NcclSums final : public DeviceSums {
 public:
  NcclSums(std::span<Context* const> contexts, int slots, const Nccl& nccl)
      : nccl_(nccl), slots_(static_cast<std::size_t>(slots)) {
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
  // Waits while the watch goes on: a GPU that waits for a failed one stops when the watch has seen
  // that.
  ~NcclSums() override {
    bool failed = false;
    for (Member& member : members_) {
      try {
        member.own.synchronize();
      } catch (const DeviceError&) {  // which a failed GPU has told before
        failed = true;
      }
    }
    {
      MutexLock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    watch_.join();
    if (!failure_.empty()) return;
    for (const ncclComm_t comm : comms_) failed ? nccl_.CommAbort(comm) : nccl_.CommDestroy(comm);
  }

  void throw_if_failed() override {
    MutexLock lock(mutex_);
    throw_if_failed_locked();
  }

  void offer(int context, int slot, Use use, std::span<Tensor* const> tensors) override {
    Member& member = members_[static_cast<std::size_t>(context)];
    const auto at = static_cast<std::size_t>(slot);
    const std::vector<LayoutPtr>& layouts = slots_[at].layouts;
    Offer& offer = member.offers[at];
    offer = {};
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      offer.found.push_back(tensors[i]->layout());
      offer.numbers.push_back(numbers(member.context, context == 0, use,
                                      i < layouts.size() ? layouts[i] : nullptr, *tensors[i]));
    }
    if (context == 0) {
      slots_[at].use = use;
      slots_[at].counts.clear();
      for (const Tensor* tensor : tensors)
        slots_[at].counts.push_back(static_cast<std::size_t>(tensor->count()));
    }
    member.offered[at].record(member.stream);
  }

  void start(int slot) override {
    MutexLock lock(mutex_);  // or the watch could end what is begun here
    throw_if_failed_locked();
    const auto at = static_cast<std::size_t>(slot);
    try {
      queue(at);
    } catch (const DeviceError& error) {  // some GPUs may have begun, and wait for the others
      end(error.what());
      throw;
    }
    agree(at);
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

  void end(const std::string& why) REQUIRES(mutex_) {
    failure_ = why;
    for (const ncclComm_t comm : comms_) nccl_.CommAbort(comm);
    changed_.notify_all();
  }

  void watch() {
    MutexLock lock(mutex_);
    while (!changed_.wait_for(mutex_, kTick,
                              [this]() REQUIRES(mutex_) { return is_over_ || !failure_.empty(); }))
      if (const std::string why = trouble(); !why.empty()) end(why);
  }
  // Returns what is wrong with a GPU or with NCCL; "" if nothing is.
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

  static float* numbers(Context& ctx, bool first, Use use, const LayoutPtr& layout,
                        Tensor& tensor) {
    if (use == Use::kSum && first) return mut(ctx, tensor, layout);
    if (use == Use::kCopy && !first) return write(ctx, tensor, layout);
    return const_cast<float*>(read(ctx, tensor, layout));  // which NCCL's one type of pointer asks
  }

  // One launch of NCCL's on each GPU.
  void queue(std::size_t at) {
    std::vector<cudaStream_t> streams;
    for (Member& member : members_) {
      member.offered[at].hold(member.own);
      streams.push_back(member.own.handle());
    }
    const Slot& slot = slots_[at];
    check(nccl_, nccl_.GroupStart(), "beginning a sum of GPUs");
    ncclResult_t worst = ncclSuccess;
    for (std::size_t i = 0; i < slot.counts.size(); ++i)
      for (std::size_t m = 0; m < members_.size(); ++m) {
        float* const own = members_[m].offers[at].numbers[i];
        const ncclResult_t result =
            slot.use == Use::kSum
                ? nccl_.Reduce(own, own, slot.counts[i], ncclFloat32, ncclSum, 0, comms_[m],
                               streams[m])
                : nccl_.Broadcast(own, own, slot.counts[i], ncclFloat32, 0, comms_[m], streams[m]);
        if (result != ncclSuccess) worst = result;
      }
    const ncclResult_t ended = nccl_.GroupEnd();  // also after a failure
    check(nccl_, worst != ncclSuccess ? worst : ended, "summing on GPUs");
    for (Member& member : members_) member.done[at].record(member.own);
  }

  // The layouts of the slot's next use: float32, in an order that all members have.
  void agree(std::size_t at) {
    std::vector<LayoutPtr>& layouts = slots_[at].layouts;
    layouts = members_[0].offers[at].found;
    for (std::size_t i = 0; i < layouts.size(); ++i)
      if (type_of(layouts[i]) != ElementType::kFloat32 ||
          !std::ranges::all_of(members_, [&](const Member& member) {
            return same_layout(member.offers[at].found[i], layouts[i]);
          }))
        layouts[i] = nullptr;
  }

  const Nccl& nccl_;
  std::vector<Slot> slots_;
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
      why = str(context->device().name(), " is given twice");
  }
  if (!why.empty()) return nullptr;
  const Nccl* const nccl = nccl_for(*contexts[0], why);
  if (nccl == nullptr) return nullptr;
  return std::make_unique<NcclSums>(contexts, slots, *nccl);
}

}  // namespace shoal::ops::cuda
