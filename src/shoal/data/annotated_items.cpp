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
  one.image = record.datum().encoded() ? std::move(pixels.value().decoded)
                                       : image_of(pixels.value().pixels);
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
        annotated_(annotated),
        samplers_(annotated.batch_sampler().begin(), annotated.batch_sampler().end()),
        batch_size_(static_cast<std::uint64_t>(batch_size)) {}

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
    if (Status put = put_pixels(transform(), pixels, random(item.n), sample); !put.ok()) return put;
    sample.label = 0;
    sample.boxes.clear();
    std::vector<TruePart>& boxes = one.value().boxes;
    const ImageCrop crop = transform().crop(pixels, random(item.n));
    const BoxPart area = part_of(pixels.size, crop, sample.size());
    project_all(area, constraint(), boxes);
    for (TruePart& box : boxes) {
      if (crop.mirrored) box.box = {1 - box.box.xmax, box.box.ymin, 1 - box.box.xmin, box.box.ymax};
      const BoxPart place = extrapolated(resize_of(item), box.box, sample.size());
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
    Random drawn = generator_of(random(item.n));
    const ResizeParameter* const resizing = resize_of(item);
    if (param_.has_distort_param()) distort(param_.distort_param(), drawn, one.image);
    if (param_.has_expand_param()) expand(drawn, one);
    if (!samplers_.empty() || jitters()) take_sample(drawn, resizing, one);
    const bool by_chance = param_.resize_param_size() == 1 && param_.resize_param(0).has_prob();
    if (resizing && !(by_chance && drawn.unit() >= resizing->prob())) resize(*resizing, drawn, one);
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

  bool jitters() const {
    return annotated_.yolo_data_jitter() > 0 &&
           (annotated_.yolo_data_type() == 1 || annotated_.has_yolo_data_jitter());
  }

  // Returns how the pictures of the item's batch are resized, null: not at all. One of several is
  // drawn for ten batches at a time.
  const ResizeParameter* resize_of(const Item& item) const {
    constexpr std::uint64_t kBatches = 10;
    if (param_.resize_param_size() == 0) return nullptr;
    if (param_.resize_param_size() == 1) return &param_.resize_param(0);
    const std::uint64_t drawn_for = batch_size_ * kBatches;
    float rest = generator_of(random(item.n / drawn_for * drawn_for)).fork("size").unit();
    for (const ResizeParameter& one : param_.resize_param())
      if (rest -= one.prob(); rest < 0) return &one;
    return &*param_.resize_param().rbegin();
  }

  void take_sample(Random& drawn, const ResizeParameter* resizing, Annotated& one) const {
    const bool keeps_shape =
        resizing && resizing->resize_mode() == ResizeParameter::FIT_LARGE_SIZE_AND_PAD;
    const std::vector<BoxPart> parts =
        samplers_.empty()
            ? std::vector{jittered_part(annotated_.yolo_data_jitter(), keeps_shape, drawn)}
            : sample_parts(samplers_, one.boxes, drawn);
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
  static void resize(const ResizeParameter& resize, Random& drawn, Annotated& one) {
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
  static BoxPart extrapolated(const ResizeParameter* resize, const BoxPart& box,
                              const ImageSize& size) {
    if (!resize || resize->resize_mode() != ResizeParameter::FIT_SMALL_SIZE ||
        !resize->height_scale() || !resize->width_scale())
      return box;
    const float x = static_cast<float>(size.width) / static_cast<float>(resize->width_scale()),
                y = static_cast<float>(size.height) / static_cast<float>(resize->height_scale());
    return {box.xmin * x, box.ymin * y, box.xmax * x, box.ymax * y};
  }

  TransformationParameter param_;
  AnnotatedDataParameter annotated_;
  std::vector<BatchSampler> samplers_;
  std::uint64_t batch_size_;
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

Status check_yolo(const AnnotatedDataParameter& annotated) {
  if (annotated.yolo_data_type() != 0 && annotated.yolo_data_type() != 1)
    return Error{Code::kConfig, str("yolo_data_type is ", annotated.yolo_data_type(),
                                    "; it is 1 for rows of class, centre and size, or 0")};
  if (annotated.yolo_data_jitter() >= 0 && annotated.yolo_data_jitter() < 1) return {};
  return Error{Code::kConfig, str("yolo_data_jitter is ", annotated.yolo_data_jitter(),
                                  "; it is a part of each side, from 0 to below 1")};
}

}  // namespace

Result<std::unique_ptr<ItemSource>> annotated_items(std::unique_ptr<RecordSource> source,
                                                    const SequenceOptions& sequence,
                                                    Transform transform, int batch_size,
                                                    const TransformationParameter& param,
                                                    const AnnotatedDataParameter& annotated) {
  if (Status checked = check_changes(param); !checked.ok()) return checked.error();
  if (Status checked = check_yolo(annotated); !checked.ok()) return checked.error();
  for (const BatchSampler& sampler : annotated.batch_sampler())
    if (Status checked = check_sampler(sampler.sampler()); !checked.ok()) return checked.error();
  auto items = std::make_unique<AnnotatedItems>(std::move(source), sequence, std::move(transform),
                                                batch_size, param, annotated);
  if (Status started = items->start(); !started.ok()) return started.error();
  return std::unique_ptr<ItemSource>(std::move(items));
}

}  // namespace shoal
