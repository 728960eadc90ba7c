#include "support/library_device.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "shoal/ops/backend.h"
#include "shoal/ops/cpu/impls.h"
#include "support/borrow.h"

namespace shoal::test {
namespace {

// Copies blocks of `size` floats, `count` of them, in reverse order.
void reverse_blocks(std::int64_t count, std::int64_t size, const float* from, float* to) {
  for (std::int64_t i = 0; i < count; ++i)
    std::copy_n(from + i * size, size, to + (count - 1 - i) * size);
}

class ReversedChannels final : public Layout {
 public:
  bool equals(const Layout& other) const override {
    return dynamic_cast<const ReversedChannels*>(&other) != nullptr;
  }
  std::size_t bytes(const Shape& shape) const override {
    constexpr std::size_t kPadding = 100;
    return static_cast<std::size_t>(shape.count()) * sizeof(float) + kPadding;
  }
  void pack(const Shape& shape, const float* plain, std::byte* packed) const override {
    each_image(shape, plain, reinterpret_cast<float*>(packed));
  }
  void unpack(const Shape& shape, const std::byte* packed, float* plain) const override {
    each_image(shape, reinterpret_cast<const float*>(packed), plain);
  }

 private:
  static void each_image(const Shape& shape, const float* from, float* to) {
    const std::int64_t image = shape.count() / shape[0], channel = image / shape[1];
    for (std::int64_t n = 0; n < shape[0]; ++n)
      reverse_blocks(shape[1], channel, from + n * image, to + n * image);
  }
};

const LayoutPtr& reversed() {
  static const LayoutPtr layout = std::make_shared<ReversedChannels>();
  return layout;
}

// The library's bytes of a tensor, as a plain tensor of the same shape.
Tensor read(Context& ctx, const Tensor& tensor) {
  return borrow(tensor.shape(), const_cast<std::byte*>(tensor.read(ctx, reversed())));
}
Tensor write(Context& ctx, Tensor& tensor) {
  return borrow(tensor.shape(), tensor.write(ctx, reversed()));
}

// Weights (K, C, T...) or a bias (K), in reverse order of outputs and channels.
void reverse_weights(const Tensor& from, Tensor& to) {
  const Shape& shape = from.shape();
  const std::int64_t outputs = shape[0], one = shape.count() / outputs;
  const std::int64_t channels = shape.axes() > 1 ? shape[1] : 1;
  std::vector<float> turned(static_cast<std::size_t>(shape.count()));
  for (std::int64_t k = 0; k < outputs; ++k)
    reverse_blocks(channels, one / channels, from.in() + k * one, turned.data() + k * one);
  reverse_blocks(outputs, one, turned.data(), to.out());
}

// A copy of weights in the library's order, made anew when they have changed.
class Packed {
 public:
  const Tensor& of(const Context& ctx, const Tensor& weights) {
    if (version_ != weights.storage()->version()) {
      copy_.reshape(weights.shape());
      reverse_weights(weights, copy_);
      version_ = weights.storage()->version();
      ++static_cast<const LibraryDevice&>(ctx.device()).packed_weights;
    }
    return copy_;
  }

 private:
  Tensor copy_;
  std::optional<std::uint64_t> version_;
};

// Takes a gradient that a plain kernel adds to in the library's order, then adds it to `sum`.
class ReversedSum {
 public:
  explicit ReversedSum(Tensor* sum) : sum_(sum) {
    if (sum) turned_.reshape(sum->shape());
  }
  Tensor* tensor() { return sum_ ? &turned_ : nullptr; }
  void add() {
    if (!sum_) return;
    Tensor plain(sum_->shape());
    reverse_weights(turned_, plain);
    for (std::int64_t i = 0; i < sum_->count(); ++i) sum_->mut()[i] += plain.in()[i];
  }

 private:
  Tensor* sum_;
  Tensor turned_;
};

class LibraryConv final : public ops::ConvKernel {
 public:
  explicit LibraryConv(std::unique_ptr<ops::ConvKernel> plain) : plain_(std::move(plain)) {}

  KernelNeeds needs(const Context& ctx) const override {
    return {plain_->needs(ctx).workspace, reversed(), reversed()};
  }
  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    const Tensor in = read(ctx, x), *bias = b ? &bias_.of(ctx, *b) : nullptr;
    Tensor out = write(ctx, y);
    plain_->forward(ctx, in, weights_.of(ctx, w), bias, out);
  }
  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const Tensor in = read(ctx, x), slope = read(ctx, dy);
    ReversedSum weights(dw), bias(db);
    std::optional<Tensor> out;
    if (dx) out = write(ctx, *dx);
    plain_->backward(ctx, in, weights_.of(ctx, w), slope, out ? &*out : nullptr, weights.tensor(),
                     bias.tensor());
    weights.add();
    bias.add();
  }

 private:
  std::unique_ptr<ops::ConvKernel> plain_;
  Packed weights_, bias_;
};

class LibraryPool final : public ops::PoolKernel {
 public:
  explicit LibraryPool(std::unique_ptr<ops::PoolKernel> plain) : plain_(std::move(plain)) {}

  KernelNeeds needs(const Context&) const override { return {0, reversed(), reversed()}; }
  void forward(Context& ctx, const Tensor& x, Tensor& y, Tensor* index,
               const Random::State& coins) override {
    const Tensor in = read(ctx, x);
    Tensor out = write(ctx, y);
    plain_->forward(ctx, in, out, index, coins);
  }
  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    const Tensor in = read(ctx, x), slope = read(ctx, dy);
    Tensor out = write(ctx, dx);
    plain_->backward(ctx, in, slope, out);
  }

 private:
  std::unique_ptr<ops::PoolKernel> plain_;
};

constexpr ops::ConvImpl kLibraryConv = {
    "library",
    [](const ops::ConvDesc& desc, const Context&) {
      return desc.groups == 1 ? ops::kYes : ops::Why("it has no groups");
    },
    [](const ops::ConvDesc& desc, Context& ctx) -> std::unique_ptr<ops::ConvKernel> {
      return std::make_unique<LibraryConv>(ops::cpu::kConv.make(desc, ctx));
    }};
constexpr ops::PoolImpl kLibraryPool = {
    "library", [](const ops::PoolDesc&, const Context&) { return ops::kYes; },
    [](const ops::PoolDesc& desc, Context& ctx) -> std::unique_ptr<ops::PoolKernel> {
      return std::make_unique<LibraryPool>(ops::cpu::kPool.make(desc, ctx));
    }};
constexpr const ops::ConvImpl* kLibraryConvs[] = {&kLibraryConv, &ops::cpu::kConv};
constexpr const ops::PoolImpl* kLibraryPools[] = {&kLibraryPool};

}  // namespace

const ops::Backend* LibraryDevice::backend() const {
  static const ops::Backend backend = [] {
    ops::Backend changed = ops::cpu_backend();
    changed.conv = kLibraryConvs;
    changed.pool = kLibraryPools;
    return changed;
  }();
  return &backend;
}

}  // namespace shoal::test
