#include <algorithm>
#include <array>
#include <optional>

#include "shoal/ops/cpu/columns.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/window_product.h"

namespace shoal::ops::cpu {
namespace {

// Returns whether dx as a sum over windows of dy would mostly multiply by the border's zeros (small
// planes, no padding).
bool mostly_border(const ConvDesc& desc) {
  double ratio = 1;  // of the products made to those needed
  for (const WindowAxis& axis : desc.axes)
    ratio *= static_cast<double>(axis.in) / static_cast<double>(axis.out * axis.stride);
  return ratio > 1.5;
}

// Reads x where it lies, by tables, and keeps sums in registers: no columns, no memory but a
// bordered copy of an image or two. Products that the plain kernel makes faster are left to it.
class Direct final : public ConvKernel {
 public:
  Direct(const ConvDesc& desc, Context& ctx)
      : desc_(with_two_axes(desc)),
        channels_(desc.channels / desc.groups),
        outputs_(desc.outputs / desc.groups),
        depth_(channels_ * desc.taps()),
        plain_forward_(sees_itself(desc)),
        plain_dx_(sees_itself(desc) || mostly_border(desc) || channels_ < kLanes),
        forward_(forward_windows(desc_), channels_, outputs_, desc.groups),
        backward_(backward_windows(desc_), outputs_, channels_, desc.groups),
        plain_(kConv.make(desc, ctx)) {}

  KernelNeeds needs(const Context& ctx) const override {
    const Room forward = room_of(ctx, forward_), backward = room_of(ctx, backward_);
    const SumsRoom sums = sums_room(ctx);
    std::int64_t workspace = std::max({forward.total, backward.total, sums.total});
    if (plain_forward_ || plain_dx_) workspace = std::max(workspace, plain_->needs(ctx).workspace);
    return {.workspace = workspace};
  }

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    if (plain_forward_) return plain_->forward(ctx, x, w, b, y);
    const WindowProduct::Weights weights{w.in(), outputs_ * depth_, desc_.taps(), depth_};
    make(ctx, forward_, x.in(), weights, b == nullptr ? nullptr : b->in(), desc_.relu, y.out(),
         desc_.channels, desc_.outputs);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    if (db != nullptr) add_bias_gradient(ctx, desc_.outputs, forward_.made(), dy, *db);
    if (dw != nullptr) add_weight_gradient(ctx, x.in(), dy.in(), sums_of(desc_, *dw));
    if (dx == nullptr) return;
    if (plain_dx_) return plain_->backward(ctx, x, w, dy, dx, nullptr, nullptr);
    const WindowProduct::Weights weights{w.in(), outputs_ * depth_, depth_, desc_.taps()};
    make(ctx, backward_, dy.in(), weights, nullptr, std::nullopt, dx->out(), desc_.outputs,
         desc_.channels);
  }

 private:
  // The division of the work: among the threads by images, some at a time, or with fewer images
  // than threads by panels. Then each thread has every `splits`-th panel of all images, and no two
  // have the same.
  struct Tasks {
    std::int64_t images, splits;
  };
  Tasks divide(int threads, std::int64_t places) const {
    const std::int64_t share = (desc_.images + threads - 1) / threads,
                       wanted = (kChunk + places - 1) / places;
    return {std::clamp<std::int64_t>(wanted, 1, share), desc_.images < threads ? threads : 1};
  }
  // Floats of scratch for a product: packed weights, then for each thread its planes and sums.
  struct Room {
    std::int64_t planes, packed, own, total;
  };
  Room room_of(const Context& ctx, const WindowProduct& product) const {
    const std::int64_t planes = room_for_planes(product, divide(ctx.threads(), product.made()));
    const std::int64_t packed = round_up(product.packed_count(), kPanel);
    const std::int64_t own = planes + WindowProduct::kSums;
    return {planes, packed, own, packed + ctx.threads() * own};
  }
  // The same for the gradient of the weights: sums of each share, then each thread's planes and
  // columns.
  struct SumsRoom {
    std::int64_t planes, sums, shares, own, total;
  };
  SumsRoom sums_room(const Context& ctx) const {
    const Tasks tasks = divide(ctx.threads(), forward_.made());
    const std::int64_t planes = room_for_planes(forward_, tasks);
    const std::int64_t sums = desc_.groups * forward_.panels().total() * round_up(depth_, kRows);
    const std::int64_t shares = tasks.splits > 1 ? 1 : ctx.threads();
    const std::int64_t own = planes + kChunk * kPanel;
    return {planes, sums, shares, own, shares * sums + ctx.threads() * own};
  }
  static std::int64_t room_for_planes(const WindowProduct& product, const Tasks& tasks) {
    return product.border().needed() ? round_up(tasks.images * product.image(), kPanel) : 0;
  }

