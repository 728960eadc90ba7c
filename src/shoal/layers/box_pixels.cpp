#include "shoal/layers/box_pixels.h"

#include <algorithm>
#include <sstream>

#include "shoal/base/file.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

Box scaled(const Box& box, float width, float height) {
  return {box.xmin * width, box.ymin * height, box.xmax * width, box.ymax * height};
}

Box clipped(const Box& box, float width, float height) {
  return {std::clamp(box.xmin, 0.0f, width), std::clamp(box.ymin, 0.0f, height),
          std::clamp(box.xmax, 0.0f, width), std::clamp(box.ymax, 0.0f, height)};
}

// Returns the part of the input that shows the picture, where bars fill the rest.
Box shown_part(float aspect, const ResizeParameter& resize) {
  const auto width = static_cast<float>(resize.width()),
             height = static_cast<float>(resize.height());
  if (aspect > width / height) {
    const float bar = (height - width / aspect) / 2 / height;
    return {0, bar, 1, 1 - bar};
  }
  const float bar = (width - height * aspect) / 2 / width;
  return {bar, 0, 1 - bar, 1};
}

Box relative_to(const Box& part, const Box& box) {
  const float width = part.xmax - part.xmin, height = part.ymax - part.ymin;
  return {(box.xmin - part.xmin) / width, (box.ymin - part.ymin) / height,
          (box.xmax - part.xmin) / width, (box.ymax - part.ymin) / height};
}

}  // namespace

std::vector<NamedSize> read_name_sizes(const LayerParameter& layer, const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) throw config_error(layer, "name_size_file: ", text.error().message);
  std::vector<NamedSize> sizes;
  std::istringstream lines(text.value());
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    NamedSize size;
    std::string more;
    if (!(words >> size.name)) continue;  // an empty line
    if (!(words >> size.height >> size.width) || words >> more || size.height < 1 || size.width < 1)
      throw config_error(layer, "name_size_file ", path, ", line ", number, ": '", line,
                         "' is not \"name height width\" with sizes above 0; get_image_size writes "
                         "such files");
    sizes.push_back(size);
  }
  if (sizes.empty()) throw config_error(layer, "name_size_file ", path, " has no lines");
  return sizes;
}

Box to_pixels(const Box& box, const NamedSize& picture, const ResizeParameter* resize) {
  const auto width = static_cast<float>(picture.width), height = static_cast<float>(picture.height);
  Box in_picture = box;
  if (resize && resize->resize_mode() == ResizeParameter::FIT_LARGE_SIZE_AND_PAD)
    in_picture = relative_to(shown_part(width / height, *resize), box);
  if (resize && resize->resize_mode() == ResizeParameter::FIT_SMALL_SIZE &&
      resize->height_scale() && resize->width_scale())
    return clipped(scaled(box, static_cast<float>(resize->width_scale()),
                          static_cast<float>(resize->height_scale())),
                   width, height);
  return scaled(clipped(in_picture, 1, 1), width, height);
}

}  // namespace shoal
