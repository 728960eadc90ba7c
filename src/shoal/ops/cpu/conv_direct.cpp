#include "shoal/ops/cpu/conv_direct.h"

#include <algorithm>
#include <array>
#include <optional>

#include "shoal/ops/cpu/columns.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/lanes.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/relu.h"

namespace shoal::ops::cpu {
namespace {

// of a tile: with two vectors each, twelve of sixteen registers
constexpr std::int64_t kRows = 6;
constexpr std::int64_t kPanel = 16;   // columns of a tile; the last panel may have 8
constexpr std::int64_t kChunk = 240;  // places at a time: their sums stay in the first cache
constexpr std::int64_t kDepth = 160;  // terms at a time: a panel of b stays there too

// sums[row][column] += sum over t < terms of base[row][offset[t]] * b[t][column], 6 rows by
// kVectors * 8 columns. The new terms are added up before they meet the old sum: a long sum in
// short pieces keeps its last digits.
template <int kVectors>
void add_tile(std::int64_t terms, const float* const* base, const std::int32_t* offset,
              const float* b, float* sums) {
  constexpr int kWidth = kVectors * kLanes;
  const float *p0 = base[0], *p1 = base[1], *p2 = base[2], *p3 = base[3], *p4 = base[4],
              *p5 = base[5];
  Lanes sum[kRows][kVectors] = {};
  for (std::int64_t t = 0; t < terms; ++t, b += kWidth) {
    const std::int64_t at = offset[t];
    const float x[kRows] = {p0[at], p1[at], p2[at], p3[at], p4[at], p5[at]};
    Lanes column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = load(b + v * kLanes);
    for (int row = 0; row < kRows; ++row)
      for (int v = 0; v < kVectors; ++v) sum[row][v] += x[row] * column[v];
  }
  for (int row = 0; row < kRows; ++row)
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums + row * kWidth + v * kLanes;
      store(load(to) + sum[row][v], to);
    }
}

// Columns in panels of 16, the last of 8 if that will do.
struct Panels {
  std::int64_t columns;
  std::int64_t count() const { return (columns + kPanel - 1) / kPanel; }
  std::int64_t valid(std::int64_t panel) const {
    return std::min(kPanel, columns - panel * kPanel);
  }
  std::int64_t width(std::int64_t panel) const { return valid(panel) > kLanes ? kPanel : kLanes; }
  std::int64_t total() const { return (count() - 1) * kPanel + width(count() - 1); }
};

void add_tile(std::int64_t width, std::int64_t terms, const float* const* base,
              const std::int32_t* offset, const float* b, float* sums) {
  if (width == kPanel)
    add_tile<2>(terms, base, offset, b, sums);
  else
    add_tile<1>(terms, base, offset, b, sums);
}

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// One of the two products that make places from places: forward, or dx.
class Product {
 public:
  // `planes` are summed over, `columns` are made, for each of `groups`.
  Product(WindowTables sight, std::int64_t planes, std::int64_t columns, std::int64_t groups)
      : windows_(std::move(sight)), planes_(planes), groups_(groups), panels_{columns} {
    for (const Phase& phase : windows_.phases) {
      std::vector<std::int32_t>& offsets = offsets_.emplace_back();
      for (std::int64_t plane = 0; plane < planes; ++plane)
        for (const std::int32_t at : phase.offset)
          offsets.push_back(static_cast<std::int32_t>(plane * windows_.border.plane() + at));
      terms_ += static_cast<std::int64_t>(offsets.size());
      made_ += static_cast<std::int64_t>(phase.places.size());
    }
  }

  const Border& border() const { return windows_.border; }
  const Phase& phase() const { return windows_.phases[0]; }
  const std::vector<std::int32_t>& offsets() const { return offsets_[0]; }
  const Panels& panels() const { return panels_; }
  std::int64_t packed_count() const { return groups_ * terms_ * panels_.total(); }
  // places of one plane that is made
  std::int64_t made() const { return made_; }
  // numbers of one image and group, bordered
  std::int64_t image() const { return planes_ * windows_.border.plane(); }

