// Single-layer cases computed by BVLC Caffe 1.0, one JSON file each.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shoal/tensor/shape.h"
#include "support/layer_rig.h"

namespace shoal::test {

struct ShapedNumbers {
  Shape shape;
  Numbers data;
};

struct GoldenLayer {
  std::string name, type, layer;  // `layer`: the prototxt
  std::string phase;              // TRAIN or TEST
  int forwards = 1;               // on the same inputs, before the tops are read
  bool in_place = false;
  bool backward = true;  // false: there is none
  std::vector<ShapedNumbers> bottoms, params, tops;
  std::optional<double> loss;                              // of layers with a loss weight
  std::optional<std::vector<ShapedNumbers>> params_after;  // where forward changes them
  std::vector<Numbers> top_diffs;
  std::vector<std::optional<Numbers>> bottom_diffs;  // nothing: no gradient goes there
  std::vector<Numbers> param_diffs;
};

// Fails the run if the file is not such a case.
GoldenLayer read_golden_layer(const std::filesystem::path& file);

}  // namespace shoal::test
