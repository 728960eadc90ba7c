// AnnotatedData layer: reads batches of pictures with true boxes from a database or a datumfile.
#include "shoal/data/items.h"
#include "shoal/layers/record_layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Records that are AnnotatedDatums, read as Data reads its records (data_param says which, and nets
// of a job share them alike); transform_param's changes and the batch samplers take the boxes
// along (data/items.h). See PrefetchingLayer for the tops. label_map_file says nothing to it.
// Source: SSD's AnnotatedDataLayer; which random numbers it draws is ours.
class AnnotatedData final : public RecordLayer {
 public:
  using RecordLayer::RecordLayer;

 protected:
  bool has_boxes() const override { return true; }

  std::unique_ptr<ItemSource> open(const std::string& path, const SequenceOptions& sequence,
                                   Transform transform) override {
    Result<std::unique_ptr<ItemSource>> items =
        annotated_items(open_records(path), sequence, std::move(transform),
                        static_cast<int>(param().data_param().batch_size()),
                        param().transform_param(), param().annotated_data_param());
    if (!items.ok()) throw config_error(items.error().code, param(), items.error().message);
    return std::move(items).value();
  }
};

}  // namespace

std::unique_ptr<Layer> make_AnnotatedData(const LayerParameter& param) {
  return std::make_unique<AnnotatedData>(param);
}

}  // namespace shoal
