#include "shoal/table/shard_row.h"

#include <algorithm>
#include <numeric>

#include "shoal/base/log.h"

namespace shoal::table {

ShardRow::ShardRow(RowId id, const Plan& plan, const Codec& pushes, const Codec& answers,
                   std::span<float> in_place)
    : id(id),
      row(plan.rows[id]),
      plan_(plan),
      answers_(answers),
      push_states_(plan.workers, std::vector<float>(pushes.state_length(row.length))),
      answer_state_(answers.state_length(row.length)),
      version_(plan.start),
      workers_(plan.workers,
               {.counts = true, .pushed = plan.start, .merged = plan.start, .last = plan.start}),
      waits_(plan.workers, kNobody) {
  for (std::size_t worker = 0; worker < plan.clocks.size(); ++worker)
    workers_[worker].pushed = workers_[worker].merged = plan.clocks[worker];
  find_slowest();
  CHECK(in_place.empty() || in_place.size() == row.length)
      << "row " << id << " of " << row.length << " numbers is kept in place, in "
      << in_place.size();
  parts_.push_back(in_place.empty() ? std::make_shared<Buffer>(row.length)
                                    : std::make_shared<Buffer>(in_place));
  for (int history = 0; row.learns && history < optim::histories(plan.rule.rule); ++history)
    parts_.push_back(std::make_shared<Buffer>(row.length));
}

void ShardRow::set(Part part, std::span<const float> numbers) {
  has_[static_cast<std::size_t>(part)] = true;
  const std::shared_ptr<Buffer>& buffer = parts_[static_cast<std::size_t>(part)];
  CHECK(!buffer->is_lent()) << "row " << id << " was read before it had its first numbers";
  if (numbers.empty())
    std::ranges::fill(buffer->numbers(), 0.0f);
  else if (numbers.data() != buffer->numbers().data())
    std::ranges::copy(numbers, buffer->numbers().begin());
}

// ---- membership and pushes ----

void ShardRow::hold(int worker, const Push& push, Values values, Clock end) {
  CHECK(push.clock == pushed(worker))
      << "row " << id << ": push of clock " << push.clock << " in the place of " << pushed(worker);
  held_.push_back({.worker = worker,
                   .clock = push.clock,
                   .base = push.base,
                   .weight = push.weight,
                   .rate = push.rate,
                   .values = std::move(values),
                   .clear_after = push.clear_after});
  oldest_ = std::min(oldest_, push.clock);
  move(worker, push.clock + 1, end);
}

std::size_t ShardRow::forget(int worker, Clock end) {
  const std::size_t gone = std::erase_if(
      held_, [&](const Contribution& one) { return one.worker == worker && one.clock >= end; });
  const WorkerView& view = workers_[worker];
  move(worker, std::max(view.merged, std::min(view.pushed, end)), end);
  find_oldest();
  return gone;
}

void ShardRow::move(int worker, Clock pushed, Clock end) {
  WorkerView& view = workers_[worker];
  slow_ -= view.counts && view.pushed == slowest_;
  view.pushed = pushed;
  view.counts = pushed < end;
  slow_ += view.counts && pushed == slowest_;
  if (slow_ == 0 || (view.counts && pushed < slowest_)) find_slowest();
}

void ShardRow::find_slowest() {
  slowest_ = kUnbounded;
  for (const WorkerView& view : workers_)
    if (view.counts) slowest_ = std::min(slowest_, view.pushed);
  slow_ = static_cast<int>(std::ranges::count_if(
      workers_, [&](const WorkerView& view) { return view.counts && view.pushed == slowest_; }));
}

void ShardRow::find_oldest() {
  oldest_ = kUnbounded;
  for (const Contribution& one : held_) oldest_ = std::min(oldest_, one.clock);
}

// ---- merges ----

std::vector<Term> ShardRow::terms(const Merge& merge,
                                  std::vector<std::vector<float>>& compensated) const {
  std::vector<Term> terms;
  for (std::size_t t = 0; t < merge.take.size(); ++t) {
    const Contribution& one = held_[merge.take[t]];
    const float* values = one.values.data.data();
    const Values* then = merge.compensation == 0 || reads_.empty() ? nullptr : &reads_[one.worker];
    if (then != nullptr && !then->data.empty()) {
      compensated.emplace_back(row.length);
      compensate(merge.compensation, row.length, values, parts_[0]->numbers().data(),
                 then->data.data(), compensated.back().data());
      values = compensated.back().data();
    }
    terms.push_back({values, merge.weights[t], one.clear_after.data()});
  }
  return terms;
}

double ShardRow::squares(const Merge& merge) const {
  if (merge.take.empty()) return 0;
  std::vector<std::vector<float>> compensated;
  return double{merge.scale} * merge.scale * sum_of_squares(row.length, terms(merge, compensated));
}

void ShardRow::apply(const Merge& merge, double gradient_scale, Spares& spares,
                     const ParallelFor& parallel_for) {
  CHECK_EQ(merge.take.size(), merge.weights.size());
  if (merge.take.empty()) return throw_away(merge);
  std::vector<std::vector<float>> compensated;
  const std::vector<Term> terms = this->terms(merge, compensated);
  Buffers replaced;  // whose numbers are read below, so that none is a spare yet
  // Each part is changed in another buffer if this one is still in use.
  std::vector<Change> changes;
  for (std::size_t part = 0; part < (merge.apply == Apply::kRule ? parts_.size() : 1); ++part) {
    std::shared_ptr<Buffer>& buffer = parts_[part];
    const float* from = buffer->numbers().data();
    if (buffer->is_lent()) replaced.push_back(std::exchange(buffer, spares.take(row.length)));
    changes.push_back({from, buffer->numbers().data()});
  }
  const Contribution& first = held_[merge.take[0]];
  if (merge.apply == Apply::kRule)
    step_row(optim::make_step(plan_.rule,
                              {.iteration = updates(),
                               .rate = first.rate * merge.rate_scale,
                               .lr_mult = row.lr_mult,
                               .weight_decay = plan_.weight_decay,
                               .decay_mult = row.decay_mult,
                               .regularization = plan_.regularization,
                               .gradient_scale = static_cast<float>(gradient_scale * merge.scale)}),
             row.length, terms, changes[0], std::span(changes).subspan(1), parallel_for);
  else if (merge.apply == Apply::kAdd)
    add_to_row(merge.scale, row.length, terms, changes[0]);
  else
    pull(merge, changes[0]);
  for (auto& buffer : replaced) spares.give(std::move(buffer));
  ++version_;
  throw_away(merge);
}

// Returns the updates so far. Those before the plan's start are one a clock, or the sum of the
// workers' clocks if they have clocks of their own.
std::int64_t ShardRow::updates() const {
  const std::vector<Clock>& clocks = plan_.clocks;
  const Clock before =
      clocks.empty() ? plan_.start : std::accumulate(clocks.begin(), clocks.end(), Clock{0});
  return before + version_ - plan_.start;
}

void ShardRow::pull(const Merge& merge, Change weights) {
  CHECK_EQ(merge.take.size(), 1u);
  const Contribution& theirs = held_[merge.take[0]];
  const auto answer = std::make_shared<Buffer>(row.length);
  pull_row(merge.scale, row.length, theirs.values.data.data(), weights, answer->numbers().data());
  own_.resize(workers_.size());
  own_[theirs.worker] = {theirs.clock + 1, Buffer::lend(answer)};
}

void ShardRow::throw_away(const Merge& merge) {
  std::vector<std::size_t> gone = merge.take;
  gone.insert(gone.end(), merge.drop.begin(), merge.drop.end());
  std::ranges::sort(gone);
  for (const std::size_t i : merge.take) workers_[held_[i].worker].last = version_;
  for (const std::size_t i : merge.drop) std::ranges::fill(held_[i].clear_after, 0.0f);
  for (const std::size_t i : gone) {
    WorkerView& worker = workers_[held_[i].worker];
    CHECK(worker.merged == held_[i].clock) << "row " << id << ": the scheme takes a push of clock "
                                           << held_[i].clock << " before that of " << worker.merged;
    ++worker.merged;
  }
  std::erase_if(held_, [&](const Contribution& one) {
    return std::ranges::binary_search(gone, static_cast<std::size_t>(&one - held_.data()));
  });
  find_oldest();
}

// ---- reads ----

// Returns the encoded weights. The float32 payload is the row's buffer on loan: to keep it would
// make each update a copy.
Payload ShardRow::encoded() {
  if (answers_.id() == CodecId::kFloat32) return answers_.encode(numbers(Part::kWeights));
  if (encoded_version_ != version_) {
    encoded_ = answers_.encode(numbers(Part::kWeights), answer_state_);
    encoded_version_ = version_;
  }
  return encoded_;
}

RowMessage ShardRow::answer(const Scheme& scheme, int worker) {
  const Clock clock = std::exchange(waits_[worker], kNobody);
  const bool is_own = !own_.empty() && own_[worker].clock == clock;
  Payload payload = is_own ? answers_.encode(own_[worker].values) : encoded();
  if (scheme.keeps_reads) {
    reads_.resize(workers_.size());
    const Result<Values> read = answers_.decode(payload, row.length);
    CHECK(read.ok()) << read.error().message;
    reads_[worker] = read.value();
  }
  return {.row = id,
          .clock = clock,
          .version = version_,
          .part = Part::kWeights,
          .payload = std::move(payload),
          .generation = plan_.generation};
}

}  // namespace shoal::table
