// Base class of Data, ImageData and WindowData: takes batches that were made ahead, each with its
// own size, of the net's share of the records; saves position and seed as its state.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "shoal/data/batch_copies.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"
#include "shoal/layers/layer.h"
#include "shoal/ops/op.h"

namespace shoal {

class PartsManifest;

// top[0] (N, C, H, W), the batch's size after crop   top[1], if there is one: labels (N)
// All records of a batch have one size; the next batch may have another. follow_input takes the
// batch; forward lets the tops look at its memory, which is theirs until the next batch is taken,
// also to be written in place. On a device with memory of its own, pixels that are bytes are copied
// there as bytes, ahead of their use, and top[0] is computed there (ops/images.h). The threads
// start with the first. A record that cannot be used ends the pass by ctx.fail, unless
// on_bad_record says otherwise.
//
// With several clients each client reads its own part, <source>_<client> (or the suffix that its
// Share names), and its replicas take the part's records in turn. With shared_file_system all read
// <source>, and of P nets number i takes the records at the places i, i + P, i + 2 P ... of one row
// of epochs: in an epoch each record is used once, by one of them.
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
  // u64 n, the records used so far; u64 seed, u64 stream of the job's order and crops; u64 how many
  // nets share the data, u64 base, the records that nets together had used before they were so
  // many; the last is left out if it is 0, and so is the one before if it is 1 then. Little-endian.
  // load_state in a job of P nets makes n * (how many) / P, rounded down, of n; where there is a
  // base already, base + n * (how many) of it. Where the nets' parts of an epoch differ, n is what
  // all together have used when this one has used so many, and neither is there.
  std::string save_state() const final;
  Status load_state(std::string_view state) final;
  // With a shared source, base becomes the number of records that all have used: if the nets were
  // in step, no record is used twice in an epoch or left out. If one was ahead of the others, as
  // many of its records are used again as are left out of theirs. A client with a part of its own
  // goes on in it, or begins it.
  Status load_states(std::string_view own, const std::vector<std::string_view>& all) final;
  std::string record_name(std::int64_t item) const final;
  double seconds_waited() const final {
    return waited_before_ + (batches_ ? batches_->seconds_waited() : 0);
  }
  // "transform", by the device or on the host.
  std::vector<ops::Choice> choices() const final { return {transform_}; }

 protected:
  struct Feed {
    std::string source;
    bool shared = false;         // shared_file_system
    std::string why_not_shared;  // by several processes; empty: they may
    std::int64_t batch_size = 1, depth = 4;
    int threads = 0;  // 0: default_decode_threads
    OnBadRecord on_bad = OnBadRecord::kStop;
    bool shuffle = false;
    bool whole_batches = false;  // the n of a batch's first record is a multiple of batch_size
    std::string why_numbers;     // that records are never sent as bytes; empty: they may be
    std::uint64_t rand_skip = 0;
  };
  // throws ConfigError
  virtual Feed feed() const = 0;
  // Opens the items of `path`, which is the source or a part of it. Throws ConfigError.
  virtual std::unique_ptr<ItemSource> open(const std::string& path, const SequenceOptions&,
                                           Transform) = 0;
  virtual TransformationParameter transformation() const;
  OnBadRecord on_bad(int policy) const;  // a DataParameter_BadRecord

 private:
  bool reads_part() const { return (share_.clients > 1 || share_.in_parts) && !feed_.shared; }
  struct Place {
    std::uint64_t n = 0, base = 0, nets = 1;
    Random::State order{};
    std::uint64_t whole() const { return base + n * nets; }  // of all nets, if they are in step
  };
  Result<Place> read_place(std::string_view state) const;
  Status go_to(std::uint64_t n, std::uint64_t base, const Random::State& order);
  Status go_to(std::uint64_t whole, const Random::State& order);
  std::string part_suffix() const;
  std::string whole_source() const;
  std::string own_part() const;  // throws ConfigError if it is not there
  void compare_parts() const;
  void warn_of_parts(const PartsManifest& manifest) const;
  SequenceOptions sequence() const;
  // Nets that share a source take its records in turn, in slices of a batch of all, or each a part
  // of every epoch.
  bool by_slices() const {
    const std::vector<std::int64_t> lengths = slices();
    return !reads_part() &&
           std::ranges::adjacent_find(lengths, std::not_equal_to()) != lengths.end();
  }
  std::vector<std::int64_t> slices() const;  // records, by client
  bool by_parts() const { return !reads_part() && !by_slices() && !share_.weights.empty(); }
  bool in_turn() const { return !by_slices() && !by_parts(); }
  double own_part_of_epoch() const;   // of by_parts(); in (0, 1]
  std::uint64_t used_by_all() const;  // records of the source, unless they are taken in turn
  void open_items();
  void choose_form(const Context& ctx, const ItemKind& kind);
  void start(const Device& device, std::size_t least_bytes);
  void show_numbers(Tops tops);
  void transform(Context& ctx, Tops tops);
  void reshape_data(Blob& top, const ImageSize& size) const;  // throws ConfigError
  void look_for_order(const Batch& batch);
  Feed feed_;
  Share share_;
  // names the stream of the order and the crops, the same for all nets of the job
  Random::State order_;
  std::unique_ptr<ItemSource> items_;
  std::unique_ptr<BatchCopies> batches_;  // after what it reads; empty until the first batch
  BatchCopies::Taken taken_;              // the last one
  PixelForm form_ = PixelForm::kNumbers;
  ops::Choice transform_;
  Tensor mean_;  // for kBytes, as is scale_
  float scale_ = 1;
  std::uint64_t n_ = 0;            // of the first record that no forward has used
  std::uint64_t base_ = 0;         // as in Sequence
  double waited_before_ = 0;       // in prefetches of before load_state
  std::uint64_t labels_seen_ = 0;  // of the first kLabelsChecked
  float first_label_ = 0, last_label_ = 0;
  bool rising_ = true;
};

}  // namespace shoal
