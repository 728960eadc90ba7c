// Reads text lists of images: "path label" a line. The label is what follows the last blank, so
// that paths may hold blanks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

struct ListedImage {
  std::string path;  // as written in the list
  int label = 0;
  std::uint64_t line = 0;  // from 1
};

// Empty lines are left out, carriage returns at line ends ignored. Errors (kData) name the file and
// the line: no such file, no images in it, a line without a label, a label that is no whole number.
Result<std::vector<ListedImage>> read_image_list(const std::string& path);

}  // namespace shoal
