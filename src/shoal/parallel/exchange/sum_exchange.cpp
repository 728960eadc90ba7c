// The exchange of layers whose gradients the workers sum among themselves, by a collective: each
// then applies the same update to its own copy of the params.
#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/parallel/sums/bucket_sums.h"
#include "shoal/solver/net_params.h"

namespace shoal::parallel {
namespace {

Layers layers_of(const Net& net, const Bucket& bucket) {
  Layers layers(net.layers().size());
  for (const int layer : bucket.layers) layers[layer] = true;
  return layers;
}

class SumExchange final : public Exchange {
 public:
  SumExchange(const TableSetup& setup, std::shared_ptr<TableSide> side)
      : side_(std::move(side)),
        net_(setup.net),
        clips_(setup.param.clip_gradients() >= 0),
        scheme_(or_throw(setup.options.maker(setup.options.scheme))),
        sums_(setup, *side_, BucketSums::Of::kGradients) {
    for (std::size_t part = 0; part < sums_.size(); ++part)
      parts_.emplace_back(setup, layers_of(net_, sums_.bucket(part)));
  }

  Status begin(std::int64_t, float) override {
    finite_ = true;
    return {};
  }
  void progress() override { sums_.progress(); }
  Status before_forward(int layer) override {
    const std::optional<std::size_t> of = sums_.part_of(layer);
    if (!of) return {};
    Part& part = parts_[*of];
    TRY(gather(*of));
    update(part, 0);
    part.rule.before_forward(layer);
    part.clock = side_->iteration();
    part.rate = side_->rate();
    return sums_.expect(*of, part.clock);
  }
  // Waits for the device once, which examines all these gradients together.
  Status after_backward(std::span<const int> layers) override {
    std::vector<const Tensor*> gradients;
    for (const int layer : layers) {
      const std::optional<std::size_t> of = sums_.part_of(layer);
      if (!of) continue;
      for (const Tensor* const gradient : gradients_of(net_, layer)) {
        if (!sums_.in_place(*of)) gradient->begin_download();
        gradients.push_back(gradient);
      }
      held_.push_back(layer);
    }
    finite_ = finite_ && ops::all_finite(net_.context(), gradients);
    if (side_->sends_early && finite_) send_held();
    return {};
  }
  Gradients gradients() override { return {.finite = finite_}; }
  // Brings, for a clip, the sums of all layers before the first update.
  Result<double> hand_in(bool update) override {
    if (!update) {
      held_.clear();
      sums_.send_nothing();
    }
    send_held();
    double squares = 0;
    for (std::size_t part = 0; clips_ && part < parts_.size(); ++part) {
      TRY(gather(part));
      squares += parts_[part].rule.gradients().squares;
    }
    return squares;
  }
  Status apply(bool, double squares) override {
    for (Part& part : parts_)
      if (clips_) update(part, squares);
    return {};
  }
  Status settle(Settle) override {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      TRY(gather(part));
      update(parts_[part], 0);
    }
    return {};
  }

  std::vector<StateRow> rows() override {
    std::vector<StateRow> all;
    for (const Part& part : parts_) std::ranges::copy(part.rule.rows(), std::back_inserter(all));
    return all;
  }
  std::vector<Tensor*> histories() override {
    std::vector<Tensor*> all;
    for (Part& part : parts_) add_histories(part.rule.histories(), all);
    return all;
  }
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>&) override {
    for (Part& part : parts_) part.rule.start_at(iteration);
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
  Status gather(std::size_t of) {
    std::vector<std::size_t> due;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t part = (of + i) % parts_.size();
      if (part != of && !sums_.is_there(part)) continue;
      const Result<std::optional<float>> weight = sums_.finish(part);
      TRY(weight);
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
      TRY(check_finite(
          part.rule, str("the sum of all workers' gradients of clock ", part.clock, " for layer '",
                         net_.layers()[static_cast<std::size_t>(bucket.layers.back())]->name(),
                         "' or one that travels with it")));
    }
    return {};
  }
  static void update(Part& part, double squares) {
    if (std::exchange(part.is_due, false)) part.rule.update(part.clock, part.rate, squares);
  }
  void send_held() {
    for (const int layer : held_) sums_.send(layer, side_->options.weight);
    held_.clear();
  }

  const std::shared_ptr<TableSide> side_;
  Net& net_;
  const bool clips_;
  const std::unique_ptr<table::Scheme> scheme_;  // how the gradients of a clock become one update
  BucketSums sums_;
  std::deque<Part> parts_;  // by bucket
  bool finite_ = true;      // this iteration's gradients, so far
  std::vector<int> held_;   // layers whose gradients are complete and were not sent
};

}  // namespace

std::unique_ptr<Exchange> make_sum_exchange(const TableSetup& setup,
                                            std::shared_ptr<TableSide> side) {
  return std::make_unique<SumExchange>(setup, std::move(side));
}

}  // namespace shoal::parallel
