// Reads pictures with true boxes, and changes both together.
#include <algorithm>
#include <cmath>

#include "shoal/base/random.h"
#include "shoal/data/box_parts.h"
#include "shoal/data/image_changes.h"
#include "shoal/data/items.h"
#include "shoal/data/record_items.h"
#include "shoal/proto/annotated.pb.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

struct Annotated {
  Image image;
  std::vector<TruePart> boxes;
};

Result<Annotated> parse_annotated(const std::string& bytes, Colour colour) {
  AnnotatedDatum record;
  if (!record.ParseFromString(bytes) || !record.has_datum())
    return Error{Code::kData, "is no AnnotatedDatum; convert_annoset writes such records"};
  Result<DatumPixels> pixels = pixels_of(record.datum(), colour);
  if (!pixels.ok()) return pixels.error();
  if (!pixels.value().pixels.in_bytes())
    return Error{Code::kData, "holds floats; pictures with boxes are bytes"};
  Annotated one;
  if (record.datum().encoded()) {
    one.image = std::move(pixels.value().decoded);
  } else {
    const ImageSize size = pixels.value().pixels.size;
    const auto planes = std::get<0>(pixels.value().pixels.values);
    const auto channels = static_cast<std::size_t>(size.channels);
    const std::size_t plane = planes.size() / channels;
    one.image = {size, std::vector<std::uint8_t>(planes.size())};
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t i = 0; i < plane; ++i)
        one.image.pixels[i * channels + c] = planes[c * plane + i];
  }
  for (const AnnotationGroup& group : record.annotation_group())
    for (const Annotation& annotation : group.annotation()) {
      const NormalizedBBox& box = annotation.bbox();
      one.boxes.push_back({static_cast<float>(group.group_label()),
                           static_cast<float>(annotation.instance_id()),
                           {box.xmin(), box.ymin(), box.xmax(), box.ymax()},
                           box.difficult()});
    }
  return one;
}

class AnnotatedItems final : public RecordItems {
 public:
  AnnotatedItems(std::unique_ptr<RecordSource> source, const SequenceOptions& sequence,
                 Transform transform, int batch_size, const TransformationParameter& param,
                 const AnnotatedDataParameter& annotated)
      : RecordItems(std::move(source), sequence, std::move(transform), batch_size),
        param_(param),
        samplers_(annotated.batch_sampler().begin(), annotated.batch_sampler().end()) {}

  Result<ItemKind> kind(const Item& item) const override {
    Result<Annotated> one = changed(item);
    if (!one.ok()) return one.error();
    Result<ImageSize> size = transform().output_size(one.value().image.size);
    if (!size.ok()) return size.error();
    return ItemKind{size.value(), true, true};
  }

  Status make(const Item& item, Sample& sample) const override {
    Result<Annotated> one = changed(item);
    if (!one.ok()) return one.error();
    const Pixels pixels = pixels_of(one.value().image);
    if (Status put = put_pixels(transform(), pixels, random(item), sample); !put.ok()) return put;
    sample.label = 0;
    sample.boxes.clear();
    std::vector<TruePart>& boxes = one.value().boxes;
    const ImageCrop crop = transform().crop(pixels, random(item));
    const BoxPart area = part_of(pixels.size, crop, sample.size());
    project_all(area, constraint(), boxes);
    for (TruePart& box : boxes) {
      if (crop.mirrored) box.box = {1 - box.box.xmax, box.box.ymin, 1 - box.box.xmin, box.box.ymax};
      const BoxPart place = extrapolated(box.box, sample.size());
      sample.boxes.push_back({box.group, box.instance, place.xmin, place.ymin, place.xmax,
                              place.ymax, box.difficult ? 1.0f : 0.0f});
    }
    return {};
  }

 private:
  const EmitConstraint* constraint() const {
    return param_.has_emit_constraint() ? &param_.emit_constraint() : nullptr;
  }

  static BoxPart part_of(const ImageSize& whole, const ImageCrop& crop, const ImageSize& part) {
    const auto width = static_cast<float>(whole.width), height = static_cast<float>(whole.height);
    return {static_cast<float>(crop.left) / width, static_cast<float>(crop.top) / height,
            static_cast<float>(crop.left + part.width) / width,
            static_cast<float>(crop.top + part.height) / height};
  }

  // Does all but the crop and the mirror, which draw from the item's own four words.
  Result<Annotated> changed(const Item& item) const {
    Result<Annotated> parsed = parse_annotated(item.bytes, transform().colour());
    if (!parsed.ok()) return parsed.error();
    Annotated one = std::move(parsed).value();
    const std::array<std::uint32_t, 4> words = random(item);
    Random drawn(std::uint64_t{words[0]} << 32 | words[1],
                 std::uint64_t{words[2]} << 32 | words[3]);
    if (param_.has_distort_param()) distort(param_.distort_param(), drawn, one.image);
    if (param_.has_expand_param()) expand(drawn, one);
    if (!samplers_.empty()) take_sample(drawn, one);
    if (param_.has_resize_param()) resize(drawn, one);
    if (param_.has_noise_param()) add_noise(param_.noise_param(), drawn, one.image);
    return one;
  }

