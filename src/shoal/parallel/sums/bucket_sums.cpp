#include "shoal/parallel/sums/bucket_sums.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/parallel/sums/allreduce.h"
#include "shoal/parallel/sums/low_rank_sum.h"
#include "shoal/parallel/sums/mpi_sum.h"
#include "shoal/parallel/sums/nccl_sum.h"
#include "shoal/solver/net_params.h"

namespace shoal::parallel {

using table::RowId;

Status add_up(std::span<const std::string_view> parts, std::span<float> sum) {
  std::vector<float> one(sum.size());
  for (std::string_view bytes : parts) {
    if (bytes.empty()) continue;
    TRY(get_numbers(bytes, one));
    std::ranges::transform(sum, one, sum.begin(), std::plus());
  }
  return {};
}

BucketSums::BucketSums(const TableSetup& setup, TableSide& side, Of of)
    : net_(side.net),
      table_(side.table),
      waits_(side.waits),
      side_(side),
      part_of_(setup.ways.size()) {
  if (std::ranges::count(setup.ways, Way::kMpi) > 0) begin_mpi(table_, setup.options.name);
  int by_nccl = 0;
  for (Bucket& bucket : buckets_of(net_, setup.ways, bucket_bytes(setup.options.rates))) {
    by_nccl += bucket.way == Way::kNccl;
    const bool in_place = of == Of::kGradients && bucket.way == Way::kNccl;
    Part& part = parts_.emplace_back(Part{.bucket = std::move(bucket), .in_place = in_place});
    part.codec = setup.codecs[static_cast<std::size_t>(part.bucket.layers.front())].sum;
    for (const int layer : part.bucket.layers) {
      if (setup.codecs[static_cast<std::size_t>(layer)].sum != part.codec) part.codec = {};
      part_of_[static_cast<std::size_t>(layer)] = parts_.size() - 1;
      std::ranges::copy(learning_of(net_, layer), std::back_inserter(part.params));
    }
  }
  if (by_nccl > 0) nccl_ = begin_nccl(table_, net_.context(), by_nccl, setup.options.name);
  if (std::ranges::any_of(parts_, [](const Part& part) { return is_of_library(part.bucket.way); }))
    side.bear_no_loss("its workers sum gradients by MPI or NCCL, which go on with all or none");
  if (!parts_.empty()) side.add(*this);
}

std::optional<std::size_t> BucketSums::part_of(int layer) const {
  return part_of_[static_cast<std::size_t>(layer)];
}

std::vector<table::Row> BucketSums::rows(RowId first) {
  const std::vector<std::uint16_t> servers = servers_by_worker(table_.roster());
  std::vector<table::Row> all;
  int nccl_sums = 0;
  for (Part& part : parts_) {
    const Bucket& bucket = part.bucket;
    part.first = part.end = first + static_cast<RowId>(all.size());
    if (bucket.way == Way::kMpi) {
      part.sum = make_mpi_sum(table_, bucket.count);
      continue;
    }
    if (bucket.way == Way::kNccl) {
      part.sum = part.in_place
                     ? make_nccl_sum(table_, net_.context(), nccl_, nccl_sums++, gradients(part), 1)
                     : make_nccl_sum(table_, net_.context(), nccl_, nccl_sums++, {}, bucket.count);
      continue;
    }
    const bool is_low_rank = part.codec.id == table::CodecId::kLowrank;
    const table::CodecSpec codec = is_low_rank ? table::CodecSpec() : part.codec;
    const auto make = [&](std::size_t count) -> LowRankSum::Inner {
      const std::vector<table::Row> own =
          rows_of(bucket.way, count, static_cast<std::uint32_t>(bucket.layers.back()), servers,
                  side_.codec_number(codec));
      auto sum = std::make_unique<Allreduce>(table_, bucket.way, static_cast<int>(servers.size()),
                                             count, part.end, codec);
      part.end += static_cast<RowId>(own.size());
      all.insert(all.end(), own.begin(), own.end());
      return {std::move(sum), part.end};
    };
    if (const auto matrices = matrices_of(part); !matrices.empty())
      part.sum = std::make_unique<LowRankSum>(matrices, bucket.count, part.codec.warm_up, make);
    else
      part.sum = make(bucket.count).sum;
  }
  take_states();
  return all;
}

// Returns the matrices of the bucket's vector that travel as factors; none but with lowrank.
std::vector<MatrixPlace> BucketSums::matrices_of(const Part& part) const {
  std::vector<MatrixPlace> matrices;
  std::size_t at = 0;
  for (const std::size_t p : part.params) {
    const Blob& blob = *net_.params()[p].blob;
    if (part.codec.id == table::CodecId::kLowrank)
      if (const auto shape = low_rank_shape(blob, part.codec)) matrices.push_back({at, *shape});
    at += static_cast<std::size_t>(blob.data.count());
  }
  return matrices;
}

std::vector<float> BucketSums::states() const {
  std::vector<float> all;
  for (const Part& part : parts_)
    if (const auto* sum = dynamic_cast<const LowRankSum*>(part.sum.get())) {
      const std::vector<float> state = sum->state();
      all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(state.size())));
      all.insert(all.end(), state.begin(), state.end());
    }
  return all;
}