  // Where the weights of a panel stand in w: the weight of (plane, column, tap) is at plane *
  // plane_stride + column * column_stride + tap, from the group's begin on.
  struct Weights {
    const float* data;
    std::int64_t group_stride, plane_stride, column_stride;
  };

  // packed[group][phase][panel][term][column], zeros for columns that are not there.
  void pack(int threads, const Weights& w, float* packed) const {
    parallel_for(
        threads, groups_ * panels_.count(), 1, [&](int, std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t group = i / panels_.count(), panel = i % panels_.count(),
                               width = panels_.width(panel);
            const float* from = w.data + group * w.group_stride + panel * kPanel * w.column_stride;
            float* phase_begin = packed + group * terms_ * panels_.total();
            for (std::size_t p = 0; p < windows_.phases.size(); ++p) {
              float* to = phase_begin + panel * kPanel * terms(p);
              for (std::int64_t plane = 0; plane < planes_; ++plane)
                for (const std::int32_t tap : windows_.phases[p].taps)
                  for (std::int64_t column = 0; column < width; ++column)
                    *to++ = column < panels_.valid(panel)
                                ? from[plane * w.plane_stride + column * w.column_stride + tap]
                                : 0.0f;
              phase_begin += panels_.total() * terms(p);
            }
          }
        });
  }

  // Makes the places of `images` images of one group: `in` is bordered, images `in_stride` apart;
  // `out` is the group's first plane, images `out_stride` apart. Panels first, first + step, ...
  // `bias` may be null. A ReLU of slope `relu`, if there is one, is applied to what is made. `sums`
  // is room for kSums numbers.
  static constexpr std::int64_t kSums = kChunk * kPanel;
  void run(std::int64_t images, const float* in, std::int64_t in_stride, const float* packed,
           const float* bias, std::optional<float> relu, std::int64_t first, std::int64_t step,
           float* out, std::int64_t out_stride, float* sums) const {
    for (std::size_t p = 0; p < windows_.phases.size(); ++p) {
      const Phase& phase = windows_.phases[p];
      const std::int64_t places = static_cast<std::int64_t>(phase.places.size());
      for (std::int64_t begin = 0; begin < images * places; begin += kChunk) {
        const std::int64_t rows = std::min(kChunk, images * places - begin);
        std::array<const float*, kChunk + kRows> base;
        for (std::int64_t row = 0; row < round_up(rows, kRows); ++row) {
          const std::int64_t at = begin + std::min(row, rows - 1);
          base[row] = in + at / places * in_stride + phase.base[at % places];
        }
        for (std::int64_t panel = first; panel < panels_.count(); panel += step) {
          sum_panel(p, panel, rows, base.data(), packed + panel * kPanel * terms(p), bias, sums);
          if (relu) relu_in_place(*relu, sums, rows * panels_.width(panel));
          put(phase, begin, rows, panel, sums, out, out_stride);
        }
      }
      packed += panels_.total() * terms(p);
    }
  }

  // Of one group's packed weights.
  const float* of_group(const float* packed, std::int64_t group) const {
    return packed + group * terms_ * panels_.total();
  }

 private:
  std::int64_t terms(std::size_t phase) const {
    return static_cast<std::int64_t>(offsets_[phase].size());
  }

  void sum_panel(std::size_t phase, std::int64_t panel, std::int64_t rows, const float* const* base,
                 const float* b, const float* bias, float* sums) const {
    const std::int64_t width = panels_.width(panel);
    float start[kPanel] = {};
    if (bias != nullptr) std::copy_n(bias + panel * kPanel, panels_.valid(panel), start);
    for (std::int64_t row = 0; row < round_up(rows, kRows); ++row)
      std::copy(start, start + width, sums + row * width);
    for (std::int64_t t = 0; t < terms(phase); t += kDepth)
      for (std::int64_t row = 0; row < rows; row += kRows)
        add_tile(width, std::min(kDepth, terms(phase) - t), base + row, offsets_[phase].data() + t,
                 b + t * width, sums + row * width);
  }

