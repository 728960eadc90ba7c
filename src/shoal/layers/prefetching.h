// What Data and ImageData share: batches made ahead, each with its own size, position and seed as their state.
#pragma once

#include <memory>
#include <string>

#include "shoal/data/prefetch.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"
#include "shoal/layers/layer.h"

namespace shoal {

// top[0] (N, C, H, W), the batch's size after crop   top[1], if there is one: labels (N)
// All records of a batch have one size; the next batch may have another. follow_input takes the batch, which forward copies. The
// threads start with the first. A record that cannot be used ends the pass by ctx.fail, unless on_bad_record says otherwise.
class PrefetchingLayer : public Layer {
 public:
  using Layer::Layer;
  void setup(Context& ctx, Bottoms, Tops tops) final;
  void reshape(Context&, Bottoms, Tops) final {}
  bool follow_input(Context& ctx, Tops tops) final;
  void forward(Context& ctx, Bottoms, Tops tops) final;
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) final {}
  // u64 n, the records used so far; u64 seed, u64 stream of the order and the crops. Little-endian.
  std::string save_state() const final;
  Status load_state(std::string_view state) final;
  std::string record_name(std::int64_t item) const final;
  double seconds_waited() const final { return waited_before_ + (prefetch_ ? prefetch_->seconds_waited() : 0); }

 protected:
  struct Feed {
    std::int64_t batch_size = 1, depth = 4;
    int threads = 0;   // 0: default_decode_threads
    OnBadRecord on_bad = OnBadRecord::kStop;
    bool shuffle = false;
    std::uint64_t rand_skip = 0;
  };
  virtual Feed feed() const = 0;                                                       // throws ConfigError
  virtual std::unique_ptr<ItemSource> open(const SequenceOptions&, Transform) = 0;     // throws ConfigError
  virtual TransformationParameter transformation() const;
  // The name the layer reads: `source`, or `source`_0 where only that exists (a set cut up for several clients).
  std::string find_source(const std::string& source) const;
  OnBadRecord on_bad(int policy) const;   // a DataParameter_BadRecord

 private:
  void open_items();
  void start();
  void reshape_data(Blob& top, const ImageSize& size) const;   // throws ConfigError
  void look_for_order(const Batch& batch);
  Feed feed_;
  SequenceOptions sequence_;
  std::unique_ptr<ItemSource> items_;
  std::unique_ptr<Prefetch> prefetch_;   // after what it reads; empty until the first batch
  const Batch* batch_ = nullptr;         // the last one
  std::uint64_t n_ = 0;                  // of the first record that no forward has used
  double waited_before_ = 0;             // in prefetches of before load_state
  std::uint64_t labels_seen_ = 0;        // of the first kLabelsChecked
  float first_label_ = 0, last_label_ = 0;
  bool rising_ = true;
};

}  // namespace shoal