void BucketSums::take_states() {
  std::span<const float> left = given_states_;
  for (const Part& part : parts_)
    if (auto* sum = dynamic_cast<LowRankSum*>(part.sum.get()); sum && !left.empty()) {
      const std::size_t count =
          std::min<std::size_t>(std::bit_cast<std::uint32_t>(left[0]), left.size() - 1);
      sum->set_state(left.subspan(1, count));
      left = left.subspan(1 + count);
    }
}

table::Destination BucketSums::destination(RowId row) {
  const auto part = std::ranges::find_if(
      parts_, [row](const Part& one) { return one.first <= row && row < one.end; });
  return part->sum->destination(row);
}

Status BucketSums::expect(std::size_t of, table::Clock clock) {
  Part& part = parts_[of];
  if (std::exchange(part.clock, clock) == clock) return {};
  part.complete = 0;
  return part.sum->expect(clock, waits_);
}

void BucketSums::each(std::size_t of, std::span<float> vector, const Visit& visit) const {
  std::size_t at = 0;
  for (const std::size_t p : parts_[of].params) {
    const auto count = static_cast<std::size_t>(net_.params()[p].blob->data.count());
    visit(p, vector.subspan(at, count));
    at += count;
  }
}

std::vector<Tensor*> BucketSums::gradients(const Part& part) const {
  std::vector<Tensor*> all;
  for (const std::size_t p : part.params) all.push_back(&net_.params()[p].blob->grad);
  return all;
}

void BucketSums::send(int layer, float weight) {
  Part& part = parts_[*part_of(layer)];
  if (!part.in_place)
    return send(layer, weight, [&](std::size_t p, std::span<float> numbers) {
      std::ranges::transform(net_.params()[p].blob->grad.host(), numbers.begin(),
                             [weight](float number) { return weight * number; });
    });
  if (weight != 1) ops::scale_all(net_.context(), weight, gradients_of(net_, layer));
  complete(part, weight);
}

void BucketSums::send(int layer, float count, const Visit& write) {
  Part& part = parts_[*part_of(layer)];
  each(part, [&](std::size_t p, std::span<float> numbers) {
    if (net_.params()[p].layer == layer) write(p, numbers);
  });
  complete(part, count);
}

void BucketSums::complete(Part& part, float count) {
  if (++part.complete == part.bucket.layers.size()) start(part, count);
}

void BucketSums::send_nothing() {
  for (Part& part : parts_) {
    if (part.in_place) ops::fill_all(net_.context(), 0, gradients(part));
    std::ranges::fill(part.sum->numbers(), 0.0f);
    start(part, 0);
  }
}

void BucketSums::read(std::size_t of, float scale) {
  Part& part = parts_[of];
  if (!part.in_place)
    return each(part, [&](std::size_t p, std::span<const float> sum) {
      std::ranges::transform(sum, net_.params()[p].blob->grad.host_out().begin(),
                             [scale](float number) { return scale * number; });
    });
  if (scale != 1) ops::scale_all(net_.context(), scale, gradients(part));
}

void BucketSums::start(Part& part, float count) {
  part.sum->numbers().back() = count;
  part.is_under_way = true;
  part.sum->start();
}

void BucketSums::progress() {
  for (const Part& part : parts_)
    if (part.is_under_way) part.sum->progress();
}

// Carries on all sums while this worker waits, since others wait for its part of them; and once
// more before it reads, so that a device brings the counts of all that are there at once.
Result<std::optional<float>> BucketSums::finish(std::size_t of) {
  Part& part = parts_[of];
  TRY(complete(of));
  if (!std::exchange(part.is_under_way, false)) return std::optional<float>();
  progress();
  return std::optional(part.sum->numbers().back());
}

Status BucketSums::complete(std::size_t of) {
  const Part& part = parts_[of];
  if (!part.is_under_way) return {};
  part.sum->progress();
  while (!part.sum->is_done()) {
    TRY(part.sum->wait(waits_));
    part.sum->progress();
    progress();
  }
  return {};
}

}  // namespace shoal::parallel
