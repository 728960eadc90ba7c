// MemoryData layer: batches from the caller's arrays.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"
#include "shoal/layers/layer.h"

namespace shoal {

// top[0] (N, C, H, W) of memory_data_param, all of whose sizes must be set   top[1] labels (N)
// Items in the order given, round and round. Source: BVLC Caffe 1.0's MemoryData layer, whose
// Reset, AddMatVector and AddDatumVector are set_data, set_images and set_datums here.
class MemoryData final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .min_tops = 2, .max_tops = 2};
  }
  Replays replays() const override { return {.forward = false}; }
  void setup(Context&, Bottoms, Tops tops) override;
  void reshape(Context&, Bottoms, Tops) override {}
  // Fails by ctx.fail before the first set_data.
  void forward(Context& ctx, Bottoms, Tops tops) override;
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

  // Copies `data` (items x C x H x W) and `labels` (items) and starts at item 0. Errors (kData):
  // lengths that do not agree, no items, a number of items that is no multiple of the batch size.
  // transform_param does not apply to them, and a line in the log says so.
  Status set_data(std::span<const float> data, std::span<const float> labels);
  // The same of pictures, as transform_param makes them: one transformation of each, now. An OpenCV
  // picture is {{channels, rows, cols}, true, {data, channels * rows * cols}}. Errors (kData) too:
  // a picture that the transformation does not bring to C x H x W, with its number.
  Status set_images(std::span<const Pixels> pictures, std::span<const float> labels);
  // The same of Datums, encoded or not, with their labels.
  Status set_datums(std::span<const Datum> datums);

  std::string save_state() const override;  // u64: the next item
  Status load_state(std::string_view state) override;
  std::string record_name(std::int64_t item) const override;

 private:
  Status put(const Pixels& picture, std::size_t item, std::span<float> out);
  Status take(std::vector<float> data, std::vector<float> labels);

  std::int64_t batch_size_ = 0, item_count_ = 0;  // items a batch, numbers an item
  ImageSize size_;                                // of an item
  std::optional<Transform> transform_;            // from setup on
  std::optional<Sequence> random_;                // for crops and mirrors
  std::uint64_t transformed_ = 0;                 // items, since setup
  std::vector<float> data_, labels_;
  std::uint64_t next_ = 0;
};

}  // namespace shoal
