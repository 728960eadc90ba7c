#include "shoal/ops/cuda/conv_algorithms.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>

#include "shoal/base/log.h"
#include "shoal/tensor/cuda/device.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

// Returns the bytes of workspace that an algorithm may take: a part of the GPU's memory, since a
// net needs it once for all its layers. With 256 MiB, no algorithm for the weights of AlexNet's
// conv1 with 256 images fits.
std::size_t most_workspace(const Context& ctx) {
  std::size_t available = 0, total = 0;
  shoal::cuda::check(static_cast<const shoal::cuda::CudaDevice&>(ctx.device())
                         .runtime()
                         .MemGetInfo(&available, &total),
                     "asking for the memory of a GPU");
  return std::max(std::size_t{256} << 20, total / 32);
}
constexpr const char* kNames[] = {"forward", "backward to the data", "backward to the weights"};

// The numbers of a description and a context on which the choice depends.
using Key = std::vector<std::int64_t>;
Key key_of(const ConvDesc& desc, const Context& ctx) {
  Key key{static_cast<std::int64_t>(ctx.precision()),
          ctx.deterministic(),
          desc.images,
          desc.channels,
          desc.outputs,
          desc.groups};
  for (const WindowAxis& a : desc.axes)
    key.insert(key.end(), {a.in, a.out, a.kernel, a.stride, a.pad, a.dilation});
  return key;
}

std::string describe(const ConvDesc& desc) {
  std::string text = str("convolution of ", desc.images, " images, ", desc.channels, " to ",
                         desc.outputs, " channels in ", desc.groups, " groups");
  for (const WindowAxis& a : desc.axes)
    text += str(", ", a.in, " to ", a.out, " by ", a.kernel, " stride ", a.stride, " pad ", a.pad,
                " dilation ", a.dilation);
  return text;
}

// Numbers for a convolution to work on while it is measured.
class Operands {
 public:
  Operands(const ConvDesc& desc, const Context& ctx, std::size_t workspace)
      : x_(floats(ctx, desc.images * desc.channels * desc.in_count())),
        w_(floats(ctx, desc.outputs * desc.channels / desc.groups * desc.taps())),
        y_(floats(ctx, desc.images * desc.outputs * desc.out_count())),
        workspace_(ctx.device().allocate(workspace)) {}

  static std::size_t bytes(const ConvDesc& desc, std::size_t workspace) {
    return static_cast<std::size_t>(desc.images * desc.channels * desc.in_count() +
                                    desc.outputs * desc.channels / desc.groups * desc.taps() +
                                    desc.images * desc.outputs * desc.out_count()) *
               sizeof(float) +
           workspace;
  }

  cudnnStatus_t run(const DnnConv& conv, cudnnHandle_t handle, ConvPass pass,
                    const ConvAlgorithm& algorithm) const {
    void *const x = x_->data(), *const w = w_->data(), *const y = y_->data();
    void* const workspace = workspace_->data();
    if (pass == ConvPass::kForward) return conv.forward(handle, algorithm, x, w, workspace, y);
    if (pass == ConvPass::kData) return conv.backward_data(handle, algorithm, w, y, workspace, x);
    return conv.backward_filter(handle, algorithm, x, y, workspace, false, w);
  }

 private:
  static std::shared_ptr<Memory> floats(const Context& ctx, std::int64_t count) {
    return ctx.device().allocate(static_cast<std::size_t>(count) * sizeof(float));
  }
  std::shared_ptr<Memory> x_, w_, y_, workspace_;
};

// Milliseconds that a GPU takes for one run, infinite if cuDNN refuses it. `best`: of the fastest
// before; what is slower by far is run no more than it takes to see that. The runs are recorded:
// cuDNN's calls keep the host busy for longer than a GPU takes for a small convolution.
double measure(const Context& ctx, const Operands& operands, const DnnConv& conv, ConvPass pass,
               const ConvAlgorithm& algorithm, double best) {
  Stream& stream = *ctx.stream();
  const Dnn& dnn = dnn_functions(ctx);
  const cudnnHandle_t handle = dnn_of(ctx);
  using Clock = std::chrono::steady_clock;
  constexpr double kCall = 0.5;  // of the host, with what it takes when it is interrupted
  constexpr int kRuns = 8, kTimes = 3;
  const auto time = [&](const auto& queue) {
    const Clock::time_point start = Clock::now();
    queue();
    stream.synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const auto run = [&] {
    check(dnn, operands.run(conv, handle, pass, algorithm), "measuring a convolution");
  };
  try {
    time(run);  // which loads code
    if (const double once = time(run); once > 2 * best + kCall) return once;
    const std::unique_ptr<Recording> runs = stream.record([&] {
      for (int i = 0; i < kRuns; ++i) run();
    });
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTimes; ++i) least = std::min(least, time([&] { runs->replay(); }) / kRuns);
    return least;
  } catch (const DeviceError&) {
    return std::numeric_limits<double>::infinity();
  }
}