  void expand(Random& drawn, Annotated& one) const {
    const ExpansionParameter& expansion = param_.expand_param();
    if (drawn.unit() > expansion.prob()) return;
    if (!(expansion.max_expand_ratio() - 1 >= 0.01f)) return;
    const float ratio = drawn.uniform(1, expansion.max_expand_ratio());
    const ImageSize& size = one.image.size;
    const int height = static_cast<int>(static_cast<float>(size.height) * ratio),
              width = static_cast<int>(static_cast<float>(size.width) * ratio);
    const int top = static_cast<int>(drawn.uniform(0, static_cast<float>(height - size.height))),
              left = static_cast<int>(drawn.uniform(0, static_cast<float>(width - size.width)));
    const float x = static_cast<float>(size.width), y = static_cast<float>(size.height);
    const BoxPart area{-static_cast<float>(left) / x, -static_cast<float>(top) / y,
                       static_cast<float>(width - left) / x, static_cast<float>(height - top) / y};
    std::vector<float> colour = transform().mean_values();
    if (colour.empty()) colour.push_back(0);
    one.image = on_canvas(one.image, {top, left, size.height, size.width}, height, width, colour);
    project_all(area, constraint(), one.boxes);
  }

  void take_sample(Random& drawn, Annotated& one) const {
    const std::vector<BoxPart> parts = sample_parts(samplers_, one.boxes, drawn);
    if (parts.empty()) return;
    const BoxPart& part = parts[drawn.below(parts.size())];
    const auto width = static_cast<float>(one.image.size.width),
               height = static_cast<float>(one.image.size.height);
    ImagePart pixels{static_cast<int>(part.ymin * height), static_cast<int>(part.xmin * width), 1,
                     1};
    pixels.top = std::min(pixels.top, one.image.size.height - 1);
    pixels.left = std::min(pixels.left, one.image.size.width - 1);
    pixels.height =
        std::clamp(static_cast<int>(part.height() * height), 1, one.image.size.height - pixels.top);
    pixels.width =
        std::clamp(static_cast<int>(part.width() * width), 1, one.image.size.width - pixels.left);
    one.image = cut_out(one.image, pixels);
    project_all(part, constraint(), one.boxes);
  }

  // The bars of FIT_LARGE_SIZE_AND_PAD push the boxes together.
  void resize(Random& drawn, Annotated& one) const {
    const ResizeParameter& resize = param_.resize_param();
    const ImageSize before = one.image.size;
    one.image = resize_by(resize, drawn, std::move(one.image));
    if (resize.resize_mode() != ResizeParameter::FIT_LARGE_SIZE_AND_PAD) return;
    if (one.image.size == before) return;
    const auto width = static_cast<float>(resize.width()),
               height = static_cast<float>(resize.height());
    const float aspect = static_cast<float>(before.width) / static_cast<float>(before.height);
    const bool wide = aspect > width / height;
    const float shown_x = wide ? 1 : aspect * height / width,
                shown_y = wide ? width / aspect / height : 1;
    const float bar_x = (1 - shown_x) / 2, bar_y = (1 - shown_y) / 2;
    for (TruePart& one_box : one.boxes) {
      BoxPart& box = one_box.box;
      box = {bar_x + box.xmin * shown_x, bar_y + box.ymin * shown_y, bar_x + box.xmax * shown_x,
             bar_y + box.ymax * shown_y};
    }
  }

  // FIT_SMALL_SIZE with height_scale and width_scale counts boxes in units of these, not of the
  // crop. Source: SSD's ExtrapolateBBox.
  BoxPart extrapolated(const BoxPart& box, const ImageSize& size) const {
    const ResizeParameter& resize = param_.resize_param();
    if (!param_.has_resize_param() || resize.resize_mode() != ResizeParameter::FIT_SMALL_SIZE ||
        !resize.height_scale() || !resize.width_scale())
      return box;
    const float x = static_cast<float>(size.width) / static_cast<float>(resize.width_scale()),
                y = static_cast<float>(size.height) / static_cast<float>(resize.height_scale());
    return {box.xmin * x, box.ymin * y, box.xmax * x, box.ymax * y};
  }

  TransformationParameter param_;
  std::vector<BatchSampler> samplers_;
};

Status check_sampler(const Sampler& sampler) {
  const bool fits = sampler.min_scale() > 0 && sampler.min_scale() <= sampler.max_scale() &&
                    sampler.max_scale() <= 1 && sampler.min_aspect_ratio() > 0 &&
                    sampler.min_aspect_ratio() <= sampler.max_aspect_ratio();
  if (fits) return {};
  return Error{Code::kConfig,
               str("sampler { ", sampler.ShortDebugString(),
                   " } of batch_sampler: scales are above 0 and at most 1, aspect ratios above 0, "
                   "and no min is above its max")};
}

}  // namespace

Result<std::unique_ptr<ItemSource>> annotated_items(std::unique_ptr<RecordSource> source,
                                                    const SequenceOptions& sequence,
                                                    Transform transform, int batch_size,
                                                    const TransformationParameter& param,
                                                    const AnnotatedDataParameter& annotated) {
  if (Status checked = check_changes(param); !checked.ok()) return checked.error();
  for (const BatchSampler& sampler : annotated.batch_sampler())
    if (Status checked = check_sampler(sampler.sampler()); !checked.ok()) return checked.error();
  auto items = std::make_unique<AnnotatedItems>(std::move(source), sequence, std::move(transform),
                                                batch_size, param, annotated);
  if (Status started = items->start(); !started.ok()) return started.error();
  return std::unique_ptr<ItemSource>(std::move(items));
}

}  // namespace shoal
