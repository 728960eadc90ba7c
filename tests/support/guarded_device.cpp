#include "support/guarded_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/cpu/elementary.h"
#include "shoal/ops/cpu/impls.h"
#include "support/kept_arguments.h"

namespace shoal::test {

// Knows all memory of the device, and opens it while anything of the device runs.
struct GuardedDevice::Guard {
  std::mutex mutex;
  std::set<std::pair<std::byte*, std::size_t>> blocks;
  int open = 0;
  std::atomic<std::int64_t> done{0};

  void protect(int access) {
    for (const auto& [data, bytes] : blocks) CHECK(mprotect(data, bytes, access) == 0);
  }
  void enter() {
    std::lock_guard lock(mutex);
    if (open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void leave() {
    std::lock_guard lock(mutex);
    if (--open == 0) protect(PROT_NONE);
    ++done;
  }
};

namespace {

using Guard = GuardedDevice::Guard;

class GuardedMemory final : public Memory {
 public:
  GuardedMemory(const Device* device, std::shared_ptr<Guard> guard, std::size_t bytes)
      : Memory(device, bytes), guard_(std::move(guard)), mapped_(std::max<std::size_t>(bytes, 1)) {
    std::lock_guard lock(guard_->mutex);
    void* const block = mmap(nullptr, mapped_, guard_->open ? PROT_READ | PROT_WRITE : PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(block);
    guard_->blocks.insert({data_, mapped_});
  }
  ~GuardedMemory() override {
    std::lock_guard lock(guard_->mutex);
    guard_->blocks.erase({data_, mapped_});
    munmap(data_, mapped_);
  }

 private:
  std::shared_ptr<Guard> guard_;
  std::size_t mapped_;
};

class GuardedStream final : public Stream {
 public:
  GuardedStream(std::shared_ptr<Guard> guard, std::uint64_t seed, int threads, bool synchronizes)
      : kernels({.threads = threads}),
        guard_(std::move(guard)),
        random_(seed),
        synchronizes_(synchronizes) {}
  // Work that nothing waited for is dropped: the host's side of a copy may be gone.
  ~GuardedStream() override { wait(); }

  void upload(std::byte* device, const std::byte* host, std::size_t bytes) override {
    queue([=] { std::copy_n(host, bytes, device); });
  }
  void download(std::byte* host, const std::byte* device, std::size_t bytes) override {
    queue([=] { std::copy_n(device, bytes, host); });
  }
  void queue(std::function<void()> work) {
    queue_.push_back(std::move(work));
    if (random_.uniform(0, 1) < 0.25) run(random_.below(queue_.size() + 1));
  }
  void finish() { run(queue_.size()); }
  template <class Reached>
  void run_until(Reached reached) {
    while (!reached() && !queue_.empty()) run(1);
  }

  Context kernels;  // what the CPU's kernels are given

 private:
  void wait() override {
    if (synchronizes_) run(queue_.size());
  }
  void run(std::size_t count) {
    for (; count > 0 && !queue_.empty(); --count) {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      guard_->enter();
      work();
      guard_->leave();
    }
  }
  std::shared_ptr<Guard> guard_;
  std::deque<std::function<void()>> queue_;
  Random random_;
  bool synchronizes_;
};

class GuardedEvent final : public Event {
 public:
  void record(Stream& stream) override {
    place_->stream = static_cast<GuardedStream*>(&stream);
    place_->stream->queue([place = place_, n = ++place_->noted] {
      place->reached = n;
      place->when = std::chrono::steady_clock::now();
    });
  }
  void hold(Stream& stream) override {
    static_cast<GuardedStream&>(stream).queue(
        [place = place_, of = place_->stream, n = place_->noted] { run_until(*place, of, n); });
  }
  void wait() override { run_until(*place_, place_->stream, place_->noted); }
  double seconds_since(Event& earlier) override {
    wait(), earlier.wait();
    const auto& other = static_cast<GuardedEvent&>(earlier);
    return std::chrono::duration<double>(place_->when - other.place_->when).count();
  }

 private:
  struct Place {
    GuardedStream* stream = nullptr;  // of the last record
    std::uint64_t noted = 0, reached = 0;
    std::chrono::steady_clock::time_point when{};
  };
  static void run_until(const Place& place, GuardedStream* stream, std::uint64_t n) {
    if (place.reached < n) stream->run_until([&] { return place.reached >= n; });
  }
  std::shared_ptr<Place> place_ = std::make_shared<Place>();
};

GuardedStream& stream_of(Context& ctx) { return static_cast<GuardedStream&>(*ctx.stream()); }

// Queues `call(kernels' context, arguments ...)`; a result is waited for.
template <class Result, class... Args, class Call>
Result queue_call(Context& ctx, Call call, Args... args) {
  GuardedStream& stream = stream_of(ctx);
  auto kept = std::make_shared<std::tuple<typename KeeperOf<Args>::type...>>(
      typename KeeperOf<Args>::type(ctx, std::forward<Args>(args))...);
  const auto work = [&stream, call, kept]() -> Result {
    return std::apply([&](auto&... one) -> Result { return call(stream.kernels, one.get()...); },
                      *kept);
  };
  if constexpr (std::is_void_v<Result>) {
    stream.queue(work);
  } else {
    Result result{};
    stream.queue([&] { result = work(); });
    stream.finish();
    return result;
  }
}

template <auto kOp>
struct Guarded;
template <class Result, class... Args, Result (*kOp)(Context&, Args...)>
struct Guarded<kOp> {
  static Result run(Context& ctx, Args... args) {
    return queue_call<Result, Args...>(
        ctx, [](Context& kernels, auto&&... given) -> Result { return kOp(kernels, given...); },
        std::forward<Args>(args)...);
  }
};

// ---- kernels ----
template <class Kernel>
class GuardedKernel : public Kernel {
 public:
  GuardedKernel(std::unique_ptr<Kernel> plain, Context& ctx)
      : plain_(std::move(plain)), stream_(ctx.stream()) {}
  ~GuardedKernel() override { static_cast<GuardedStream&>(*stream_).finish(); }

 protected:
  template <class... Args>
  void queue(Context& ctx, void (Kernel::*method)(Context&, Args...),
             std::type_identity_t<Args>... args) {
    queue_call<void, Args...>(
        ctx,
        [plain = plain_.get(), method](Context& kernels, auto&&... given) {
          (plain->*method)(kernels, given...);
        },
        std::forward<Args>(args)...);
  }
  std::unique_ptr<Kernel> plain_;
  std::shared_ptr<Stream> stream_;
};

template <class Kernel>
struct Weighted : GuardedKernel<Kernel> {  // dense, conv
  using GuardedKernel<Kernel>::GuardedKernel;
  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    this->queue(ctx, &Kernel::forward, x, w, b, y);
  }
  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    this->queue(ctx, &Kernel::backward, x, w, dy, dx, dw, db);
  }
};
struct Im2col : GuardedKernel<ops::Im2colKernel> {
  using GuardedKernel::GuardedKernel;
  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    queue(ctx, &ops::Im2colKernel::forward, x, y);
  }
  void backward(Context& ctx, const Tensor& dy, Tensor& dx) override {
    queue(ctx, &ops::Im2colKernel::backward, dy, dx);
  }
};
struct Pool : GuardedKernel<ops::PoolKernel> {
  using GuardedKernel::GuardedKernel;
  void forward(Context& ctx, const Tensor& x, Tensor& y, Tensor* index,
               const Random::State& coins) override {
    queue(ctx, &ops::PoolKernel::forward, x, y, index, coins);
  }
  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    queue(ctx, &ops::PoolKernel::backward, x, dy, dx);
  }
};
template <class Kernel>
struct Mapped : GuardedKernel<Kernel> {  // lrn, softmax
  using GuardedKernel<Kernel>::GuardedKernel;
  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    this->queue(ctx, &Kernel::forward, x, y);
  }
  void backward(Context& ctx, const Tensor& read, const Tensor& dy, Tensor& dx) override {
    this->queue(ctx, &Kernel::backward, read, dy, dx);
  }
};
struct BatchNorm : GuardedKernel<ops::BatchNormKernel> {
  using Kernel = ops::BatchNormKernel;
  using GuardedKernel::GuardedKernel;
  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     ops::RunningSums running, ops::AfterNorm after, Tensor& y) override {
    queue(ctx, &Kernel::forward_batch, x, mean, variance, running, after, y);
  }
  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      ops::AfterNorm after, Tensor& y) override {
    queue(ctx, &Kernel::forward_global, x, mean, variance, after, y);
  }
  void backward_batch(Context& ctx, ops::NormInput x, const Tensor& mean, const Tensor& variance,
                      const Tensor& dy, ops::AfterNormBackward after, Tensor* dx) override {
    queue(ctx, &Kernel::backward_batch, x, mean, variance, dy, after, dx);
  }
  void backward_global(Context& ctx, ops::NormInput x, const Tensor& mean, const Tensor& variance,
                       const Tensor& dy, ops::AfterNormBackward after, Tensor* dx) override {
    queue(ctx, &Kernel::backward_global, x, mean, variance, dy, after, dx);
  }
};

