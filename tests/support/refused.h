// Layers that are refused, and in which words: for tables of bad input.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shoal/proto/layers.pb.h"
#include "shoal/tensor/shape.h"

namespace shoal::test {

// The layer 'it' with bottoms b0, b1, ... and tops t0, t1, ...; `rest` is more of its prototxt.
LayerParameter layer_with(const std::string& type, std::size_t bottoms, const std::string& rest,
                          int tops = 1);

struct Refused {
  std::string type;
  std::vector<Shape> bottoms;
  std::string rest;
  std::string words;  // after "layer 'it' (Type): ", or a part of what is there
  int tops = 1;
};

// The words of the ConfigError (kConfig) that making the layer throws, or "nothing was refused".
std::string refusal(const Refused& c);
// Expects that each is refused with its words.
void expect_refused(std::span<const Refused> cases);

}  // namespace shoal::test
