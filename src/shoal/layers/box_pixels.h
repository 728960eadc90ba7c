// Boxes in the pixels of pictures whose sizes a file gives: that of SSD's name_size_file.
#pragma once

#include <string>
#include <vector>

#include "shoal/layers/boxes.h"

namespace shoal {

class LayerParameter;
class ResizeParameter;

struct NamedSize {
  std::string name;
  int height = 0, width = 0;
};

// Reads lines "name height width". Throws ConfigError, for the layer, that names the file and the
// line.
std::vector<NamedSize> read_name_sizes(const LayerParameter& layer, const std::string& path);

// Returns the box in pixels of the picture, within it, from parts of the net's input. `resize` says
// how the picture became the input; null: it was warped. Source: SSD's OutputBBox.
Box to_pixels(const Box& box, const NamedSize& picture, const ResizeParameter* resize);

}  // namespace shoal
