// Whole tensors as vectors, on a CUDA device.
#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/elementwise.h"

namespace shoal::ops::cuda {
namespace {

void check_counts(const Tensor& x, const Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
}

// A piece of a tensor; `data` is the device's.
struct Piece {
  const float* data;
  std::int64_t count;
};
constexpr std::int64_t kPiece = 1 << 16;
// The pieces of one launch, by value among its arguments, of which CUDA takes 32764 bytes.
struct Pieces {
  static constexpr int kMost = 1000;
  Piece piece[kMost];
};

// The pieces of all tensors, in the order of the tensors.
std::vector<Piece> cut_up(Context& ctx, Tensors x) {
  std::vector<Piece> all;
  for (const Tensor* tensor : x) {
    const float* const data = read(ctx, *tensor);
    for (std::int64_t at = 0; at < tensor->count(); at += kPiece)
      all.push_back({data + at, std::min(kPiece, tensor->count() - at)});
  }
  return all;
}

// The sum of term(number) over all tensors: sums of pieces, then their sum, then one wait.
template <class Term>
double sum_of_all(Context& ctx, const char* name, Tensors x, Term term) {
  const std::vector<Piece> all = cut_up(ctx, x);
  const auto count = static_cast<std::int64_t>(all.size());
  double* const partial = reinterpret_cast<double*>(ctx.scratch(2 * (count + 1)).data());
  for (std::int64_t first = 0; first < count; first += Pieces::kMost) {
    const std::int64_t rows = std::min<std::int64_t>(Pieces::kMost, count - first);
    Pieces pieces;
    std::copy_n(all.begin() + first, rows, pieces.piece);
    reduce<double>(
        ctx, name, rows, kPiece,
        [=] __host__ __device__(std::int64_t row, std::int64_t c) {
          const Piece& piece = pieces.piece[row];
          return c < piece.count ? term(piece.data[c]) : 0.0;
        },
        Add(),
        [=] __host__ __device__(std::int64_t row, double sum) { partial[1 + first + row] = sum; });
  }
  reduce<double>(
      ctx, name, 1, count,
      [=] __host__ __device__(std::int64_t, std::int64_t c) { return partial[1 + c]; }, Add(),
      [=] __host__ __device__(std::int64_t, double sum) { partial[0] = sum; });
  double sum = 0;
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  stream.download(reinterpret_cast<std::byte*>(&sum), reinterpret_cast<const std::byte*>(partial),
                  sizeof(sum));
  stream.synchronize();
  return sum;
}

}  // namespace

void fill(Context& ctx, float value, Tensor& y) {
  const LayoutPtr layout = y.layout();
  map_each(
      ctx, "fill", type_of(layout), y.count(),
      [=] __host__ __device__(std::int64_t) { return value; }, y.write(ctx, layout));
}

void copy(Context& ctx, const Tensor& x, Tensor& y) {
  check_counts(x, y);
  const LayoutPtr layout = x.layout();
  const void* const in = x.read(ctx, layout);
  void* const out = y.write(ctx, layout);
  if (in != out)
    map_each(
        ctx, "copy", type_of(layout), y.count(),
        [] __host__ __device__(std::int64_t, float v) { return v; }, out, in);
}

void scale(Context& ctx, float a, Tensor& y) {
  const LayoutPtr layout = y.layout();
  void* const out = y.mut(ctx, layout);
  map_each(
      ctx, "scale", type_of(layout), y.count(),
      [=] __host__ __device__(std::int64_t, float v) { return a * v; }, out, out);
}

void axpy(Context& ctx, float a, const Tensor& x, Tensor& y) {
  check_counts(x, y);
  const LayoutPtr layout = common_layout(x, y);
  const void* const in = x.read(ctx, layout);
  void* const out = y.mut(ctx, layout);
  map_each(
      ctx, "axpy", type_of(layout), y.count(),
      [=] __host__ __device__(std::int64_t, float sum, float v) { return sum + a * v; }, out, out,
      in);
}

void add(Context& ctx, const Tensor& x, const Tensor& z, Tensor& y) {
  check_counts(x, y);
  check_counts(z, y);
  const LayoutPtr layout = common_layout(x, z);
  const void *const left = x.read(ctx, layout), *const right = z.read(ctx, layout);
  map_each(
      ctx, "add", type_of(layout), y.count(),
      [] __host__ __device__(std::int64_t, float v, float w) { return v + w; },
      y.write(ctx, layout), left, right);
}

double asum(Context& ctx, Tensors x) {
  return sum_of_all(ctx, "sum of sizes", x,
                    [] __host__ __device__(float v) { return std::fabs(double{v}); });
}

double sum_of_squares(Context& ctx, Tensors x) {
  return sum_of_all(ctx, "sum of squares", x,
                    [] __host__ __device__(float v) { return double{v} * v; });
}

bool all_finite(Context& ctx, Tensors x) {
  return sum_of_all(ctx, "search for what is not finite", x,
                    [] __host__ __device__(float v) { return std::isfinite(v) ? 0.0 : 1.0; }) == 0;
}

}  // namespace shoal::ops::cuda
