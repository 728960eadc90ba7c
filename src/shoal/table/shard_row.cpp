#include "shoal/table/shard_row.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/table/error_feedback.h"

namespace shoal::table {

ShardRow::ShardRow(RowId id, const Plan& plan, const CodecSet& codecs, std::span<float> in_place)
    : id(id),
      row(plan.rows[id]),
      plan_(plan),
      answers_(codecs.answers(row)),
      merges_(codecs.merges(row)),
      answers_changes_(codecs.answers_are_changes(row)),
      answer_state_(row.learns ? answers_.state_length(row.length) : 0),
      copy_state_(row.learns && plan.copies == 2 ? merges_.state_length(row.length) : 0),
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
  if (part == Part::kLeftOut) {
    std::ranges::copy(numbers, left_out(answer_state_, row.length).begin());
    return;
  }
  const std::shared_ptr<Buffer>& buffer = parts_[static_cast<std::size_t>(part)];
  CHECK(!buffer->is_lent()) << "row " << id << " was read before it had its first numbers";
  if (numbers.empty())
    std::ranges::fill(buffer->numbers(), 0.0f);
  else if (numbers.data() != buffer->numbers().data())
    std::ranges::copy(numbers, buffer->numbers().begin());
}

Values ShardRow::what_is_left_out() const {
  const auto [copy, values] = new_values(row.length);
  std::copy_n(answer_state_.begin() + 1, row.length, copy.begin());
  return values;
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
                   .whole = push.payload.codec == CodecId::kFloat32,
                   .clear_after = push.clear_after});
  if (answers_changes_) {
    bases_.resize(workers_.size(), -1);
    bases_[worker] = push.base;
  }
  oldest_ = std::min(oldest_, push.clock);
  move(worker, push.clock + 1, end);
}

