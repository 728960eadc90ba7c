// Computes which pixels around a window become a net's input, and where in the input they lie.
#pragma once

#include "shoal/data/image.h"
#include "shoal/data/window_file.h"

namespace shoal {

struct WindowCropOptions {
  int size = 0;         // of the input, which is square
  int context_pad = 0;  // pixels of the input on each side that show what is around the window
  bool square = false;  // the window is widened to a square first, about its centre
};

// `from` in the picture is resized to the height and width of `to`, which is its place in the
// input. What lies beyond the picture's border is not in `to`.
struct WindowCrop {
  ImagePart from, to;
};

// `mirrored`: left and right of the input will be swapped, its empty part too. Wants
// size > 2 context_pad >= 0 and a window within the picture.
// Source: BVLC Caffe 1.0's WindowData layer, whose roundings these are: the widened window ends one
// pixel later than its size says.
WindowCrop crop_window(const Window& window, const WindowPicture& picture,
                       const WindowCropOptions& options, bool mirrored);

}  // namespace shoal