// The implementation *kPlain of the CPU, with Wrapped around its kernels.
template <class Wrapped, const auto* kPlain>
struct Wrap;
template <class Wrapped, class Desc, class Kernel, const ops::Impl<Desc, Kernel>* kPlain>
struct Wrap<Wrapped, kPlain> {
  static std::unique_ptr<Kernel> make(const Desc& desc, Context& ctx) {
    return std::make_unique<Wrapped>(kPlain->make(desc, stream_of(ctx).kernels), ctx);
  }
  static ops::Why supports(const Desc& desc, const Context& ctx) {
    return kPlain->supports(desc, ctx);
  }
  static constexpr ops::Impl<Desc, Kernel> impl{"guarded", supports, make};
};

using namespace ops;
constexpr Elementary kElementary = {
#define OP(name) &Guarded<&ops::cpu::name>::run,
#include "shoal/ops/elementary.def"
#undef OP
};
constexpr const DenseImpl* kDense[] = {&Wrap<Weighted<DenseKernel>, &ops::cpu::kDense>::impl};
constexpr const ConvImpl* kConv[] = {&Wrap<Weighted<ConvKernel>, &ops::cpu::kConvDirect>::impl,
                                     &Wrap<Weighted<ConvKernel>, &ops::cpu::kConv>::impl};
