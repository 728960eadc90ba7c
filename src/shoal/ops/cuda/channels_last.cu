// Turns tensors from plain order to channels last and back, by tiles that are read and written in
// order.
#include "shoal/ops/cuda/channels_last.h"

#include <algorithm>

#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

constexpr int kTile = 32, kRows = 8;  // of a block: a tile of kTile x kTile, kRows at a time

// Each of gridDim.z matrices (rows, columns) becomes its transpose.
__global__ void transpose_kernel(std::int64_t rows, std::int64_t columns, const float* from,
                                 float* to) {
  __shared__ float tile[kTile][kTile + 1];  // one more, so that columns fall into other banks
  const std::int64_t matrix = std::int64_t{blockIdx.z} * rows * columns,
                     left = std::int64_t{blockIdx.x} * kTile,
                     top = std::int64_t{blockIdx.y} * kTile;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int r = y; r < kTile; r += kRows)
    if (top + r < rows && left + x < columns)
      tile[r][x] = from[matrix + (top + r) * columns + left + x];
  __syncthreads();
  for (int r = y; r < kTile; r += kRows)
    if (left + r < columns && top + x < rows) to[matrix + (left + r) * rows + top + x] = tile[x][r];
}

void transpose_on_host(std::int64_t count, std::int64_t rows, std::int64_t columns,
                       const float* from, float* to) {
  const std::int64_t size = rows * columns;
  for (std::int64_t m = 0; m < count; ++m)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        to[m * size + c * rows + r] = from[m * size + r * columns + c];
}

void transpose(shoal::cuda::CudaStream& stream, std::int64_t count, std::int64_t rows,
               std::int64_t columns, const float* from, float* to) {
  if (count * rows * columns == 0) return;
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] { transpose_on_host(count, rows, columns, from, to); });
    return;
  }
  constexpr std::int64_t kMostMatrices = 65535;  // of a launch: the limit of a grid's third axis
  const std::int64_t size = rows * columns;
  for (std::int64_t first = 0; first < count; first += kMostMatrices) {
    const dim3 grid(static_cast<unsigned>((columns + kTile - 1) / kTile),
                    static_cast<unsigned>((rows + kTile - 1) / kTile),
                    static_cast<unsigned>(std::min(kMostMatrices, count - first)));
    transpose_kernel<<<grid, dim3(kTile, kRows), 0, stream.handle()>>>(
        rows, columns, from + first * size, to + first * size);
    stream.check_launch("transpose");
  }
}

}  // namespace

bool ChannelsLast::equals(const Layout& other) const {
  const auto* const same = dynamic_cast<const ChannelsLast*>(&other);
  return same && same->channels == channels && same->inner == inner;
}

std::size_t ChannelsLast::bytes(const Shape& shape) const {
  return static_cast<std::size_t>(shape.count()) * sizeof(float);
}

void ChannelsLast::pack(const Shape& shape, const float* plain, std::byte* packed) const {
  transpose_on_host(shape.count() / (channels * inner), channels, inner, plain,
                    reinterpret_cast<float*>(packed));
}

void ChannelsLast::unpack(const Shape& shape, const std::byte* packed, float* plain) const {
  transpose_on_host(shape.count() / (channels * inner), inner, channels,
                    reinterpret_cast<const float*>(packed), plain);
}

bool ChannelsLast::pack_on(Stream& stream, const Shape& shape, const std::byte* plain,
                           std::byte* packed) const {
  transpose(static_cast<shoal::cuda::CudaStream&>(stream), shape.count() / (channels * inner),
            channels, inner, reinterpret_cast<const float*>(plain),
            reinterpret_cast<float*>(packed));
  return true;
}

bool ChannelsLast::unpack_on(Stream& stream, const Shape& shape, const std::byte* packed,
                             std::byte* plain) const {
  transpose(static_cast<shoal::cuda::CudaStream&>(stream), shape.count() / (channels * inner),
            inner, channels, reinterpret_cast<const float*>(packed),
            reinterpret_cast<float*>(plain));
  return true;
}

LayoutPtr channels_last(std::int64_t channels, std::int64_t inner) {
  if (channels == 1 || inner == 1) return nullptr;
  return std::make_shared<ChannelsLast>(channels, inner);
}

}  // namespace shoal::ops::cuda
