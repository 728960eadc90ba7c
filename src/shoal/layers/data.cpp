// Data layer: reads batches of records from a database or a datumfile.
#include "shoal/data/items.h"
#include "shoal/layers/record_layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Records of a LevelDB, an LMDB or a datumfile, in their order or shuffled by seed, round and
// round; see PrefetchingLayer for the tops. Source: BVLC Caffe 1.0's Data layer; shuffle,
// in_memory, on_bad_record and decode_threads are ours.
class Data final : public RecordLayer {
 public:
  using RecordLayer::RecordLayer;

 protected:
  Transform::Sizes sizes() const override { return Transform::Sizes::kDrawn; }

  std::unique_ptr<ItemSource> open(const std::string& path, const SequenceOptions& sequence,
                                   Transform transform) override {
    Result<std::unique_ptr<ItemSource>> items =
        record_items(open_records(path), sequence, std::move(transform),
                     static_cast<int>(param().data_param().batch_size()));
    if (!items.ok()) throw config_error(items.error().code, param(), items.error().message);
    return std::move(items).value();
  }
};

}  // namespace

std::unique_ptr<Layer> make_Data(const LayerParameter& param) {
  return std::make_unique<Data>(param);
}

}  // namespace shoal
