// The exchange of layers whose gradients the workers sum among themselves, by a collective: each
// then applies the same update to its own copy of the params.
#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "shoal/base/log.h"
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

// Holds what lowrank keeps.
struct OwnSums final : OwnState {
  std::vector<float> states;
};

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
    part.is_empty = false;
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
  // Brings, for a clip, the sums of all layers before the first update. A loss may interrupt that
  // until all are there, and no gradient has been replaced by its sum until then.
  Result<double> hand_in(bool update) override {
    done_ = side_->next();
    if (!update) {
      held_.clear();
      for (Part& part : parts_) part.is_empty = true;
      sums_.send_nothing();
    }
    send_held();
    double squares = 0;
    for (std::size_t part = 0; clips_ && part < parts_.size(); ++part) TRY(sums_.complete(part));
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
    done_ = iteration;
    for (Part& part : parts_) {
      part.rule.start_at(iteration);
      part.version = iteration;
    }
  }

  std::shared_ptr<const OwnState> own_state() override {
    const auto own = std::make_shared<OwnSums>();
    own->states = sums_.states();
    return own;
  }
  void take_own_state(std::shared_ptr<const OwnState> own) override {
    if (own) sums_.give_states(static_cast<const OwnSums*>(own.get())->states);
  }
  std::string own_bytes() override {
    std::string bytes;
    put_numbers(sums_.states(), bytes);
    return bytes;
  }
  Status take_own_bytes(std::string_view bytes) override {
    std::vector<float> states(bytes.size() / sizeof(float));
    TRY(get_numbers(bytes, states));
    sums_.give_states(std::move(states));
    return {};
  }

  // ---- after an interruption: a unit is a bucket ----
  // A sum that is there makes its update, which waits for nobody.
  Result<Standing> interrupt() override {
    Standing standing{.done = done_};
    for (Part& part : parts_) {
      update(part, 0);
      standing.versions.push_back(side_->has_numbers(done_) ? part.version : kNothing);
    }
    return standing;
  }
  void give_unit(std::size_t of, std::string& out) override {
    for (Tensor* const tensor : numbers_of(of)) put_numbers(tensor->host(), out);
  }
  Status take_unit(std::size_t of, std::int64_t version, std::string_view bytes) override {
    for (Tensor* const tensor : numbers_of(of)) TRY(get_numbers(bytes, tensor->host_mut()));
    parts_[of].version = version;
    return {};
  }
  // Gives the gradients, which are still there, as the sum's vector has them.
  void give_part(std::size_t of, std::int64_t, std::string& out) override {
    std::vector<float> vector(sums_.bucket(of).count);
    if (!parts_[of].is_empty) {
      vector.back() = side_->options.weight;
      sums_.each(of, vector, [&](std::size_t p, std::span<float> numbers) {
        std::ranges::transform(net_.params()[p].blob->grad.host(), numbers.begin(),
                               [this](float number) { return side_->options.weight * number; });
      });
    }
    put_numbers(vector, out);
  }
  Result<double> sum_parts(std::size_t of, std::int64_t iteration,
                           std::span<const std::string_view> parts) override {
    Part& part = parts_[of];
    CHECK(part.clock == iteration && part.version == iteration)
        << "iteration " << iteration << " of a bucket of version " << part.version << ", clock "
        << part.clock;
    std::vector<float> sum(sums_.bucket(of).count);
    TRY(add_up(parts, sum));
    const std::optional<float> scale = merge(part, sum.back());
    if (!scale) return 0;
    sums_.each(of, sum, [&](std::size_t p, std::span<const float> numbers) {
      std::ranges::transform(numbers, net_.params()[p].blob->grad.host_out().begin(),
                             [&](float number) { return *scale * number; });
    });
    TRY(look({of}));
    return clips_ ? part.rule.gradients().squares : 0;
  }
  void update_unit(std::size_t of, double squares) override { update(parts_[of], squares); }
  void go_on_from(std::int64_t iterations, bool) override {
    done_ = iterations;
    for (std::size_t of = 0; of < parts_.size(); ++of) sums_.forget(of);
  }

 private:
  // The params of a bucket.
  struct Part {
    Part(const TableSetup& setup, const Layers& layers)
        : rule(rule_of(setup, layers, setup.net.context())) {}

    LocalRule rule;
    table::Clock clock = -1;   // of the gradient that was asked for last
    float rate = 0;            // of its update
    bool is_due = false;       // the gradient is there, and the update is still to do
    bool is_empty = false;     // this worker's iteration has no update
    table::Clock version = 0;  // iterations whose updates the params hold
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
    const std::optional<float> scale = merge(parts_[of], weight);
    if (scale) sums_.read(of, *scale);
    return scale.has_value();
  }
  // Makes an update of a sum with this count due. Returns the factor of the sum; nothing: it counts
  // nothing, and is forgotten.
  std::optional<float> merge(Part& part, float weight) {
    const table::Merge merge = merge_of(*scheme_, part.clock, part.rate, {&weight, 1});
    if (merge.take.empty()) {
      part.rule.skip();
      part.version = part.clock + 1;
      return std::nullopt;
    }
    part.rate *= merge.rate_scale;
    part.is_due = true;
    return merge.scale;
  }
  // Returns the params and histories of a bucket.
  std::vector<Tensor*> numbers_of(std::size_t of) {
    return with_histories(net_, sums_.params(of), parts_[of].rule.histories());
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
    if (!std::exchange(part.is_due, false)) return;
    part.rule.update(part.clock, part.rate, squares);
    part.version = part.clock + 1;
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
  table::Clock done_ = 0;   // iterations whose gradients were handed in
  std::vector<int> held_;   // layers whose gradients are complete and were not sent
};

}  // namespace

std::unique_ptr<Exchange> make_sum_exchange(const TableSetup& setup,
                                            std::shared_ptr<TableSide> side) {
  return std::make_unique<SumExchange>(setup, std::move(side));
}

}  // namespace shoal::parallel