// Returns whether times may count, and there is a GPU to measure on, with room for the operands
// twice: the net's own are to come.
bool can_measure(const ConvDesc& desc, const Context& ctx, std::size_t workspace) {
  const shoal::cuda::Runtime& runtime =
      static_cast<const shoal::cuda::CudaDevice&>(ctx.device()).runtime();
  if (ctx.deterministic() || runtime.run_on_host != nullptr) return false;
  std::size_t available = 0, total = 0;
  shoal::cuda::check(runtime.MemGetInfo(&available, &total), "asking for free memory");
  return available / 2 > Operands::bytes(desc, workspace);
}

// Returns the fastest, whose time is added to `ms`.
const ConvAlgorithm& fastest(const ConvDesc& desc, const Context& ctx, const DnnConv& conv,
                             ConvPass pass, std::span<const ConvAlgorithm> algorithms, double& ms) {
  std::size_t workspace = 0;
  for (const ConvAlgorithm& one : algorithms) workspace = std::max(workspace, one.workspace);
  if (!can_measure(desc, ctx, workspace)) return algorithms.front();
  const Operands operands(desc, ctx, workspace);
  double best_ms = std::numeric_limits<double>::infinity();
  const ConvAlgorithm* best = &algorithms.front();
  for (const ConvAlgorithm& one : algorithms) {
    const double time = measure(ctx, operands, conv, pass, one, best_ms);
    VLOG(1) << "  " << kNames[static_cast<int>(pass)] << ": algorithm " << one.number << ", math "
            << one.math << ", takes " << time << " ms and " << one.workspace
            << " bytes of workspace";
    if (time >= best_ms) continue;
    best_ms = time;
    best = &one;
  }
  ms += best_ms;
  return *best;
}

// Returns the algorithms for tensors in one order; `ms` gets the time of the three passes, if
// measured.
ConvAlgorithms choose(const ConvDesc& desc, const Context& ctx, bool channels_last, double& ms) {
  const Dnn& dnn = dnn_functions(ctx);
  const DnnConv conv(dnn, desc, channels_last, ctx.precision());
  const cudnnHandle_t handle = dnn_of(ctx);
  VLOG(1) << describe(desc) << (channels_last ? ", channels last" : "");
  const std::size_t most = most_workspace(ctx);
  ConvAlgorithms chosen;
  chosen.channels_last = channels_last;
  for (const ConvPass pass : kConvPasses) {
    const auto index = static_cast<std::size_t>(pass);
    const std::vector<ConvAlgorithm> algorithms = conv.algorithms(handle, pass, most);
    if (algorithms.empty()) {
      chosen.why = str("it has no algorithm ", kNames[index],
                       " with the same bits in every run in ", most >> 20, " MiB of workspace");
      return chosen;
    }
    chosen.of[index] = ctx.precision() == Precision::kFloat32
                           ? algorithms.front()
                           : fastest(desc, ctx, conv, pass, algorithms, ms);
    VLOG(1) << "  " << kNames[index] << " by algorithm " << chosen.of[index].number << ", "
            << chosen.of[index].workspace << " bytes of workspace";
  }
  return chosen;
}

// Tensor cores read channels last. In plain order cuDNN turns the numbers itself, which it may do
// better for a few channels; but then the layers around turn theirs.
ConvAlgorithms choose(const ConvDesc& desc, const Context& ctx) {
  constexpr double kWorthTurning = 0.7;
  double plain_ms = 0, last_ms = 0;
  if (ctx.precision() == Precision::kFloat32 || desc.axes.size() != 2)
    return choose(desc, ctx, false, plain_ms);
  const ConvAlgorithms last = choose(desc, ctx, true, last_ms);
  if (last.why.empty() && last_ms == 0) return last;  // not measured: what cuDNN prefers
  const ConvAlgorithms plain = choose(desc, ctx, false, plain_ms);
  const bool turns = !last.why.empty() || (plain.why.empty() && plain_ms < kWorthTurning * last_ms);
  return turns ? plain : last;
}

}  // namespace

std::size_t ConvAlgorithms::workspace() const {
  std::size_t most = 0;
  for (const ConvAlgorithm& one : of) most = std::max(most, one.workspace);
  return most;
}

ConvAlgorithms conv_algorithms(const ConvDesc& desc, const Context& ctx) {
  using Known = std::map<Key, ConvAlgorithms>;
  shoal::cuda::LibraryFindings& findings =
      static_cast<const shoal::cuda::CudaDevice&>(ctx.device()).findings();
  // The lock is held while one stream measures, so that no other disturbs it.
  const MutexLock lock(findings.mutex);
  if (!findings.dnn) findings.dnn = std::make_shared<Known>();
  Known& known = *static_cast<Known*>(findings.dnn.get());
  const Key key = key_of(desc, ctx);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  return known[key] = choose(desc, ctx);
}

}  // namespace shoal::ops::cuda
