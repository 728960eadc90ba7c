#include "shoal/ops/slice.h"

#include <cstring>
#include <memory>
#include <optional>

#include "shoal/base/log.h"
#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

// A box as rows of numbers that lie together both in the box and in the tensor round it.
class SliceRows {
 public:
  SliceRows(const Shape& box, const Shape& whole, Offset offset)
      : box_(box), whole_(whole), offset_(offset) {
    CHECK(box.axes() == whole.axes() && offset.size() == box.dims().size())
        << "box " << box.str() << " in " << whole.str() << " at an offset of " << offset.size()
        << " axes";
    for (int i = 0; i < box.axes(); ++i)
      CHECK(at(i) >= 0 && at(i) + box[i] <= whole[i])
          << "box " << box.str() << " in " << whole.str() << ": axis " << i << " at " << at(i);
    outer_ = box.axes();
    // The rows leave out axes that the box fills.
    while (outer_ > 0 && box[outer_ - 1] == whole[outer_ - 1]) --outer_;
    // They leave out one more, of which the box takes a stretch.
    if (outer_ > 0) --outer_;
  }
  std::int64_t length() const { return box_.count(outer_); }
  std::int64_t count() const { return length() == 0 ? 0 : box_.count() / length(); }
  // Returns where row `row` begins in the tensor round the box.
  std::int64_t start(std::int64_t row) const {
    std::int64_t position = 0, stride = 1;
    for (int i = box_.axes() - 1; i >= 0; --i) {
      const std::int64_t index = i < outer_ ? row % box_[i] : 0;
      if (i < outer_) row /= box_[i];
      position += (at(i) + index) * stride;
      stride *= whole_[i];
    }
    return position;
  }

 private:
  std::int64_t at(int axis) const { return offset_[static_cast<std::size_t>(axis)]; }
  const Shape &box_, &whole_;
  Offset offset_;
  int outer_ = 0;  // axes that rows are counted over
};

// Calls f(where a row begins in the box, where it begins round it, its length) for each row.
template <class F>
void for_rows(Context& ctx, const SliceRows& rows, F f) {
  const std::int64_t length = rows.length();
  parallel_for(ctx.threads(), rows.count(), grain_of(length),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   f(row * length, rows.start(row), length);
               });
}

void copy(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

// The blocks of a part of the channels in a tensor of blocks, if the box is all of each image but
// for its channels and whole blocks of these.
struct BlockSlice {
  LayoutPtr part, whole;
  std::int64_t images = 0, part_image = 0, whole_image = 0, first = 0;  // in bytes but for images
};
std::optional<BlockSlice> slice_of_blocks(const LayoutPtr& known, const Tensor& part,
                                          const Tensor& whole, Offset at) {
  const BlockedChannels* const blocked = as_blocked(known);
  if (blocked == nullptr || part.shape().axes() < 3) return std::nullopt;
  for (int i = 0; i < part.shape().axes(); ++i)
    if (i != 1 && part.shape()[i] != whole.shape()[i]) return std::nullopt;
  const std::int64_t inner = part.shape().count(2), block = blocked->block,
                     channels = part.shape()[1], all = whole.shape()[1], from = at[1];
  const bool is_end = from + channels == all;
  if (from % block != 0 || (channels % block != 0 && !is_end)) return std::nullopt;
  const auto made = [&](std::int64_t c) {
    return std::make_shared<BlockedChannels>(c, inner, blocked->block, blocked->type);
  };
  const std::shared_ptr<BlockedChannels> small = made(channels), large = made(all);
  const auto image = [&](const BlockedChannels& layout) {
    return layout.blocks() * inner * block * size_of(layout.type);
  };
  return BlockSlice{blocked_channels(channels, inner, blocked->block, blocked->type),
                    blocked_channels(all, inner, blocked->block, blocked->type),
                    part.shape()[0],
                    image(*small),
                    image(*large),
                    image(*large) / large->blocks() * (from / block)};
}

// Calls f(first byte of an image in the part, in the whole, bytes) for each image.
template <class F>
void for_images(Context& ctx, const BlockSlice& slice, F f) {
  parallel_for(ctx.threads(), slice.images,
               grain_of(slice.part_image / static_cast<std::int64_t>(sizeof(float))),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = begin; n < end; ++n)
                   f(n * slice.part_image, n * slice.whole_image + slice.first,
                     static_cast<std::size_t>(slice.part_image));
               });
}

}  // namespace

void cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  if (const auto slice = slice_of_blocks(x.layout(), y, x, from)) {
    const std::byte* const in = x.read(ctx, slice->whole);
    std::byte* const out = y.write(ctx, slice->part);
    return for_images(ctx, *slice, [=](std::int64_t part, std::int64_t whole, std::size_t bytes) {
      std::memcpy(out + part, in + whole, bytes);
    });
  }
  const float* in = x.in();
  float* out = y.out();
  for_rows(ctx, SliceRows(y.shape(), x.shape(), from),
           [=](std::int64_t box, std::int64_t whole, std::int64_t length) {
             copy(out + box, in + whole, length);
           });
}

void add_cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  const float* in = x.in();
  float* out = y.mut();
  for_rows(ctx, SliceRows(y.shape(), x.shape(), from),
           [=](std::int64_t box, std::int64_t whole, std::int64_t length) {
             for (std::int64_t i = 0; i < length; ++i) out[box + i] += in[whole + i];
           });
}

void paste(Context& ctx, const Tensor& x, Tensor& y, Offset to) {
  if (const auto slice = slice_of_blocks(x.layout(), x, y, to)) {
    const std::byte* const in = x.read(ctx, slice->part);
    std::byte* const out = y.mut(ctx, slice->whole);
    return for_images(ctx, *slice, [=](std::int64_t part, std::int64_t whole, std::size_t bytes) {
      std::memcpy(out + whole, in + part, bytes);
    });
  }
  const float* in = x.in();
  float* out = y.mut();
  for_rows(ctx, SliceRows(x.shape(), y.shape(), to),
           [=](std::int64_t box, std::int64_t whole, std::int64_t length) {
             copy(out + whole, in + box, length);
           });
}

}  // namespace shoal::ops::cpu
