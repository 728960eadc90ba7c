// Turns tensors from plain order to channels last and back, by tiles that are read and written in
// order.
#include "shoal/base/log.h"
#include "shoal/ops/cuda/channels_last.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {
namespace {

constexpr int kTile = 32, kRows = 8;  // of a block: a tile of kTile x kTile, kRows at a time

// Each of gridDim.z matrices (rows, columns) becomes its transpose.
__global__ void transpose_kernel(int rows, int columns, const float* from, float* to) {
  __shared__ float tile[kTile][kTile + 1];  // one more, so that columns fall into other banks
  const std::int64_t matrix = std::int64_t{blockIdx.z} * rows * columns;
  const int left = static_cast<int>(blockIdx.x) * kTile, top = static_cast<int>(blockIdx.y) * kTile;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int r = y; r < kTile; r += kRows)
    if (top + r < rows && left + x < columns)
      tile[r][x] = from[matrix + std::int64_t{top + r} * columns + left + x];
  __syncthreads();
  for (int r = y; r < kTile; r += kRows)
    if (left + r < columns && top + x < rows)
      to[matrix + std::int64_t{left + r} * rows + top + x] = tile[x][r];
}

void transpose_on_host(std::int64_t count, int rows, int columns, const float* from, float* to) {
  const std::int64_t size = std::int64_t{rows} * columns;
  for (std::int64_t m = 0; m < count; ++m)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        to[m * size + c * rows + r] = from[m * size + r * columns + c];
}

void transpose(shoal::cuda::CudaStream& stream, std::int64_t count, int rows, int columns,
               const float* from, float* to) {
  if (count * rows * columns == 0) return;
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] { transpose_on_host(count, rows, columns, from, to); });
    return;
  }
  constexpr std::int64_t kMostMatrices = 65535;  // of a launch: the limit of a grid's third axis
  const std::int64_t size = std::int64_t{rows} * columns;
  for (std::int64_t first = 0; first < count; first += kMostMatrices) {
    const dim3 grid(static_cast<unsigned>((columns + kTile - 1) / kTile),
                    static_cast<unsigned>((rows + kTile - 1) / kTile),
                    static_cast<unsigned>(std::min(kMostMatrices, count - first)));
    transpose_kernel<<<grid, dim3(kTile, kRows), 0, stream.handle()>>>(
        rows, columns, from + first * size, to + first * size);
    stream.check_launch("transpose");
  }
}

struct Sizes {
  std::int64_t images;
  int channels, inner;
};
Sizes sizes_of(const Shape& shape) {
  CHECK(shape.axes() >= 2) << "a tensor of shape " << shape.str() << " has no channels";
  return {shape[0], static_cast<int>(shape[1]), static_cast<int>(shape.count(2))};
}

class ChannelsLast final : public Layout {
 public:
  bool equals(const Layout& other) const override {
    return dynamic_cast<const ChannelsLast*>(&other) != nullptr;
  }
  std::size_t bytes(const Shape& shape) const override {
    return static_cast<std::size_t>(shape.count()) * sizeof(float);
  }
  void pack(const Shape& shape, const float* plain, std::byte* packed) const override {
    const auto [images, channels, inner] = sizes_of(shape);
    transpose_on_host(images, channels, inner, plain, reinterpret_cast<float*>(packed));
  }
  void unpack(const Shape& shape, const std::byte* packed, float* plain) const override {
    const auto [images, channels, inner] = sizes_of(shape);
    transpose_on_host(images, inner, channels, reinterpret_cast<const float*>(packed), plain);
  }
  bool pack_on(Stream& stream, const Shape& shape, const std::byte* plain,
               std::byte* packed) const override {
    const auto [images, channels, inner] = sizes_of(shape);
    transpose(static_cast<shoal::cuda::CudaStream&>(stream), images, channels, inner,
              reinterpret_cast<const float*>(plain), reinterpret_cast<float*>(packed));
    return true;
  }
  bool unpack_on(Stream& stream, const Shape& shape, const std::byte* packed,
                 std::byte* plain) const override {
    const auto [images, channels, inner] = sizes_of(shape);
    transpose(static_cast<shoal::cuda::CudaStream&>(stream), images, inner, channels,
              reinterpret_cast<const float*>(packed), reinterpret_cast<float*>(plain));
    return true;
  }
};

}  // namespace

const LayoutPtr& channels_last() {
  static const LayoutPtr layout = std::make_shared<ChannelsLast>();
  return layout;
}

}  // namespace shoal::ops::cuda
