// Implements the fillers: constant, uniform, gaussian, xavier and so on.
#include "shoal/layers/filler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/base/error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

double fan(const FillerParameter& filler, const Shape& shape) {
  const double count = static_cast<double>(shape.count());
  const double in =
      shape.axes() > 0 && shape[0] > 0 ? count / static_cast<double>(shape[0]) : count;
  const double out =
      shape.axes() > 1 && shape[1] > 0 ? count / static_cast<double>(shape[1]) : count;
  switch (filler.variance_norm()) {
    case FillerParameter::FAN_OUT: return out;
    case FillerParameter::AVERAGE: return (in + out) / 2;
    default: return in;
  }
}

void gaussian(float mean, float std, Random& random, std::span<float> out) {
  for (float& x : out) x = random.gaussian(mean, std);
}

void uniform(float low, float high, Random& random, std::span<float> out) {
  for (float& x : out) x = random.uniform(low, high);
}

// Keeps each number with probability sparse / shape[0].
void thin_out(const FillerParameter& filler, const Shape& shape, Random& random,
              std::span<float> out) {
  const float keep = static_cast<float>(filler.sparse()) / static_cast<float>(shape[0]);
  for (float& x : out) x = random.unit() < keep ? x : 0.0f;
}

void positive_unitball(const Shape& shape, Random& random, std::span<float> out) {
  uniform(0, 1, random, out);
  const std::size_t row = out.size() / static_cast<std::size_t>(shape[0]);
  for (std::size_t begin = 0; begin < out.size(); begin += row) {
    const std::span<float> slice = out.subspan(begin, row);
    const float sum = std::accumulate(slice.begin(), slice.end(), 0.0f);
    for (float& x : slice) x /= sum;
  }
}

void bilinear(const Shape& shape, std::span<float> out) {
  const std::int64_t width = shape[3], height = shape[2];
  const double f = std::ceil(static_cast<double>(width) / 2),
               c = (static_cast<double>(width) - 1) / (2 * f);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double x = static_cast<double>(static_cast<std::int64_t>(i) % width);
    const double y = static_cast<double>(static_cast<std::int64_t>(i) / width % height);
    out[i] = static_cast<float>((1 - std::fabs(x / f - c)) * (1 - std::fabs(y / f - c)));
  }
}

}  // namespace

void check_filler(const FillerParameter& filler, const Shape& shape) {
  const std::string& type = filler.type();
  const auto fail = [&](auto... what) {
    throw ConfigError(Code::kConfig, "filler '", type, "' ", what...);
  };
  constexpr const char* kKnown[] = {"bilinear",          "constant", "gaussian", "msra",
                                    "positive_unitball", "uniform",  "xavier"};
  if (std::ranges::find(kKnown, type) == std::end(kKnown))
    fail(
        "is unknown; known: bilinear, constant, gaussian, msra, positive_unitball, uniform, "
        "xavier");
  if (filler.sparse() != -1 && type != "gaussian")
    fail("does not take 'sparse'; only gaussian does");
  if (filler.sparse() != -1 && (filler.sparse() < 1 || shape.axes() == 0))
    fail("has sparse ", filler.sparse(), "; it must be 1 or more");
  if (type == "gaussian" && filler.std() < 0) fail("has a negative std, ", filler.std());
  if (type == "positive_unitball" && (shape.axes() == 0 || shape.count() == 0))
    fail("needs at least one axis");
  if (type == "bilinear" && (shape.axes() != 4 || shape[2] != shape[3]))
    fail("needs 4 axes and a square kernel, not ", shape.str());
}

void fill(const FillerParameter& filler, Random& random, Tensor& tensor) {
  check_filler(filler, tensor.shape());
  const std::span<float> out = tensor.host_out();
  const std::string& type = filler.type();
  if (type == "constant") {
    std::ranges::fill(out, filler.value());
  } else if (type == "uniform") {
    uniform(filler.min(), filler.max(), random, out);
  } else if (type == "gaussian") {
    gaussian(filler.mean(), filler.std(), random, out);
    if (filler.sparse() != -1) thin_out(filler, tensor.shape(), random, out);
  } else if (type == "xavier") {
    const float bound = static_cast<float>(std::sqrt(3 / fan(filler, tensor.shape())));
    uniform(-bound, bound, random, out);
  } else if (type == "msra") {
    gaussian(0, static_cast<float>(std::sqrt(2 / fan(filler, tensor.shape()))), random, out);
  } else if (type == "positive_unitball") {
    positive_unitball(tensor.shape(), random, out);
  } else {
    bilinear(tensor.shape(), out);
  }
}

}  // namespace shoal
