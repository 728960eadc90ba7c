#include "shoal/parallel/collective_layers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/roster.h"
#include "shoal/proto/config_error.h"

namespace shoal::parallel {
namespace {

Layers layers_of(const Net& net, const Bucket& bucket) {
  Layers layers(net.layers().size());
  for (const int layer : bucket.layers) layers[static_cast<std::size_t>(layer)] = true;
  return layers;
}

}  // namespace

CollectiveLayers::CollectiveLayers(const TableSetup& setup, std::size_t enough)
    : ReplicatedLayers(collective_by(setup.ways)),
      net_(setup.net),
      scheme_(or_throw(setup.options.maker(setup.options.scheme))),
      sums_(setup, enough) {
  for (std::size_t part = 0; part < sums_.size(); ++part)
    parts_.emplace_back(setup, layers_of(net_, sums_.bucket(part)));
}

std::vector<Tensor*> CollectiveLayers::histories() {
  std::vector<Tensor*> all;
  for (Part& part : parts_) add_histories(part.rule.histories(), all);
  return all;
}

Status CollectiveLayers::before_forward(int layer, RowWaits& waits) {
  const std::size_t of = sums_.part_of(layer);
  Part& part = parts_[of];
  if (Status status = gather(of, waits); !status.ok()) return status;
  update(part, 0);
  part.rule.before_forward(layer);
  if (std::exchange(part.clock, iteration()) == iteration()) return {};
  part.rate = rate();
  return sums_.expect(of, iteration(), waits);
}

bool CollectiveLayers::is_finite(int layer) const {
  std::vector<const Tensor*> gradients;
  for (const std::size_t p : learning_of(net_, layer))
    gradients.push_back(&net_.params()[p].blob->grad);
  return ops::all_finite(net_.context(), gradients);
}

void CollectiveLayers::send(int layer, float weight) {
  sums_.send(layer, weight, [&](std::size_t p, std::span<float> numbers) {
    std::ranges::transform(net_.params()[p].blob->grad.host(), numbers.begin(),
                           [weight](float number) { return weight * number; });
  });
}

Status CollectiveLayers::gather(std::size_t part, RowWaits& waits) {
  const Result<bool> finished = sums_.finish(part, waits);
  if (!finished.ok()) return finished.error();
  return finished.value() ? take(part) : Status();
}

Status CollectiveLayers::take(std::size_t of) {
  Part& part = parts_[of];
  const float weight = sums_.read(of, [](std::size_t, std::span<const float>) {});
  const table::Merge merge = merge_of(*scheme_, part.clock, part.rate, {&weight, 1});
  if (merge.take.empty()) {
    part.rule.skip();
    return {};
  }
  sums_.read(of, [&](std::size_t p, std::span<const float> sum) {
    std::ranges::transform(sum, net_.params()[p].blob->grad.host_out().begin(),
                           [&merge](float number) { return merge.scale * number; });
  });
  const Bucket& bucket = sums_.bucket(of);
  for (const int layer : bucket.layers) part.rule.look(layer);
  part.rate *= merge.rate_scale;
  part.is_due = true;
  if (const Gradients all = part.rule.gradients(); !all.finite || !std::isfinite(all.squares))
    return Error{Code::kNonFinite,
                 str("the sum of all workers' gradients of clock ", part.clock, " for layer '",
                     net_.layers()[static_cast<std::size_t>(bucket.layers.back())]->name(),
                     "' or one that travels with it holds a NaN or an infinity: its gradients have "
                     "grown beyond all bounds")};
  return {};
}

void CollectiveLayers::update(Part& part, double squares) {
  if (std::exchange(part.is_due, false)) part.rule.update(part.clock, part.rate, squares);
}

Status CollectiveLayers::apply_all(RowWaits& waits) {
  const Result<double> squares = gather_all(waits);
  if (!squares.ok()) return squares.error();
  update_all(0);
  return {};
}

Result<double> CollectiveLayers::gather_all(RowWaits& waits) {
  double squares = 0;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (Status status = gather(part, waits); !status.ok()) return status.error();
    squares += parts_[part].rule.gradients().squares;
  }
  return squares;
}

void CollectiveLayers::update_all(double squares) {
  for (Part& part : parts_) update(part, squares);
}

}  // namespace shoal::parallel
