// Images as bytes in one block of memory: how a batch goes to a device before it becomes numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal {

// Says where an image was cut, and how its bytes are to be read.
struct ImageCrop {
  std::int32_t top = 0, left = 0;  // of the crop's first pixel in the whole image
  std::int32_t mirrored = 0;       // 1: left and right will be swapped; 0: they will not
  // 1: the channels of a pixel lie side by side; 0: the image lies channel by channel
  std::int32_t side_by_side = 0;
};

// The crops of N images, C x H x W bytes each, in a block of memory: the bytes, image by image,
// filled up to a multiple of 16; N ImageCrop; N labels as floats.
struct ByteImages {
  std::int64_t images = 0, channels = 0, height = 0, width = 0;

  std::int64_t image_bytes() const { return channels * height * width; }
  std::size_t crops_at() const {
    return (static_cast<std::size_t>(images * image_bytes()) + 15) / 16 * 16;
  }
  std::size_t labels_at() const {
    return crops_at() + static_cast<std::size_t>(images) * sizeof(ImageCrop);
  }
  std::size_t bytes() const {
    return labels_at() + static_cast<std::size_t>(images) * sizeof(float);
  }
};

}  // namespace shoal
