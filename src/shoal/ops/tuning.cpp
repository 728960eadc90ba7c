#include "shoal/ops/tuning.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <memory>
#include <optional>
#include <vector>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/processor.h"
#include "shoal/base/text.h"
#include "shoal/base/timer.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/cpu_kernels.h"

namespace shoal::ops {
namespace {

using Clock = std::chrono::steady_clock;

// A part of the time of the rule's kernel: another one must take less to be chosen.
constexpr double kGain = 0.9;
constexpr const char* kFirstLine = "shoal kernels 1";

struct NamedPass {
  ConvPass pass;
  const char* name;
  bool PassSet::*member;
};
constexpr NamedPass kPasses[] = {{ConvPass::kForward, "forward", &PassSet::forward},
                                 {ConvPass::kData, "data", &PassSet::data},
                                 {ConvPass::kWeights, "weights", &PassSet::weights}};

std::string precision_words(const Context& ctx) {
  return str(ctx.precision() == Precision::kBfloat16 ? "BFLOAT16" : "FLOAT32",
             ctx.direct_convolution() ? " DIRECT" : " AUTO");
}

// Leaves out the ReLU and how gradients are added: they make no difference between kernels.
std::string shape_words(const ConvDesc& desc, const Context& ctx, const PassSet& use) {
  std::string words = str("images ", desc.images, " channels ", desc.channels, " outputs ",
                          desc.outputs, " groups ", desc.groups, " axes");
  for (const WindowAxis& axis : desc.axes)
    words +=
        str(' ', axis.in, 'k', axis.kernel, 's', axis.stride, 'p', axis.pad, 'd', axis.dilation);
  words += str(" threads ", ctx.threads(), ' ', precision_words(ctx), " passes");
  for (const NamedPass& pass : kPasses)
    if (use.*pass.member) words += str(' ', pass.name);
  return words;
}

// "onednn forward=winograd data=direct weights=winograd"; of a kernel without Winograd's algorithm
// its name alone.
std::string kernel_words(const TunedConv& choice) {
  if (choice.winograd == kNoPass) return choice.impl;
  std::string words = choice.impl;
  for (const NamedPass& pass : kPasses)
    words += str(' ', pass.name, choice.winograd.*pass.member ? "=winograd" : "=direct");
  return words;
}

// Empty: the words are no kernel's.
std::optional<TunedConv> kernel_in(const std::string& text) {
  std::vector<std::string> words = split(text, ' ');
  if (words.empty() || words[0].find('=') != std::string::npos) return std::nullopt;
  TunedConv choice{words[0], kNoPass, {}};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto found = std::ranges::find_if(
        kPasses, [&](const NamedPass& pass) { return words[i].starts_with(str(pass.name, '=')); });
    if (found == std::end(kPasses)) return std::nullopt;
    const std::string way = words[i].substr(words[i].find('=') + 1);
    if (way != "winograd" && way != "direct") return std::nullopt;
    choice.winograd.*(found->member) = way == "winograd";
  }
  return choice;
}

const ConvImpl* impl_named(const std::string& name, const ConvDesc& desc, const Context& ctx) {
  for (const ConvImpl* impl : backend(ctx).conv)
    if (impl->name == name) return impl->supports(desc, ctx).empty() ? impl : nullptr;
  return nullptr;
}

PassSet both(const PassSet& a, const PassSet& b) {
  return {a.forward && b.forward, a.data && b.data, a.weights && b.weights};
}

// Returns the options of a context of its own, whose scratch ends with it.
Context::Options options_like(const Context& ctx) {
  return {.device = &ctx.device(),
          .threads = ctx.threads(),
          .precision = ctx.precision(),
          .direct_convolution = ctx.direct_convolution()};
}

// Returns whether this build and this processor have what was chosen.
bool is_here(const TunedConv& choice, ConvDesc desc, const Context& ctx, const PassSet& use) {
  const ConvImpl* const impl = impl_named(choice.impl, desc, ctx);
  if (!impl) return false;
  Context own(options_like(ctx));
  desc.winograd = choice.winograd;
  return both(impl->make(desc, own)->winograd(), use) == both(choice.winograd, use);
}

// The fastest way of each pass of one implementation.
struct Timed {
  TunedConv choice;
  double ms = 0;
};
Timed time_impl(const ConvImpl& impl, ConvDesc desc, Context& ctx, const PassSet& use,
                const ConvTuning::Measure& measure) {
  desc.winograd = {};
  const auto kernel = impl.make(desc, ctx);
  const PassSet winograd = kernel->winograd();
  desc.winograd = kNoPass;
  const auto direct = winograd == kNoPass ? nullptr : impl.make(desc, ctx);
  Timed timed{{impl.name, kNoPass, {}}};
  for (const NamedPass& pass : kPasses) {
    if (!(use.*pass.member)) continue;
    const Trial trial{impl.name, pass.pass, use};
    double ms = measure(*kernel, desc, trial, ctx);
    if (winograd.*pass.member) {
      const double other = measure(*direct, desc, trial, ctx);
      timed.choice.winograd.*pass.member = ms <= other;
      ms = std::min(ms, other);
    }
    timed.ms += ms;
  }
  return timed;
}

// Repeats random numbers, which are drawn once.
void fill(Tensor& tensor, std::uint64_t seed) {
  constexpr std::size_t kDrawn = 1 << 16;
  const std::span<float> numbers = tensor.host_out();
  Random random(seed);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = i < kDrawn ? random.unit() - 0.5f : numbers[i - kDrawn];
}

}  // namespace

