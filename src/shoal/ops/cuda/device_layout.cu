// Turns tensors from plain order to channels last and back, by tiles that are read and written in
// order, and from one type of numbers to another.
#include "shoal/ops/cuda/device_layout.h"

#include <algorithm>

#include "shoal/ops/cuda/elementwise.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

constexpr int kTile = 32, kRows = 8;  // of a block: a tile of kTile x kTile, kRows at a time

// Each of gridDim.z matrices (rows, columns) becomes its transpose. Blocks go over the tiles of a
// row, `across` of them, then over rows of tiles: of the axes of a grid the first alone is long
// enough for all tiles.
template <class From, class To>
__global__ void transpose_kernel(std::int64_t rows, std::int64_t columns, unsigned across,
                                 const From* from, To* to) {
  __shared__ float tile[kTile][kTile + 1];  // one more, so that columns fall into other banks
  const std::int64_t matrix = std::int64_t{blockIdx.z} * rows * columns,
                     left = std::int64_t{blockIdx.x % across} * kTile,
                     top = std::int64_t{blockIdx.x / across} * kTile;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int r = y; r < kTile; r += kRows)
    if (top + r < rows && left + x < columns)
      tile[r][x] = value(from[matrix + (top + r) * columns + left + x]);
  __syncthreads();
  for (int r = y; r < kTile; r += kRows)
    if (left + r < columns && top + x < rows)
      to[matrix + (left + r) * rows + top + x] = number<To>(tile[x][r]);
}

// `count` matrices (rows, columns) in memory.
struct Matrices {
  std::int64_t count, rows, columns;
  std::int64_t numbers() const { return count * rows * columns; }
};

template <class From, class To>
void transpose_on_host(const Matrices& all, const From* from, To* to) {
  const std::int64_t size = all.rows * all.columns;
  for (std::int64_t m = 0; m < all.count; ++m)
    for (std::int64_t r = 0; r < all.rows; ++r)
      for (std::int64_t c = 0; c < all.columns; ++c)
        to[m * size + c * all.rows + r] = number<To>(value(from[m * size + r * all.columns + c]));
}

template <class From, class To>
void transpose(shoal::cuda::CudaStream& stream, const Matrices& all, const From* from, To* to) {
  if (all.numbers() == 0) return;
  if (all.rows == 1 || all.columns == 1)
    return each(stream, "conversion", all.numbers(),
                [=] __host__ __device__(std::int64_t i) { to[i] = number<To>(value(from[i])); });
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] { transpose_on_host(all, from, to); });
    return;
  }
  constexpr std::int64_t kMostMatrices = 65535;  // of a launch: the limit of a grid's third axis
  const auto tiles = [](std::int64_t length) {
    return static_cast<unsigned>((length + kTile - 1) / kTile);
  };
  for (std::int64_t first = 0; first < all.count; first += kMostMatrices) {
    const dim3 grid(tiles(all.columns) * tiles(all.rows), 1,
                    static_cast<unsigned>(std::min(kMostMatrices, all.count - first)));
    const std::int64_t done = first * all.rows * all.columns;
    transpose_kernel<<<grid, dim3(kTile, kRows), 0, stream.handle()>>>(
        all.rows, all.columns, tiles(all.columns), from + done, to + done);
    stream.check_launch("transpose");
  }
}

const DeviceLayout& as_device_layout(const Layout& layout) {
  return static_cast<const DeviceLayout&>(layout);
}

// Describes numbers in plain order, or with channels last, as the matrices whose transposes lie the
// other way.
Matrices plain_matrices(const DeviceLayout& layout, const Shape& shape) {
  return {shape.count() / (layout.channels * layout.inner), layout.channels, layout.inner};
}
Matrices turned(const Matrices& all) { return {all.count, all.columns, all.rows}; }

}  // namespace

DeviceLayout::DeviceLayout(std::int64_t channels, std::int64_t inner, ElementType type)
    : channels(inner == 1 ? 1 : channels), inner(channels == 1 ? 1 : inner), type(type) {}

bool DeviceLayout::equals(const Layout& other) const {
  const auto* const same = dynamic_cast<const DeviceLayout*>(&other);
  return same && same->channels == channels && same->inner == inner && same->type == type;
}

std::size_t DeviceLayout::bytes(const Shape& shape) const {
  return static_cast<std::size_t>(shape.count()) * size_of(type);
}

void DeviceLayout::pack(const Shape& shape, const float* plain, std::byte* packed) const {
  with_type(type, [&](auto one) {
    transpose_on_host(plain_matrices(*this, shape), plain,
                      reinterpret_cast<decltype(one)*>(packed));
  });
}

void DeviceLayout::unpack(const Shape& shape, const std::byte* packed, float* plain) const {
  with_type(type, [&](auto one) {
    transpose_on_host(turned(plain_matrices(*this, shape)),
                      reinterpret_cast<const decltype(one)*>(packed), plain);
  });
}

bool DeviceLayout::convert_on(Stream& stream, const Shape& shape, const Layout* before,
                              const std::byte* from, const Layout* after, std::byte* to) const {
  static const DeviceLayout plain(1, 1, ElementType::kFloat32);
  const DeviceLayout &a = before ? as_device_layout(*before) : plain,
                     &b = after ? as_device_layout(*after) : plain;
  const bool same_order = a.channels == b.channels && a.inner == b.inner;
  if (!same_order && !a.is_plain_order() && !b.is_plain_order()) return false;
  const Matrices all = same_order           ? Matrices{1, 1, shape.count()}
                       : a.is_plain_order() ? plain_matrices(b, shape)
                                            : turned(plain_matrices(a, shape));
  with_type(a.type, [&](auto one) {
    with_type(b.type, [&](auto other) {
      transpose(static_cast<shoal::cuda::CudaStream&>(stream), all,
                reinterpret_cast<const decltype(one)*>(from),
                reinterpret_cast<decltype(other)*>(to));
    });
  });
  return true;
}

LayoutPtr channels_last(std::int64_t channels, std::int64_t inner, ElementType type) {
  if ((channels == 1 || inner == 1) && type == ElementType::kFloat32) return nullptr;
  return std::make_shared<DeviceLayout>(channels, inner, type);
}

const DeviceLayout* as_channels_last(const LayoutPtr& layout) {
  const auto* const own = static_cast<const DeviceLayout*>(layout.get());
  return own == nullptr || own->is_plain_order() ? nullptr : own;
}

ElementType type_of(const LayoutPtr& layout) {
  return layout ? as_device_layout(*layout).type : ElementType::kFloat32;
}

LayoutPtr common_layout(std::span<const Tensor* const> tensors) {
  if (tensors.empty()) return nullptr;
  const LayoutPtr layout = tensors.front()->layout();
  bool same = true, same_type = true;
  for (const Tensor* one : tensors) {
    same = same && same_layout(one->layout(), layout);
    same_type = same_type && type_of(one->layout()) == type_of(layout);
  }
  return same ? layout : plain_order(same_type ? type_of(layout) : ElementType::kFloat32);
}

}  // namespace shoal::ops::cuda
