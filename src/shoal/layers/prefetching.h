// Base class of the layers that read records and pictures: takes batches that were made ahead, each
// with its own size, of the net's share of the records; saves position and seed as its state.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "shoal/data/batch_copies.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"
#include "shoal/layers/layer.h"
#include "shoal/layers/source_place.h"
#include "shoal/ops/op.h"

namespace shoal {

// top[0] (N, C, H, W), the batch's size after crop   top[1], if there is one: labels (N); or, with
// makes_tops, what put_top makes, of it and of further ones
// All records of a batch have one size; the next batch may have another. follow_input takes the
// batch; forward lets the tops look at its memory, which is theirs until the next batch is taken,
// also to be written in place. On a device with memory of its own, pixels that are bytes are copied
// there as bytes, ahead of their use, and top[0] is computed there (ops/images.h). The threads
// start with the first. A record that cannot be used ends the pass by ctx.fail, unless
// on_bad_record says otherwise. SourcePlace says which records a net reads, and what its state is.
class PrefetchingLayer : public Layer {
 public:
  using Layer::Layer;
  void setup(Context& ctx, Bottoms, Tops tops) final;
  void reshape(Context&, Bottoms, Tops) final {}
  bool brings_memory() const final { return true; }
  Replays replays() const final { return {.forward = false}; }
  bool follow_input(Context& ctx, Tops tops) final;
  void forward(Context& ctx, Bottoms, Tops tops) final;
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) final {}
  std::string save_state() const final { return place_.save(); }
  Status load_state(std::string_view state) final;
  Status load_states(std::string_view own, const std::vector<std::string_view>& all) final;
  std::string record_name(std::int64_t item) const final;
  double seconds_waited() const final {
    return waited_before_ + (batches_ ? batches_->seconds_waited() : 0);
  }
  // "transform", by the device or on the host.
  std::vector<ops::Choice> choices() const final { return {transform_}; }

 protected:
  struct Feed : SourcePlace::Source {
    std::int64_t depth = 4;
    int threads = 0;  // 0: default_decode_threads
    OnBadRecord on_bad = OnBadRecord::kStop;
    std::string why_numbers;  // that records are never sent as bytes; empty: they may be
  };
  // Throws ConfigError.
  virtual Feed feed() const = 0;
  // Opens the items of `path`, which is the source or a part of it. Throws ConfigError.
  virtual std::unique_ptr<ItemSource> open(const std::string& path, const SequenceOptions&,
                                           Transform) = 0;
  virtual TransformationParameter transformation() const;
  // Returns whether put_top makes the tops behind the first; else top[1] has the labels.
  virtual bool makes_tops() const { return false; }
  // Returns the shape of top `top`, of a batch of pictures of this size; null: of the first one.
  virtual Shape top_shape(std::size_t, const ImageSize&, const Batch*) const { return {}; }
  virtual void put_top(std::size_t, const Batch&, std::span<float>) const {}
  // Returns whether SSD's changes of pictures are followed.
  virtual bool changes_pictures() const { return false; }
  // Returns whether the items come to the size that the transform's random_sizes() draw.
  virtual Transform::Sizes sizes() const { return Transform::Sizes::kAsStored; }
  OnBadRecord on_bad(int policy) const;  // a DataParameter_BadRecord

 private:
  Status go_on(const Result<bool>& in_another_order);
  void open_items();
  void choose_form(const Context& ctx, const ItemKind& kind);
  void start(const Device& device, std::size_t least_bytes);
  void show_numbers(Tops tops);
  void transform(Context& ctx, Tops tops);
  void reshape(Tops tops, const ImageSize& size, const Batch* batch) const;  // throws ConfigError
  void look_for_order(const Batch& batch);
  void refuse_changes() const;  // throws ConfigError
  Feed feed_;
  SourcePlace place_;
  std::unique_ptr<ItemSource> items_;
  std::unique_ptr<BatchCopies> batches_;  // after what it reads; empty until the first batch
  BatchCopies::Taken taken_;              // the last one
  PixelForm form_ = PixelForm::kNumbers;
  ops::Choice transform_;
  Tensor mean_;  // for kBytes, as is scale_
  float scale_ = 1;
  double waited_before_ = 0;       // in prefetches of before load_state
  std::uint64_t labels_seen_ = 0;  // of the first kLabelsChecked
  float first_label_ = 0, last_label_ = 0;
  bool rising_ = true;
};

}  // namespace shoal
