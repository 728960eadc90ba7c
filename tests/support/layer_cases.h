// The cases of the conformance tests: at least one case a layer type, each one layer with small
// bottoms.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/proto/layers.pb.h"
#include "shoal/tensor/shape.h"
#include "support/layer_rig.h"

namespace shoal::test {

// One bottom: its shape, how its numbers are drawn, whether backward must make its gradient.
struct BottomSpec {
  enum class Kind { kGaussian, kUniform, kAwayFrom, kDistinct, kIntegers, kFixed, kRois, kTruths };
  Shape shape;
  Kind kind = Kind::kGaussian;
  // kUniform: the range; kIntegers, kTruths: 0 to high - 1; kRois: pixels, and the same of images
  float low = 0, high = 1;
  std::vector<float> kinks{};  // kAwayFrom: no number is nearer than 0.1 to one of these
  bool gradient = true;
  std::vector<float> numbers{};  // kFixed: what they are
};
inline BottomSpec gaussian(const Shape& shape) { return {.shape = shape}; }
inline BottomSpec uniform(float low, float high, const Shape& shape) {
  return {.shape = shape, .kind = BottomSpec::Kind::kUniform, .low = low, .high = high};
}
inline BottomSpec away_from(const std::vector<float>& kinks, const Shape& shape) {
  return {.shape = shape, .kind = BottomSpec::Kind::kAwayFrom, .kinks = kinks};
}
// No two numbers of one bottom are nearer than 0.2 to each other; of two or three bottoms, no two
// than 0.06.
inline BottomSpec distinct(const Shape& shape) {
  return {.shape = shape, .kind = BottomSpec::Kind::kDistinct};
}
// Labels and indices 0 .. below - 1, without a gradient.
inline BottomSpec integers(int below, const Shape& shape) {
  return {.shape = shape,
          .kind = BottomSpec::Kind::kIntegers,
          .high = static_cast<float>(below),
          .gradient = false};
}
// Rows of an image below `images` and a box of corners in pixels below `size`, or somewhat outside.
inline BottomSpec rois(int images, float size, const Shape& shape) {
  return {.shape = shape,
          .kind = BottomSpec::Kind::kRois,
          .low = size,
          .high = static_cast<float>(images),
          .gradient = false};
}
// Rows of a class below `classes`, and centre and size of a box as parts of the image; every fourth
// row is zeros.
inline BottomSpec truths(int classes, const Shape& shape) {
  return {.shape = shape,
          .kind = BottomSpec::Kind::kTruths,
          .high = static_cast<float>(classes),
          .gradient = false};
}
// These numbers, without a gradient.
inline BottomSpec fixed(const Shape& shape, std::vector<float> numbers) {
  return {.shape = shape,
          .kind = BottomSpec::Kind::kFixed,
          .gradient = false,
          .numbers = std::move(numbers)};
}
inline BottomSpec no_gradient(BottomSpec spec) { return spec.gradient = false, spec; }

// Says how params are drawn after setup.
enum class ParamFill {
  kGaussian,  // deviation 0.5
  kPositive,  // 0.5 to 1.5
  kAsMade,    // what setup put there
};

struct LayerCase {
  std::string name;  // unique: the type in lower case, and what is special
  std::string type;
  // The rest of the layer's prototxt: "relu_param { negative_slope: 0.1 }".
  std::string param{};
  std::vector<BottomSpec> bottoms{};  // b0, b1, ...
  int tops = 1;                       // t0, t1, ...
  std::vector<int> zero_tops{};       // tops through which no gradient flows (a pooling mask)
  Phase phase = TRAIN;
  ParamFill params = ParamFill::kGaussian;
  // If false, backward leaves the params' gradients alone (BatchNorm).
  bool learns = true;
  bool fixed_batch = false;  // axis 0 of the bottoms is no batch, or may not change
  // A small change of a bottom may change a draw, so backward is not compared with the slope.
  bool jumps = false;
  // The tolerance of gradients, relative to the largest number of the tensor.
  double tolerance = 1e-3;
};

std::span<const LayerCase> every_layer_case();
// Return the cases of the files of these names, which are among them.
std::span<const LayerCase> small_fork_layer_cases();
std::span<const LayerCase> box_layer_cases();
std::span<const LayerCase> ssd_layer_cases();

// Layer types that have no case, and why.
struct Exempt {
  const char* type;
  const char* reason;
};
std::span<const Exempt> exempt_layers();

struct RigOptions {
  int threads = 1;
  int batch = 1;          // axis 0 of every bottom is this many times as long
  bool in_place = false;  // t0 is b0
  std::uint64_t seed = 1;
  const Device* device = nullptr;  // null: the CPU
};
// The layer of a case with its bottoms and params drawn from the seed; the params do not depend on
// the other options.
std::unique_ptr<LayerRig> make_rig(const LayerCase& c, const RigOptions& options);
LayerParameter layer_of(const LayerCase& c, bool in_place = false);
std::vector<Shape> bottom_shapes(const LayerCase& c, int batch = 1);
// Numbers for the tops' gradients: the loss weights if there are any, else random ones, nought for
// zero_tops.
std::vector<Numbers> draw_top_grads(const LayerCase& c, LayerRig& rig, std::uint64_t seed);

}  // namespace shoal::test