  // Sums of `rows` places from place `begin` on, counted over the images, go to their planes.
  void put(const Phase& phase, std::int64_t begin, std::int64_t rows, std::int64_t panel,
           const float* sums, float* out, std::int64_t out_stride) const {
    const std::int64_t places = static_cast<std::int64_t>(phase.places.size()),
                       width = panels_.width(panel);
    for (std::int64_t done = 0; done < rows;) {
      const std::int64_t place = (begin + done) % places,
                         count = std::min(rows - done, places - place);
      float* to = out + (begin + done) / places * out_stride + panel * kPanel * made_;
      const float* from = sums + done * width;
      if (phase.contiguous)
        transpose(count, panels_.valid(panel), from, width, to + place, made_, Into::kOverwrite);
      else
        for (std::int64_t column = 0; column < panels_.valid(panel); ++column)
          for (std::int64_t i = 0; i < count; ++i)
            to[column * made_ + phase.places[place + i]] = from[i * width + column];
      done += count;
    }
  }

  WindowTables windows_;
  std::int64_t planes_, groups_, terms_ = 0, made_ = 0;
  Panels panels_;
  std::vector<std::vector<std::int32_t>> offsets_;  // for each phase, for each plane and tap
};

// Whether dx as a sum over windows of dy would mostly multiply by the border's zeros (small planes,
// no padding).
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
    const Product::Weights weights{w.in(), outputs_ * depth_, desc_.taps(), depth_};
    make(ctx, forward_, x.in(), weights, b == nullptr ? nullptr : b->in(), desc_.relu, y.out(),
         desc_.channels, desc_.outputs);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    if (db != nullptr) add_bias_gradient(ctx, desc_.outputs, forward_.made(), dy, *db);
    if (dw != nullptr) add_weight_gradient(ctx, x.in(), dy.in(), dw->mut());
    if (dx == nullptr) return;
    if (plain_dx_) return plain_->backward(ctx, x, w, dy, dx, nullptr, nullptr);
    const Product::Weights weights{w.in(), outputs_ * depth_, depth_, desc_.taps()};
    make(ctx, backward_, dy.in(), weights, nullptr, std::nullopt, dx->out(), desc_.outputs,
         desc_.channels);
  }

 private:
  // How the work is divided: among the threads by images, some at a time, or with fewer images than
  // threads by panels: then each thread has every `splits`-th panel of all images, and no two have
  // the same.
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
  Room room_of(const Context& ctx, const Product& product) const {
    const std::int64_t planes = room_for_planes(product, divide(ctx.threads(), product.made()));
    const std::int64_t packed = round_up(product.packed_count(), kPanel);
    const std::int64_t own = planes + Product::kSums;
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
  static std::int64_t room_for_planes(const Product& product, const Tasks& tasks) {
    return product.border().needed() ? round_up(tasks.images * product.image(), kPanel) : 0;
  }

  // f(thread, first image, images, split).
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
  static Planes border(const Product& product, const float* in, std::int64_t image_stride,
                       std::int64_t images, std::int64_t planes, float* room) {
    if (!product.border().needed()) return {in, image_stride};
    for (std::int64_t n = 0; n < images; ++n)
      product.border().copy(in + n * image_stride, planes, room + n * product.image());
    return {room, product.image()};
  }

  void make(Context& ctx, const Product& product, const float* in, const Product::Weights& w,
            const float* bias, std::optional<float> relu, float* out, std::int64_t in_planes,
            std::int64_t out_planes) const {
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
  // Numbers of a plane without its border.
  std::int64_t in_plane(const Product& product) const {
    return &product == &forward_ ? desc_.in_count() : desc_.out_count();
  }

  void add_weight_gradient(Context& ctx, const float* x, const float* dy, float* dw) const {
    const Product& product = forward_;
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

  // dw += the shares, in their order.
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
  Product forward_, backward_;
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
