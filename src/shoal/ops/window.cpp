#include "shoal/ops/window.h"

namespace shoal::ops {

namespace {

std::int64_t product(const std::vector<WindowAxis>& axes, std::int64_t WindowAxis::*size) {
  std::int64_t count = 1;
  for (const WindowAxis& axis : axes) count *= axis.*size;
  return count;
}

}  // namespace

std::int64_t ConvDesc::in_count() const { return product(axes, &WindowAxis::in); }
std::int64_t ConvDesc::out_count() const { return product(axes, &WindowAxis::out); }
std::int64_t ConvDesc::taps() const { return product(axes, &WindowAxis::kernel); }
std::int64_t ConvDesc::multiply_adds() const {
  return images * outputs * out_count() * (channels / groups) * taps();
}

}  // namespace shoal::ops
