// The layers whose gradients the workers sum among themselves, by a collective: each then applies
// the same update to its own copy of the params.
#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/bucket_sums.h"
#include "shoal/parallel/replicated_layers.h"
#include "shoal/solver/net_params.h"

namespace shoal::parallel {
namespace {

Layers layers_of(const Net& net, const Bucket& bucket) {
  Layers layers(net.layers().size());
  for (const int layer : bucket.layers) layers[layer] = true;
  return layers;
}

class CollectiveLayers final : public ReplicatedLayers {
 public:
  explicit CollectiveLayers(const TableSetup& setup)
      : ReplicatedLayers(collective_by(setup.ways)),
        net_(setup.net),
        clips_(setup.param.clip_gradients() >= 0),
        scheme_(or_throw(setup.options.maker(setup.options.scheme))),
        sums_(setup, BucketSums::Of::kGradients) {
    for (std::size_t part = 0; part < sums_.size(); ++part)
      parts_.emplace_back(setup, layers_of(net_, sums_.bucket(part)));
  }

  std::vector<Tensor*> histories() override {
    std::vector<Tensor*> all;
    for (Part& part : parts_) add_histories(part.rule.histories(), all);
    return all;
  }
  std::vector<table::Row> rows(table::RowId first) override { return sums_.rows(first); }
  table::Destination destination(table::RowId row) const override { return sums_.destination(row); }

  Status before_forward(int layer, RowWaits& waits) override {
    const std::size_t of = sums_.part_of(layer);
    Part& part = parts_[of];
    if (Status status = gather(of, waits); !status.ok()) return status;
    update(part, 0);
    part.rule.before_forward(layer);
    part.clock = iteration();
    part.rate = rate();
    return sums_.expect(of, iteration(), waits);
  }
  bool prepare(int layer, std::vector<const Tensor*>& gradients) const override {
    for (const Tensor* const gradient : gradients_of(net_, layer)) {
      if (!sums_.in_place(layer)) gradient->begin_download();
      gradients.push_back(gradient);
    }
    return true;
  }
  void send(int layer, float weight) override { sums_.send(layer, weight); }
  void send_nothing() override { sums_.send_nothing(); }
  void progress() override { sums_.progress(); }
  Result<double> gather_all(RowWaits& waits) override {
    double squares = 0;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      if (Status status = gather(part, waits); !status.ok()) return status.error();
      squares += parts_[part].rule.gradients().squares;
    }
    return squares;
  }
  bool update_all(double squares) override {
    for (Part& part : parts_) update(part, squares);
    return false;
  }

 private:
  // The params of a bucket.
  struct Part {
    Part(const TableSetup& setup, const Layers& layers)
        : rule(rule_of(setup, layers, setup.net.context())) {}

    LocalRule rule;
    table::Clock clock = -1;  // of the gradient that was asked for last
    float rate = 0;           // of its update
    bool is_due = false;      // the gradient is there, and the update is still to do
  };

  // Waits for the sum of a bucket and makes it the gradient. The others that are there by then come
  // along, so that a device is waited for once for all of them.
  Status gather(std::size_t of, RowWaits& waits) {
    std::vector<std::size_t> due;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t part = (of + i) % parts_.size();
      if (part != of && !sums_.is_there(part)) continue;
      const Result<std::optional<float>> weight = sums_.finish(part, waits);
      if (!weight.ok()) return weight.error();
      if (weight.value() && take(part, *weight.value())) due.push_back(part);
    }
    return look(due);
  }
  // Makes the sum of a bucket the gradient. False: it counts nothing, and is forgotten.
  bool take(std::size_t of, float weight) {
    Part& part = parts_[of];
    const table::Merge merge = merge_of(*scheme_, part.clock, part.rate, {&weight, 1});
    if (merge.take.empty()) {
      part.rule.skip();
      return false;
    }
    sums_.read(of, merge.scale);
    part.rate *= merge.rate_scale;
    part.is_due = true;
    return true;
  }
  // Returns an error unless the gradients of all these buckets are finite.
  Status look(const std::vector<std::size_t>& buckets) {
    std::vector<const Tensor*> gradients;
    for (const std::size_t of : buckets)
      std::ranges::copy(gradients_of(net_, sums_.bucket(of).layers), std::back_inserter(gradients));
    if (!clips_ && ops::all_finite(net_.context(), gradients)) return {};
    for (const std::size_t of : buckets) {
      Part& part = parts_[of];
      const Bucket& bucket = sums_.bucket(of);
      for (const int layer : bucket.layers) part.rule.look(layer);
      if (Status status = check_finite(
              part.rule,
              str("the sum of all workers' gradients of clock ", part.clock, " for layer '",
                  net_.layers()[static_cast<std::size_t>(bucket.layers.back())]->name(),
                  "' or one that travels with it"));
          !status.ok())
        return status;
    }
    return {};
  }
  static void update(Part& part, double squares) {
    if (std::exchange(part.is_due, false)) part.rule.update(part.clock, part.rate, squares);
  }

  Net& net_;
  const bool clips_;
  const std::unique_ptr<table::Scheme> scheme_;  // how the gradients of a clock become one update
  BucketSums sums_;
  std::deque<Part> parts_;  // by bucket
};

}  // namespace

std::unique_ptr<ReplicatedLayers> make_collective_layers(const TableSetup& setup) {
  return std::make_unique<CollectiveLayers>(setup);
}

}  // namespace shoal::parallel