  // Calls f(thread, first image, images, split) for each task.
  template <class F>
  void each_task(int threads, const Tasks& tasks, F f) const {
    parallel_for(threads, tasks.splits > 1 ? tasks.splits : desc_.images, 1,
                 [&](int thread, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t n = begin; tasks.splits == 1 && n < end; n += tasks.images)
                     f(thread, n, std::min(tasks.images, end - n), 0);
                   for (std::int64_t split = begin; tasks.splits > 1 && split < end; ++split)
                     for (std::int64_t n = 0; n < desc_.images; ++n) f(thread, n, 1, split);
                 });
  }

  // The planes of some images of one group, bordered: where they lie, or a copy in `room`.
  struct Planes {
    const float* data;
    std::int64_t stride;  // from image to image
  };
  static Planes border(const WindowProduct& product, const float* in, std::int64_t image_stride,
                       std::int64_t images, std::int64_t planes, float* room) {
    if (!product.border().needed()) return {in, image_stride};
    for (std::int64_t n = 0; n < images; ++n)
      product.border().copy(in + n * image_stride, planes, room + n * product.image());
    return {room, product.image()};
  }

  void make(Context& ctx, const WindowProduct& product, const float* in,
            const WindowProduct::Weights& w, const float* bias, std::optional<float> relu,
            float* out, std::int64_t in_planes, std::int64_t out_planes) const {
    const Tasks tasks = divide(ctx.threads(), product.made());
    const Room room = room_of(ctx, product);
    float* packed = ctx.scratch(room.total).data();
    product.pack(ctx.threads(), w, packed);
    const std::int64_t in_image = in_planes * in_plane(product),
                       out_image = out_planes * product.made(), groups = desc_.groups;
    each_task(ctx.threads(), tasks,
              [&](int thread, std::int64_t first, std::int64_t images, std::int64_t split) {
                float* mine = packed + room.packed + thread * room.own;
                for (std::int64_t group = 0; group < groups; ++group) {
                  const float* group_in = in + first * in_image + group * (in_image / groups);
                  const Planes planes =
                      border(product, group_in, in_image, images, in_planes / groups, mine);
                  product.run(images, planes.data, planes.stride, product.of_group(packed, group),
                              bias == nullptr ? nullptr : bias + group * (out_planes / groups),
                              relu, split, tasks.splits,
                              out + first * out_image + group * (out_image / groups), out_image,
                              mine + room.planes);
                }
              });
  }
  // Returns the numbers of a plane without its border.
  std::int64_t in_plane(const WindowProduct& product) const {
    return &product == &forward_ ? desc_.in_count() : desc_.out_count();
  }

  void add_weight_gradient(Context& ctx, const float* x, const float* dy, float* dw) const {
    const WindowProduct& product = forward_;
    const Tasks tasks = divide(ctx.threads(), product.made());
    const SumsRoom room = sums_room(ctx);
    const std::int64_t sums = room.sums, shares = room.shares, rows = round_up(depth_, kRows);
    float* total = ctx.scratch(room.total).data();
    std::fill(total, total + shares * sums, 0.0f);
    const std::int64_t in_image = desc_.channels * desc_.in_count(),
                       out_image = desc_.outputs * product.made();
    const std::int64_t groups = desc_.groups;
    each_task(ctx.threads(), tasks,
              [&](int thread, std::int64_t first, std::int64_t images, std::int64_t split) {
                float* mine = total + shares * sums + thread * room.own;
                for (std::int64_t group = 0; group < groups; ++group) {
                  const Planes planes =
                      border(product, x + first * in_image + group * (in_image / groups), in_image,
                             images, channels_, mine);
                  float* share = total + (shares == 1 ? 0 : thread) * sums +
                                 group * product.panels().total() * rows;
                  sum_weights(images, planes, dy + first * out_image + group * (out_image / groups),
                              out_image, split, tasks.splits, mine + room.planes, share);
                }
              });
    collect(ctx, total, shares, sums, dw);
  }

