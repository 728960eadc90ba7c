#include "shoal/ops/blocked_channels.h"

#include <algorithm>

namespace shoal::ops {
namespace {

// Calls f(the image's first number in plain order, in blocks, channels in the block) for each block
// of channels of each image.
template <class F>
void each_block(const BlockedChannels& layout, const Shape& shape, F f) {
  const std::int64_t image = layout.channels * layout.inner;
  const std::int64_t images = image == 0 ? 0 : shape.count() / image;
  const std::int64_t step = layout.inner * layout.block;
  for (std::int64_t n = 0; n < images; ++n)
    for (std::int64_t b = 0; b < layout.blocks(); ++b)
      f(n * image + b * step, (n * layout.blocks() + b) * step,
        std::min<std::int64_t>(layout.block, layout.channels - b * layout.block));
}

template <class N>
void pack_as(const BlockedChannels& layout, const Shape& shape, const float* plain, N* packed) {
  const std::int64_t inner = layout.inner, block = layout.block;
  each_block(layout, shape, [&](std::int64_t from, std::int64_t to, std::int64_t channels) {
    for (std::int64_t s = 0; s < inner; ++s) {
      for (std::int64_t c = 0; c < channels; ++c)
        packed[to + s * block + c] = number<N>(plain[from + c * inner + s]);
      for (std::int64_t c = channels; c < block; ++c) packed[to + s * block + c] = N{};
    }
  });
}

template <class N>
void unpack_as(const BlockedChannels& layout, const Shape& shape, const N* packed, float* plain) {
  const std::int64_t inner = layout.inner, block = layout.block;
  each_block(layout, shape, [&](std::int64_t to, std::int64_t from, std::int64_t channels) {
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t s = 0; s < inner; ++s)
        plain[to + c * inner + s] = value(packed[from + s * block + c]);
  });
}

}  // namespace

BlockedChannels::BlockedChannels(std::int64_t channels_of_all, std::int64_t places, int lanes,
                                 NumberType number_type)
    : channels(channels_of_all), inner(places), block(lanes), type(number_type) {}

bool BlockedChannels::equals(const Layout& other) const {
  const auto* const same = dynamic_cast<const BlockedChannels*>(&other);
  return same != nullptr && channels == same->channels && inner == same->inner &&
         block == same->block && type == same->type;
}

std::size_t BlockedChannels::bytes(const Shape& shape) const {
  const std::int64_t image = channels * inner;
  const std::int64_t images = image == 0 ? 0 : shape.count() / image;
  return static_cast<std::size_t>(images * blocks() * inner * block * size_of(type));
}

void BlockedChannels::pack(const Shape& shape, const float* plain, std::byte* packed) const {
  if (type == NumberType::kFloat32)
    pack_as(*this, shape, plain, reinterpret_cast<float*>(packed));
  else
    pack_as(*this, shape, plain, reinterpret_cast<Bfloat16*>(packed));
}

void BlockedChannels::unpack(const Shape& shape, const std::byte* packed, float* plain) const {
  if (type == NumberType::kFloat32)
    unpack_as(*this, shape, reinterpret_cast<const float*>(packed), plain);
  else
    unpack_as(*this, shape, reinterpret_cast<const Bfloat16*>(packed), plain);
}

LayoutPtr BlockedChannels::like(const Shape& shape) const {
  if (shape.axes() < 2) return nullptr;
  return blocked_channels(shape[1], shape.count(2), block, type);
}

LayoutPtr blocked_channels(std::int64_t channels, std::int64_t inner, int block, NumberType type) {
  if (type == NumberType::kFloat32 && inner == 1 && channels % block == 0) return nullptr;
  return std::make_shared<BlockedChannels>(channels, inner, block, type);
}

const BlockedChannels* as_blocked(const LayoutPtr& layout) {
  const auto* const blocked = dynamic_cast<const BlockedChannels*>(layout.get());
  return blocked != nullptr && blocked->block > 1 ? blocked : nullptr;
}

NumberType number_type(const LayoutPtr& layout) {
  const auto* const blocked = dynamic_cast<const BlockedChannels*>(layout.get());
  return blocked != nullptr ? blocked->type : NumberType::kFloat32;
}

const BlockedChannels* as_blocked(const LayoutPtr& layout, std::int64_t channels,
                                  std::int64_t inner) {
  const BlockedChannels* const blocked = as_blocked(layout);
  const bool fits = blocked && blocked->channels == channels && blocked->inner == inner;
  return fits ? blocked : nullptr;
}

}  // namespace shoal::ops
