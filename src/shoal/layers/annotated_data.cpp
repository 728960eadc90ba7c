// AnnotatedData layer: reads batches of pictures with true boxes from a database or a datumfile.
#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/data/batch.h"
#include "shoal/data/items.h"
#include "shoal/layers/record_layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

constexpr std::int64_t kBoxNumbers = 8;                    // item, and what Sample::boxes has
constexpr std::int64_t kYoloRows = 300, kYoloNumbers = 5;  // of an item

// Records that are AnnotatedDatums, read as Data reads its records (data_param says which, and nets
// of a job share them alike); transform_param's changes and the batch samplers take the boxes
// along (data/items.h). See PrefetchingLayer for top[0]. label_map_file says nothing to it.
//   top[1] (1, 1, G, 8): a row for each box of each item, in order: item, group_label, instance_id,
//   xmin, ymin, xmax, ymax, difficult; a row of -1 if there are none
//   with yolo_data_type: 1 (N, 1, 300, 5): for each item rows of group_label - 1, the centre's x
//   and y, width, height; then rows of 0. Boxes that are difficult have none if train_diffcult is
//   false; those beyond 300 have none.
// Sources: SSD's AnnotatedDataLayer, MobileNet-YOLO's; which random numbers it draws is ours.
class AnnotatedData final : public RecordLayer {
 public:
  using RecordLayer::RecordLayer;

 protected:
  Feed feed() const override {
    Feed feed = RecordLayer::feed();
    if (param().transform_param().resize_param_size() < 2) return feed;
    feed.whole_batches = true;  // all items of a batch are resized by one
    if (feed.on_bad != OnBadRecord::kStop)
      throw config_error(param(),
                         "on_bad_record does not go with several resize_param: a record that takes "
                         "another's place may be of another size");
    return feed;
  }

  bool changes_pictures() const override { return true; }
  bool makes_tops() const override { return true; }
  Shape top_shape(std::size_t, const ImageSize&, const Batch* batch) const override {
    if (for_yolo()) return {param().data_param().batch_size(), 1, kYoloRows, kYoloNumbers};
    std::int64_t rows = 0;
    if (batch)
      for (const Sample& sample : batch->samples) rows += std::ssize(sample.boxes);
    return {1, 1, std::max<std::int64_t>(rows, 1), kBoxNumbers};
  }
  void put_top(std::size_t, const Batch& batch, std::span<float> out) const override {
    if (for_yolo()) return put_yolo_rows(batch, out);
    std::ranges::fill(out, -1.0f);
    std::size_t at = 0;
    for (std::size_t item = 0; item < batch.samples.size(); ++item)
      for (const auto& box : batch.samples[item].boxes) {
        out[at++] = static_cast<float>(item);
        for (const float number : box) out[at++] = number;
      }
  }

  std::unique_ptr<ItemSource> open(const std::string& path, const SequenceOptions& sequence,
                                   Transform transform) override {
    Result<std::unique_ptr<ItemSource>> items =
        annotated_items(open_records(path), sequence, std::move(transform),
                        static_cast<int>(param().data_param().batch_size()),
                        param().transform_param(), param().annotated_data_param());
    if (!items.ok()) throw config_error(items.error().code, param(), items.error().message);
    return std::move(items).value();
  }

 private:
  bool for_yolo() const { return param().annotated_data_param().yolo_data_type() == 1; }

  void put_yolo_rows(const Batch& batch, std::span<float> out) const {
    std::ranges::fill(out, 0.0f);
    constexpr auto kOfItem = static_cast<std::size_t>(kYoloRows * kYoloNumbers);
    for (std::size_t item = 0; item < batch.samples.size(); ++item) {
      std::size_t at = item * kOfItem;
      for (const auto& [label, instance, xmin, ymin, xmax, ymax, difficult] :
           batch.samples[item].boxes) {
        if (difficult != 0 && !param().annotated_data_param().train_diffcult()) continue;
        if (at == (item + 1) * kOfItem) {
          LOG(WARNING) << layer_place(param()) << ": the record " << batch.samples[item].name
                       << " has more than " << kYoloRows << " boxes; those beyond are left out";
          break;
        }
        for (const float number :
             {label - 1, (xmin + xmax) / 2, (ymin + ymax) / 2, xmax - xmin, ymax - ymin})
          out[at++] = number;
      }
    }
  }
};

}  // namespace

std::unique_ptr<Layer> make_AnnotatedData(const LayerParameter& param) {
  return std::make_unique<AnnotatedData>(param);
}

}  // namespace shoal
