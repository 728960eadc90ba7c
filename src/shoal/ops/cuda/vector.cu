// Whole tensors as vectors, on a CUDA device.
#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/elementwise.h"
#include "shoal/ops/update.h"

namespace shoal::ops::cuda {
namespace {

void check_counts(const Tensor& x, const Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
}

// A piece of a tensor; `data` is the device's.
template <class T>
struct Piece {
  T* data;
  std::int64_t count;
};
constexpr std::int64_t kPiece = 1 << 16;
// The pieces of one launch, by value among its arguments, of which CUDA takes 32764 bytes.
template <class T>
struct Pieces {
  static constexpr std::int64_t kMost = 1000;
  Piece<T> piece[kMost];
};

template <class T>
void cut_up(T* data, std::int64_t count, std::vector<Piece<T>>& pieces) {
  for (std::int64_t at = 0; at < count; at += kPiece)
    pieces.push_back({data + at, std::min(kPiece, count - at)});
}

// Calls work(pieces, the number of the first, their count) for as many as one launch takes, in
// order.
template <class T, class Work>
void launch_by_pieces(const std::vector<Piece<T>>& all, Work work) {
  const auto count = static_cast<std::int64_t>(all.size());
  for (std::int64_t first = 0; first < count; first += Pieces<T>::kMost) {
    const std::int64_t some = std::min(Pieces<T>::kMost, count - first);
    Pieces<T> pieces;
    std::copy_n(all.begin() + first, some, pieces.piece);
    work(pieces, first, some);
  }
}

// Sets sums[row] to the sum of term(number) over piece `row`.
template <class Term>
void sum_pieces(Context& ctx, const char* name, const Pieces<const float>& pieces,
                std::int64_t rows, Term term, double* sums) {
  reduce<double>(
      ctx, name, rows, kPiece,
      [=] __host__ __device__(std::int64_t row, std::int64_t c) {
        const Piece<const float>& piece = pieces.piece[row];
        return c < piece.count ? term(piece.data[c]) : 0.0;
      },
      Add(), [=] __host__ __device__(std::int64_t row, double sum) { sums[row] = sum; });
}

// Returns the tensor's float32 numbers, in the order that they are in.
const float* read_any_order(Context& ctx, const Tensor& x) {
  const LayoutPtr layout = type_of(x.layout()) == ElementType::kFloat32 ? x.layout() : nullptr;
  return reinterpret_cast<const float*>(x.read(ctx, layout));
}

// Sums of term(number) over pieces, then their sum, which the device gives to put(scratch, sum).
// Returns the scratch, whose first number is free.
template <class Term, class Put>
const double* sum_all(Context& ctx, const char* name, Tensors x, Term term, Put put) {
  std::vector<Piece<const float>> all;
  for (const Tensor* tensor : x) cut_up(read_any_order(ctx, *tensor), tensor->count(), all);
  const auto count = static_cast<std::int64_t>(all.size());
  // There are seldom more, so the scratch stays where it is, whatever is summed.
  constexpr std::int64_t kRoom = 4096;
  double* const partial =
      reinterpret_cast<double*>(ctx.scratch(2 * std::max(count + 1, kRoom)).data());
  launch_by_pieces(all, [&](const auto& pieces, std::int64_t first, std::int64_t rows) {
    sum_pieces(ctx, name, pieces, rows, term, partial + 1 + first);
  });
  reduce<double>(
      ctx, name, 1, count,
      [=] __host__ __device__(std::int64_t, std::int64_t c) { return partial[1 + c]; }, Add(),
      [=] __host__ __device__(std::int64_t, double sum) { put(partial, sum); });
  return partial;
}

// The sum of term(number) over all tensors. Waits once, if there are any numbers.
template <class Term>
double sum_of_all(Context& ctx, const char* name, Tensors x, Term term) {
  if (std::ranges::all_of(x, [](const Tensor* one) { return one->count() == 0; })) return 0;
  const double* const place =
      sum_all(ctx, name, x, term,
              [] __host__ __device__(double* scratch, double sum) { scratch[0] = sum; });
  double sum = 0;
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  stream.download(reinterpret_cast<std::byte*>(&sum), reinterpret_cast<const std::byte*>(place),
                  sizeof(sum));
  stream.synchronize();
  return sum;
}

struct Square {
  __host__ __device__ double operator()(float v) const { return double{v} * v; }
};
// 1 for what is not finite.
struct IsBad {
  __host__ __device__ double operator()(float v) const { return std::isfinite(v) ? 0.0 : 1.0; }
};

// Sets number = f(number) for all of the pieces.
template <class F>
void map_pieces(Context& ctx, const char* name, const Pieces<float>& pieces, std::int64_t count,
                F f) {
  each(ctx, name, count * kPiece, [=] __host__ __device__(std::int64_t i) {
    const Piece<float>& piece = pieces.piece[i / kPiece];
    const std::int64_t at = i % kPiece;
    if (at < piece.count) piece.data[at] = f(piece.data[at]);
  });
}

// The same for all numbers of all tensors; kWrite: f does not look at them.
template <Storage::Access kAccess, class F>
void map_all(Context& ctx, const char* name, std::span<Tensor* const> all, F f) {
  std::vector<Piece<float>> pieces;
  for (Tensor* const y : all) {
    const LayoutPtr layout = y->layout();
    std::byte* const data =
        kAccess == Storage::Access::kWrite ? y->write(ctx, layout) : y->mut(ctx, layout);
    if (all.size() > 1 && type_of(layout) == ElementType::kFloat32)
      cut_up(reinterpret_cast<float*>(data), y->count(), pieces);
    else
      map_each(
          ctx, name, type_of(layout), y->count(),
          [=] __host__ __device__(std::int64_t, float v) { return f(v); }, data, data);
  }
  launch_by_pieces(pieces, [&](const auto& some, std::int64_t, std::int64_t count) {
    map_pieces(ctx, name, some, count, f);
  });
}

}  // namespace

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

void fill_all(Context& ctx, float value, std::span<Tensor* const> y) {
  map_all<Storage::Access::kWrite>(ctx, "fill", y,
                                   [=] __host__ __device__(float) { return value; });
}

void scale_all(Context& ctx, float a, std::span<Tensor* const> y) {
  map_all<Storage::Access::kMut>(ctx, "scale", y,
                                 [=] __host__ __device__(float v) { return a * v; });
}

double asum(Context& ctx, Tensors x) {
  return sum_of_all(ctx, "sum of sizes", x,
                    [] __host__ __device__(float v) { return std::fabs(double{v}); });
}

double sum_of_squares(Context& ctx, Tensors x) {
  return sum_of_all(ctx, "sum of squares", x, Square());
}

bool all_finite(Context& ctx, Tensors x) {
  return sum_of_all(ctx, "search for what is not finite", x, IsBad()) == 0;
}

void judge(Context& ctx, Tensors x, float clip, Tensor& verdict) {
  float* const out = mut(ctx, verdict);
  const auto put = [=] __host__ __device__(double*, double sum) { put_verdict(sum, clip, out); };
  if (clip < 0)
    sum_all(ctx, "judging", x, IsBad(), put);
  else
    sum_all(ctx, "judging", x, Square(), put);
}

}  // namespace shoal::ops::cuda
