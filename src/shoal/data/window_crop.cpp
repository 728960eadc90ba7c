// Computes the crop of a window, one direction at a time.
#include "shoal/data/window_crop.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"

namespace shoal {
namespace {

// One direction of a window or of its crop.
struct Extent {
  int first = 0, last = 0;
  int length() const { return last - first + 1; }
};

struct ExtentCrop {
  Extent from;
  int before = 0, after = 0;  // pixels of the input beyond the picture's two borders
  int to = 0;                 // pixels of the input that `from` becomes
};

// Farther from the picture nothing is told apart.
constexpr float kFar = 1 << 29;

int rounded(float value) { return static_cast<int>(std::round(std::clamp(value, -kFar, kFar))); }

// `centre` and `half` are those of the extent that is wanted of a picture of `length` pixels.
ExtentCrop crop_extent(float centre, float half, int length, int size) {
  const Extent whole{rounded(centre - half), rounded(centre + half)};
  ExtentCrop crop;
  crop.from = {std::max(whole.first, 0), std::min(whole.last, length - 1)};
  const float scale = static_cast<float>(size) / static_cast<float>(whole.length());
  const auto scaled = [scale](int pixels) { return rounded(static_cast<float>(pixels) * scale); };
  crop.before = scaled(crop.from.first - whole.first);
  crop.after = scaled(whole.last - crop.from.last);
  crop.to = scaled(crop.from.length());
  return crop;
}

// Sets where `crop` begins in an input of `size` pixels, and how many it takes; roundings may not
// bring it beyond the end, nor to nothing.
void place(int before, int to, int size, int& begin, int& length) {
  begin = std::min(before, size - 1);
  length = std::clamp(to, 1, size - begin);
}

}  // namespace

WindowCrop crop_window(const Window& window, const WindowPicture& picture,
                       const WindowCropOptions& options, bool mirrored) {
  const Extent x{window.x1, window.x2}, y{window.y1, window.y2};
  CHECK(options.context_pad >= 0 && options.size > 2 * options.context_pad)
      << options.size << ' ' << options.context_pad;
  if (options.context_pad == 0 && !options.square)
    return {{y.first, x.first, y.length(), x.length()}, {0, 0, options.size, options.size}};
  // The context makes the window itself size - 2 context_pad pixels.
  const float context =
      static_cast<float>(options.size) / static_cast<float>(options.size - 2 * options.context_pad);
  float half_x = static_cast<float>(x.length()) / 2, half_y = static_cast<float>(y.length()) / 2;
  const float centre_x = static_cast<float>(x.first) + half_x,
              centre_y = static_cast<float>(y.first) + half_y;
  if (options.square) half_x = half_y = std::max(half_x, half_y);
  const ExtentCrop columns = crop_extent(centre_x, half_x * context, picture.width, options.size),
                   rows = crop_extent(centre_y, half_y * context, picture.height, options.size);
  WindowCrop crop;
  crop.from = {rows.from.first, columns.from.first, rows.from.length(), columns.from.length()};
  place(rows.before, rows.to, options.size, crop.to.top, crop.to.height);
  place(mirrored ? columns.after : columns.before, columns.to, options.size, crop.to.left,
        crop.to.width);
  return crop;
}

}  // namespace shoal