constexpr const Im2colImpl* kIm2col[] = {&Wrap<Im2col, &ops::cpu::kIm2col>::impl};
constexpr const PoolImpl* kPool[] = {&Wrap<Pool, &ops::cpu::kPool>::impl};
constexpr const LrnImpl* kLrn[] = {&Wrap<Mapped<LrnKernel>, &ops::cpu::kLrn>::impl};
constexpr const BatchNormImpl* kBatchNorm[] = {&Wrap<BatchNorm, &ops::cpu::kBatchNorm>::impl};
constexpr const SoftmaxImpl* kSoftmax[] = {&Wrap<Mapped<SoftmaxKernel>, &ops::cpu::kSoftmax>::impl};
constexpr Backend kBackend = {&kElementary, kDense, kConv,      kIm2col,
                              kPool,        kLrn,   kBatchNorm, kSoftmax};

}  // namespace

GuardedDevice::GuardedDevice(std::uint64_t seed, int threads, bool synchronizes)
    : guard_(std::make_shared<Guard>()),
      seed_(seed),
      threads_(threads),
      synchronizes_(synchronizes) {}
GuardedDevice::~GuardedDevice() = default;

std::shared_ptr<Memory> GuardedDevice::allocate(std::size_t bytes) const {
  return std::make_shared<GuardedMemory>(this, guard_, bytes);
}
std::shared_ptr<Stream> GuardedDevice::make_stream() const {
  return std::make_shared<GuardedStream>(guard_, seed_, threads_, synchronizes_);
}
std::unique_ptr<Event> GuardedDevice::make_event(bool) const {
  return std::make_unique<GuardedEvent>();
}
const ops::Backend* GuardedDevice::backend() const { return &kBackend; }
std::int64_t GuardedDevice::done() const { return guard_->done; }

}  // namespace shoal::test