double time_pass(ConvKernel& kernel, const ConvDesc& desc, const Trial& trial, Context& ctx) {
  const auto shape = [&](std::int64_t first, std::int64_t second, std::int64_t WindowAxis::*size) {
    std::vector<std::int64_t> sizes{first, second};
    for (const WindowAxis& axis : desc.axes) sizes.push_back(axis.*size);
    return Shape(sizes);
  };
  Tensor x(shape(desc.images, desc.channels, &WindowAxis::in)),
      y(shape(desc.images, desc.outputs, &WindowAxis::out)),
      w(shape(desc.outputs, desc.channels / desc.groups, &WindowAxis::kernel)), dw(w.shape()),
      b(Shape{desc.outputs});
  fill(x, 1);
  fill(y, 2);
  fill(w, 3);
  fill(dw, 4);
  fill(b, 5);
  const auto call = [&] {
    if (trial.pass == ConvPass::kForward) {
      if (trial.use.weights) w.host_mut();  // an update has changed them
      kernel.forward(ctx, x, w, &b, y);
    } else if (trial.pass == ConvPass::kData) {
      kernel.backward(ctx, x, w, y, &x, nullptr, nullptr);
    } else {
      kernel.backward(ctx, x, w, y, nullptr, &dw, nullptr);
    }
  };
  call();
  constexpr double kLong = 0.5;  // seconds
  constexpr int kCalls = 3;
  double best = 0, all = 0;
  for (int i = 0; i < kCalls && all < kLong; ++i) {
    const auto start = Clock::now();
    call();
    const double seconds = to_seconds(Clock::now() - start);
    all += seconds;
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return 1e3 * best;
}

std::string tuned_processor() {
  std::string name = str(processor_name(), " x86-64-v", cpu_kernels_level());
  std::ranges::replace(name, '|', '/');
  return name;
}

ConvTuning::ConvTuning() : ConvTuning(time_pass) {}
ConvTuning::ConvTuning(Measure measure) : measure_(std::move(measure)) {}

void ConvTuning::add(const std::string& text, const std::string& name) {
  int number = 0;
  const auto wrong = [&](const auto&... words) {
    return ConfigError(Code::kConfig, name, ':', number, ": ", words...,
                       "; remove the file to measure all kernels again");
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (++number == 1) {
      if (line != kFirstLine)
        throw wrong("the first line is '", line, "' where '", kFirstLine, "' was expected");
      continue;
    }
    const std::vector<std::string> fields = split(line, '|');
    if (fields.size() != 4)
      throw wrong("a line has a processor, a shape, a kernel and times, with | between them: '",
                  line, "'");
    std::optional<TunedConv> choice = kernel_in(fields[2]);
    if (!choice) throw wrong("'", fields[2], "' is no kernel");
    choice->times = fields[3];
    TunedConv& known = choices_[{fields[0], fields[1]}];
    is_new_ |= known != *choice;
    known = std::move(*choice);
  }
  number = 1;
  if (text.empty()) throw wrong("the file is empty");
}

std::string ConvTuning::text() const {
  std::string text = str(kFirstLine, '\n');
  for (const auto& [key, choice] : choices_)
    text +=
        str(key.first, " | ", key.second, " | ", kernel_words(choice), " | ", choice.times, '\n');
  return text;
}

void ConvTuning::keep_in(const std::string& file) {
  file_ = file;
  if (!file_exists(file)) return;
  add(or_throw(read_file(file)), file);
  is_new_ = false;
}

void ConvTuning::save() {
  if (file_.empty() || !is_new_) return;
  const Status status = write_file(file_, text(), Code::kSnapshot);
  is_new_ = !status.ok();
  if (status.ok())
    LOG(INFO) << "Kernels of " << choices_.size() << " convolution shapes are in " << file_;
  else
    LOG(WARNING) << "the choice of kernels could not be saved, so the next run measures again: "
                 << status.error().message;
}

void ConvTuning::measure(const ConvDesc& desc, const Context& ctx, const PassSet& use) {
  if (desc.is_empty()) return;
  const Key key{tuned_processor(), shape_words(desc, ctx, use)};
  if (const auto known = choices_.find(key); known != choices_.end()) {
    if (!is_here(known->second, desc, ctx, use))
      LOG(WARNING) << "kernel '" << kernel_words(known->second) << "', chosen for " << key.second
                   << ", is not in this build or not for this processor: the default kernel is "
                      "used, and results differ in their last bits from the run that chose it";
    return;
  }
  const auto start = Clock::now();
  std::vector<Timed> all;
  for (const ConvImpl* impl : backend(ctx).conv) {
    Context own(options_like(ctx));
    if (impl->supports(desc, own).empty())
      all.push_back(time_impl(*impl, desc, own, use, measure_));
  }
  const Timed rule = all.front();
  std::ranges::stable_sort(all, {}, &Timed::ms);
  std::string times;
  for (const Timed& timed : all)
    times += str(times.empty() ? "" : ", ", kernel_words(timed.choice), ' ', std::setprecision(3),
                 timed.ms, " ms");
  TunedConv& chosen = choices_[key] =
      all.front().ms < kGain * rule.ms ? all.front().choice : rule.choice;
  chosen.times = times;
  is_new_ = true;
  ++measured_;
  seconds_ += to_seconds(Clock::now() - start);
}

const TunedConv* ConvTuning::find(const ConvDesc& desc, const Context& ctx,
                                  const PassSet& use) const {
  const auto found = choices_.find({tuned_processor(), shape_words(desc, ctx, use)});
  if (found == choices_.end() || !impl_named(found->second.impl, desc, ctx)) return nullptr;
  return &found->second;
}

}  // namespace shoal::ops
