// MemoryData layer: batches from the caller's arrays.
#pragma once

#include <span>
#include <vector>

#include "shoal/layers/layer.h"

namespace shoal {

// top[0] (N, C, H, W) of memory_data_param, all of whose sizes must be set   top[1] labels (N)
// Items in the order given, round and round. Source: BVLC Caffe 1.0's MemoryData layer;
// transform_param does not apply.
class MemoryData final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .min_tops = 2, .max_tops = 2};
  }
  void setup(Context&, Bottoms, Tops tops) override;
  void reshape(Context&, Bottoms, Tops) override {}
  // Fails by ctx.fail before the first set_data.
  void forward(Context& ctx, Bottoms, Tops tops) override;
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

  // Copies `data` (items x C x H x W) and `labels` (items) and starts at item 0. Errors (kData):
  // lengths that do not agree, no items, a number of items that is no multiple of the batch size.
  Status set_data(std::span<const float> data, std::span<const float> labels);

  std::string save_state() const override;  // u64: the next item
  Status load_state(std::string_view state) override;
  std::string record_name(std::int64_t item) const override;

 private:
  std::int64_t batch_size_ = 0, item_count_ = 0;  // items a batch, numbers an item
  std::vector<float> data_, labels_;
  std::uint64_t next_ = 0;
};

}  // namespace shoal
