#include "shoal/ops/slice.h"

#include <cstring>

#include "shoal/base/log.h"
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
    // axes that the box fills
    while (outer_ > 0 && box[outer_ - 1] == whole[outer_ - 1]) --outer_;
    // and one more, of which it takes a stretch
    if (outer_ > 0) --outer_;
  }
  std::int64_t length() const { return box_.count(outer_); }
  std::int64_t count() const { return length() == 0 ? 0 : box_.count() / length(); }
  // Where row `row` begins in the tensor round the box.
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

// f(where a row begins in the box, where it begins round it, its length).
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

}  // namespace

void cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
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
  const float* in = x.in();
  float* out = y.mut();
  for_rows(ctx, SliceRows(x.shape(), y.shape(), to),
           [=](std::int64_t box, std::int64_t whole, std::int64_t length) {
             copy(out + whole, in + box, length);
           });
}

}  // namespace shoal::ops::cpu
