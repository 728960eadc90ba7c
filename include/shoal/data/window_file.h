// Reads window files: pictures, and windows in them with a label and an overlap each, as R-CNN
// writes them. Format: docs/reference/formats.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

struct WindowPicture {
  std::string path;  // as written in the file
  int height = 0, width = 0;
  std::uint64_t line = 0;  // of its "#", from 1
};

struct Window {
  std::uint32_t picture = 0;           // its place in WindowFile::pictures
  int label = 0;                       // 0: background
  int x1 = 0, y1 = 0, x2 = 0, y2 = 0;  // first and last pixel, within the picture, from 0
  std::uint32_t line = 0;              // from 1
};

struct WindowFile {
  std::vector<WindowPicture> pictures;
  std::vector<Window> foreground, background;
  std::uint64_t neither = 0;  // windows between the thresholds, which are left out
};

struct WindowThresholds {
  float foreground = 0.5f;  // the least overlap of foreground, whose labels are above 0
  float background =
      0.5f;  // the overlap of background is below, and its label is 0 whatever stands
};

// Errors (kData) name the file and the line: no such file, no pictures in it, a word that is not
// what its place wants, more or fewer windows than were said, a window that leaves its picture,
// foreground with a label below 1.
Result<WindowFile> read_window_file(const std::string& path, const WindowThresholds& thresholds);

}  // namespace shoal