  // Adds some images' part to share[panel][depth][column].
  void sum_weights(std::int64_t images, const Planes& planes, const float* dy,
                   std::int64_t dy_stride, std::int64_t first, std::int64_t step, float* columns,
                   float* share) const {
    const Phase& phase = forward_.phase();
    const Panels& panels = forward_.panels();
    const std::int64_t places = forward_.made(), rows = round_up(depth_, kRows);
    for (std::int64_t begin = 0; begin < images * places; begin += kChunk) {
      const std::int64_t count = std::min(kChunk, images * places - begin);
      std::array<std::int32_t, kChunk> offset;
      for (std::int64_t i = 0; i < count; ++i)
        offset[i] = static_cast<std::int32_t>((begin + i) / places * planes.stride +
                                              phase.base[(begin + i) % places]);
      for (std::int64_t panel = first; panel < panels.count(); panel += step) {
        const std::int64_t width = panels.width(panel), valid = panels.valid(panel);
        if (valid < width) std::fill(columns, columns + count * width, 0.0f);
        for (std::int64_t done = 0; done < count;) {
          const std::int64_t place = (begin + done) % places,
                             run = std::min(count - done, places - place);
          const float* from =
              dy + (begin + done) / places * dy_stride + panel * kPanel * places + place;
          transpose(valid, run, from, places, columns + done * width, width, Into::kOverwrite);
          done += run;
        }
        float* sums = share + panel * kPanel * rows;
        for (std::int64_t row = 0; row < depth_; row += kRows) {
          const float* base[kRows];
          for (std::int64_t i = 0; i < kRows; ++i)
            base[i] = planes.data + forward_.offsets()[std::min(row + i, depth_ - 1)];
          add_tile(width, count, base, offset.data(), columns, sums + row * width);
        }
      }
    }
  }

  // Adds the shares to dw, in their order.
  void collect(Context& ctx, float* total, std::int64_t shares, std::int64_t sums,
               float* dw) const {
    const Panels& panels = forward_.panels();
    const std::int64_t rows = round_up(depth_, kRows);
    parallel_for(ctx.threads(), desc_.groups * panels.count(), 1,
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t group = i / panels.count(), panel = i % panels.count(),
                                        width = panels.width(panel);
                     float* sum = total + (group * panels.total() + panel * kPanel) * rows;
                     for (std::int64_t s = 1; s < shares; ++s)
                       for (std::int64_t j = 0; j < depth_ * width; ++j)
                         sum[j] += sum[s * sums + j];
                     transpose(depth_, panels.valid(panel), sum, width,
                               dw + (group * outputs_ + panel * kPanel) * depth_, depth_,
                               Into::kAdd);
                   }
                 });
  }

  ConvDesc desc_;
  std::int64_t channels_, outputs_, depth_;  // of one group
  bool plain_forward_, plain_dx_;
  WindowProduct forward_, backward_;
  std::unique_ptr<ConvKernel> plain_;
};

std::unique_ptr<ConvKernel> make_direct(const ConvDesc& desc, Context& ctx) {
  return std::make_unique<Direct>(desc, ctx);
}

Why supports(const ConvDesc& desc, const Context&) {
#if defined(__AVX2__) && defined(__FMA__)
  constexpr bool kEnoughRegisters = true;
#else
  constexpr bool kEnoughRegisters = false;
#endif
  if (!kEnoughRegisters) return "was compiled for a processor without AVX2";
  if (desc.outputs / desc.groups < kLanes)
    return str("makes ", kLanes, " outputs at a time, and a group has ",
               desc.outputs / desc.groups);
  if (desc.channels / desc.groups * desc.taps() < 4 * kPanel)
    return "gains nothing where an output is a sum of few terms";
  double phases = 1, plane = static_cast<double>(desc.channels + desc.outputs);
  for (const WindowAxis& axis : desc.axes) {
    phases *= static_cast<double>(axis.stride);
    plane *= static_cast<double>(std::max(axis.in, axis.out) + 2 * axis.pad +
                                 axis.kernel * axis.dilation);
  }
  if (phases > 64) return "needs tables for every stride, and these are large";
  if (plane * static_cast<double>(kChunk) > 2e9)
    return "counts places in 32 bits, and the planes are too large";
  return kYes;
}

}  // namespace

const ConvImpl kConvDirect{"direct", supports, make_direct};

}  // namespace shoal::ops::cpu