bool ShardRow::hurry(int worker) {
  bool is_news = false;
  for (Contribution& one : held_)
    if (one.worker == worker && !std::exchange(one.is_overdue, true)) is_news = true;
  return is_news;
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

ShardRow::Arithmetic ShardRow::arithmetic_of(const Merge& merge,
                                             std::span<const Term> terms) const {
  const Contribution& first = held_[merge.take[0]];
  return {merge.apply,
          merge.scale,
          first.rate * merge.rate_scale,
          terms,
          {static_cast<std::uint16_t>(first.worker), first.clock}};
}

void ShardRow::apply(const Merge& merge, double gradient_scale, Spares& spares,
                     const ParallelFor& parallel_for) {
  CHECK_EQ(merge.take.size(), merge.weights.size());
  if (merge.take.empty()) return throw_away(merge);
  std::vector<std::vector<float>> compensated;
  change(arithmetic_of(merge, terms(merge, compensated)), gradient_scale, spares, parallel_for);
  throw_away(merge);
}

void ShardRow::change(const Arithmetic& how, double gradient_scale, Spares& spares,
                      const ParallelFor& parallel_for) {
  std::vector<float> before;
  if (answers_changes_) {
    const std::span<const float> weights = parts_[0]->numbers();
    before.assign(weights.begin(), weights.end());
  }
  Buffers replaced;  // whose numbers are read below, so that none is a spare yet
  // Each part is changed in another buffer if this one is still in use.
  std::vector<Change> changes;
  for (std::size_t part = 0; part < (how.apply == Apply::kRule ? parts_.size() : 1); ++part) {
    std::shared_ptr<Buffer>& buffer = parts_[part];
    const float* from = buffer->numbers().data();
    if (buffer->is_lent()) replaced.push_back(std::exchange(buffer, spares.take(row.length)));
    changes.push_back({from, buffer->numbers().data()});
  }
  if (how.apply == Apply::kRule) {
    step_row(optim::make_step(plan_.rule,
                              {.iteration = updates(),
                               .rate = how.rate,
                               .lr_mult = row.lr_mult,
                               .weight_decay = plan_.weight_decay,
                               .decay_mult = row.decay_mult,
                               .regularization = plan_.regularization,
                               .gradient_scale = static_cast<float>(gradient_scale * how.scale)}),
             row.length, how.terms, changes[0], std::span(changes).subspan(1), parallel_for);
  } else if (how.apply == Apply::kAdd) {
    add_to_row(how.scale, row.length, how.terms, changes[0]);
  } else {
    CHECK_EQ(how.terms.size(), 1u);
    const auto answer = std::make_shared<Buffer>(row.length);
    pull_row(how.scale, row.length, how.terms[0].values, changes[0], answer->numbers().data());
    own_.resize(workers_.size());
    own_[how.first.worker] = {how.first.clock + 1, Buffer::lend(answer)};
  }
  for (auto& buffer : replaced) spares.give(std::move(buffer));
  ++version_;
  if (answers_changes_) encode_change(before);
}

void ShardRow::count(const Merge& merge) {
  if (!merge.take.empty()) {
    ++version_;
    if (answers_changes_ && encoded_.bytes.empty())
      encoded_ = answers_.encode({.data = parts_[0]->numbers()}, {.state = answer_state_});
    if (answers_changes_) encoded_version_ = version_;
  }
  throw_away(merge);
}

// Encodes what the weights changed by, and changes them by what the payload says instead, so that
// this server and all readers have the same weights. Their difference is in the codec's state.
void ShardRow::encode_change(std::span<const float> before) {
  const std::span<float> now = parts_[0]->numbers();
  std::ranges::transform(now, before, now.begin(), std::minus());
  encoded_ = answers_.encode({.data = now}, {.state = answer_state_, .seed = seed()});
  encoded_version_ = version_;
  const Result<Values> sent = answers_.decode(encoded_, row.length);
  CHECK(sent.ok()) << "what was encoded " << sent.error().message;
  std::ranges::transform(before, sent.value().data, now.begin(), std::plus());
}

// ---- copies ----

// Returns the update of a merge. Its numbers are those of a single push, if they may be shared, or
// the sum. One that holds a push of the whole is whole too: the pusher leaves, and then this row's
// codec.
Update ShardRow::update_of(const Merge& merge) {
  Update update{.row = id, .generation = plan_.generation};
  for (const auto* pushes : {&merge.take, &merge.drop})
    for (const std::size_t i : *pushes)
      update.merged.push_back(
          {static_cast<std::uint16_t>(held_[i].worker), held_[i].clock, pushes == &merge.take});
  if (merge.take.empty()) return update;
  std::vector<std::vector<float>> compensated;
  const std::vector<Term> terms = this->terms(merge, compensated);
  const Arithmetic how = arithmetic_of(merge, terms);
  update.apply = how.apply;
  update.scale = how.scale;
  update.rate = how.rate;
  const Values& first = held_[merge.take[0]].values;
  if (merges_.id() == CodecId::kFloat32 && terms.size() == 1 && terms[0].weight == 1 &&
      terms[0].values == first.data.data() && first.owner && terms[0].clear_after == nullptr) {
    update.payload = as_payload(first);
    return update;
  }
  const std::span<std::byte> sum = allocate(update.payload, row.length * sizeof(float));
  sum_terms(row.length, terms, reinterpret_cast<float*>(sum.data()));
  for (const Term& term : terms)
    if (term.clear_after) std::fill_n(term.clear_after, row.length, 0.0f);
  if (merges_.id() != CodecId::kFloat32) {
    const Payload whole = std::move(update.payload);
    update.payload = merges_.encode(
        {.data = whole.floats()}, {.state = copy_state_,
                                   .rate = update.apply == Apply::kRule ? update.rate : 0,
                                   .seed = seed(),
                                   .whole = std::ranges::any_of(merge.take, [this](std::size_t i) {
                                     return held_[i].whole;
                                   })});
  }
  return update;
}

Update ShardRow::apply_and_copy(const Merge& merge, double gradient_scale, Spares& spares,
                                const ParallelFor& parallel_for) {
  Update update = update_of(merge);
  if (!merge.take.empty()) {
    const Values values = numbers_of(update);
    const Term sum{values.data.data()};
    change(arithmetic_of(merge, {&sum, 1}), gradient_scale, spares, parallel_for);
  }
  throw_away(merge);
  return update;
}

// Returns the numbers of an update, whose payload was examined or made here.
Values ShardRow::numbers_of(const Update& update) const {
  const Result<Values> numbers = decode_with(merges_, update.payload, row.length);
  CHECK(numbers.ok()) << "an update of row " << id << ' ' << numbers.error().message;
  return numbers.value();
}

void ShardRow::follow(const Update& update, double gradient_scale, Spares& spares,
                      const ParallelFor& parallel_for) {
  if (!update.payload.bytes.empty()) {
    const Values values = numbers_of(update);
    const Term sum{values.data.data()};
    change({update.apply, update.scale, update.rate, {&sum, 1}, update.merged.at(0)},
           gradient_scale, spares, parallel_for);
  }
  for (const auto& [worker, clock, taken] : update.merged) {
    workers_[worker].merged = clock + 1;
    if (taken) workers_[worker].last = version_;
    move(worker, clock + 1, kUnbounded);
  }
  uncopied.begin_after(update.number);
}

// Returns the updates so far. Those before the plan's start are one a clock, or the sum of the
// workers' clocks if they have clocks of their own.
std::int64_t ShardRow::updates() const {
  const std::vector<Clock>& clocks = plan_.clocks;
  const Clock before =
      clocks.empty() ? plan_.start : std::accumulate(clocks.begin(), clocks.end(), Clock{0});
  return before + version_ - plan_.start;
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

// Returns the encoded weights for a worker. The float32 payload is the row's buffer on loan: to
// keep it would make each update a copy.
Payload ShardRow::encoded(int worker) {
  const bool has_one_before = !bases_.empty() && bases_[worker] == version_ - 1;
  if (answers_.id() == CodecId::kFloat32 ||
      (answers_changes_ && !(has_one_before && encoded_version_ == version_)))
    return as_payload(numbers(Part::kWeights));
  if (encoded_version_ != version_) {
    encoded_ = answers_.encode(numbers(Part::kWeights), {.seed = seed()});
    encoded_version_ = version_;
  }
  return encoded_;
}

RowMessage ShardRow::answer(const Scheme& scheme, int worker) {
  const Clock clock = std::exchange(waits_[worker], kNobody);
  const bool is_own = !own_.empty() && own_[worker].clock == clock;
  Payload payload =
      is_own ? answers_.encode(own_[worker].values, {.seed = seed()}) : encoded(worker);
  if (scheme.keeps_reads) {
    reads_.resize(workers_.size());
    const Result<Values> read = decode_with(answers_, payload, row.length);
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
