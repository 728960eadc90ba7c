#include "shoal/ops/window.h"

namespace shoal::ops {

std::int64_t ConvDesc::in_count() const {
  std::int64_t count = 1;
  for (const WindowAxis& axis : axes) count *= axis.in;
  return count;
}
std::int64_t ConvDesc::out_count() const {
  std::int64_t count = 1;
  for (const WindowAxis& axis : axes) count *= axis.out;
  return count;
}
std::int64_t ConvDesc::taps() const {
  std::int64_t count = 1;
  for (const WindowAxis& axis : axes) count *= axis.kernel;
  return count;
}

std::int64_t ConvDesc::multiply_adds() const {
  return images * outputs * out_count() * (channels / groups) * taps();
}

}  // namespace shoal::ops
