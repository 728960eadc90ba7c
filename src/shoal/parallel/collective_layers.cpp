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

using table::RowId;

Layers collective_of(const std::vector<Way>& ways) {
  Layers layers;
  for (const Way way : ways) layers.push_back(is_collective(way));
  return layers;
}

Layers layers_of(const Net& net, const Bucket& bucket) {
  Layers layers(net.layers().size());
  for (const int layer : bucket.layers) layers[static_cast<std::size_t>(layer)] = true;
  return layers;
}

}  // namespace

CollectiveLayers::Part::Part(const TableSetup& setup, Bucket of)
    : bucket(std::move(of)), rule(rule_of(setup, layers_of(setup.net, bucket))) {
  for (const int layer : bucket.layers) {
    const std::vector<std::size_t> own = learning_of(setup.net, layer);
    params.insert(params.end(), own.begin(), own.end());
  }
}

CollectiveLayers::CollectiveLayers(const TableSetup& setup, const std::vector<Way>& ways,
                                   std::size_t enough)
    : ReplicatedLayers(collective_of(ways)),
      net_(setup.net),
      table_(setup.table),
      scheme_(or_throw(setup.options.maker(setup.options.scheme))) {
  for (Bucket& bucket : buckets_of(net_, ways, enough))
    parts_.push_back(std::make_unique<Part>(setup, std::move(bucket)));
}

CollectiveLayers::Part& CollectiveLayers::part_of(int layer) const {
  const auto found = std::ranges::find_if(parts_, [layer](const auto& part) {
    return std::ranges::find(part->bucket.layers, layer) != part->bucket.layers.end();
  });
  CHECK(found != parts_.end()) << "layer " << layer << " is in no bucket";
  return **found;
}

std::vector<Tensor*> CollectiveLayers::histories() {
  std::vector<Tensor*> all;
  for (const auto& part : parts_) add_histories(part->rule.histories(), all);
  return all;
}

std::vector<table::Row> CollectiveLayers::rows(RowId first) {
  const std::vector<std::uint16_t> servers = servers_by_worker(table_.roster());
  std::vector<table::Row> all;
  for (const auto& part : parts_) {
    const std::vector<table::Row> own =
        rows_of(part->bucket.way, part->bucket.count,
                static_cast<std::uint32_t>(part->bucket.layers.back()), servers);
    part->first = first + static_cast<RowId>(all.size());
    part->end = part->first + static_cast<RowId>(own.size());
    part->sum =
        std::make_unique<Allreduce>(table_, part->bucket.way, static_cast<int>(servers.size()),
                                    part->bucket.count, part->first);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::span<float> CollectiveLayers::destination(RowId row) const {
  const auto part = std::ranges::find_if(
      parts_, [row](const auto& one) { return one->first <= row && row < one->end; });
  return (*part)->sum->destination(row);
}

Status CollectiveLayers::before_forward(int layer, RowWaits& waits) {
  Part& part = part_of(layer);
  if (Status status = gather(part, waits); !status.ok()) return status;
  update(part, 0);
  part.rule.before_forward(layer);
  if (part.expected == iteration()) return {};
  part.expected = iteration();
  part.complete = 0;
  return part.sum->expect(iteration(), waits);
}

bool CollectiveLayers::is_finite(int layer) const {
  std::vector<const Tensor*> gradients;
  for (const std::size_t p : learning_of(net_, layer))
    gradients.push_back(&net_.params()[p].blob->grad);
  return ops::all_finite(net_.context(), gradients);
}

void CollectiveLayers::send(int layer, float weight) {
  Part& part = part_of(layer);
  std::size_t at = 0;
  for (const std::size_t p : part.params) {
    const NetParam& param = net_.params()[p];
    const auto numbers =
        part.sum->numbers().subspan(at, static_cast<std::size_t>(param.blob->data.count()));
    at += numbers.size();
    if (param.layer == layer)
      std::ranges::transform(param.blob->grad.host(), numbers.begin(),
                             [weight](float number) { return weight * number; });
  }
  if (++part.complete < part.bucket.layers.size()) return;
  part.sum->numbers().back() = weight;
  start(part);
}

void CollectiveLayers::send_nothing() {
  for (const auto& part : parts_) {
    std::ranges::fill(part->sum->numbers(), 0.0f);
    start(*part);
  }
}

void CollectiveLayers::start(Part& part) {
  part.is_under_way = true;
  part.rate = rate();
  part.sum->start();
}

void CollectiveLayers::progress() {
  for (const auto& part : parts_)
    if (part->is_under_way) part->sum->progress();
}

// While this worker waits it carries on all sums, since others wait for its part of them.
Status CollectiveLayers::gather(Part& part, RowWaits& waits) {
  if (!part.is_under_way) return {};
  progress();
  while (!part.sum->is_done()) {
    const RowId row = part.sum->awaited();
    if (Status status = waits.wait({&row, 1}); !status.ok()) return status;
    progress();
  }
  part.is_under_way = false;
  return take(part);
}

Status CollectiveLayers::take(Part& part) {
  const std::span<const float> sum = part.sum->numbers();
  const float weight = sum.back();
  const table::Merge merge = merge_of(*scheme_, part.expected, part.rate, {&weight, 1});
  if (merge.take.empty()) {
    part.rule.skip();
    return {};
  }
  std::size_t at = 0;
  for (const std::size_t p : part.params) {
    Tensor& gradient = net_.params()[p].blob->grad;
    const auto numbers = sum.subspan(at, static_cast<std::size_t>(gradient.count()));
    at += numbers.size();
    std::ranges::transform(numbers, gradient.host_out().begin(),
                           [&merge](float number) { return merge.scale * number; });
  }
  for (const int layer : part.bucket.layers) part.rule.look(layer);
  part.rate *= merge.rate_scale;
  part.is_due = true;
  if (const Gradients all = part.rule.gradients(); !all.finite || !std::isfinite(all.squares))
    return Error{Code::kNonFinite,
                 str("the sum of all workers' gradients of clock ", part.expected, " for layer '",
                     net_.layers()[static_cast<std::size_t>(part.bucket.layers.back())]->name(),
                     "' or one that travels with it holds a NaN or an infinity: its gradients have "
                     "grown beyond all bounds")};
  return {};
}

void CollectiveLayers::update(Part& part, double squares) {
  if (std::exchange(part.is_due, false)) part.rule.update(part.expected, part.rate, squares);
}

Status CollectiveLayers::apply_all(RowWaits& waits) {
  const Result<double> squares = gather_all(waits);
  if (!squares.ok()) return squares.error();
  update_all(0);
  return {};
}

Result<double> CollectiveLayers::gather_all(RowWaits& waits) {
  double squares = 0;
  for (const auto& part : parts_) {
    if (Status status = gather(*part, waits); !status.ok()) return status.error();
    squares += part->rule.gradients().squares;
  }
  return squares;
}

void CollectiveLayers::update_all(double squares) {
  for (const auto& part : parts_) update(*part, squares);
}

}  // namespace shoal::parallel
