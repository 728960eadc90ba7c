#include "shoal/table/shard_rows.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

constexpr const char* kContributions[] = {"a gradient", "a delta", "weights"};

std::string push_named(int worker, const Push& push) {
  return str("worker ", worker, "'s push of row ", push.row, " at clock ", push.clock);
}

}  // namespace

// Makes the rows. A row with one reader, which may change once it was read, is kept in the memory
// of its reader: an update there is a read too.
ShardRows::ShardRows(const Plan& plan, std::unique_ptr<Scheme> scheme, const InPlace& in_place,
                     ShardKeeps& keeps)
    : keeps_(keeps),
      plan_(plan),
      codecs_(plan_, keeps.codecs),
      scheme_(std::move(scheme)),
      copies_(plan_, keeps.server),
      own_(plan.rows, [this](const Row& row) { return copies_.has(row); }),
      ends_(plan.workers, kUnbounded),
      gone_(plan.workers, false) {
  keeps.counts.resize(std::max<std::size_t>(keeps.counts.size(), plan.workers));
  const bool updates_in_place = in_place && plan.workers == 1 && plan.copies == 1 &&
                                scheme_->contribution() == ContributionKind::kGradient &&
                                !scheme_->keeps_reads;
  for (std::size_t number = 0; number < own_.size(); ++number) {
    const RowId id = own_[number];
    const Row& row = plan.rows[id];
    if (row.writer != kEveryWorker) {
      rows_.push_back(std::make_unique<WrittenRow>(id, plan_));
      continue;
    }
    const bool is_shared = updates_in_place && row.pull_codec == 0;
    std::span<float> kept;
    if (is_shared) kept = in_place(id);
    if (keeps.counts_only) kept = {keeps.counts_only.get(), row.length};
    auto made = std::make_unique<ShardRow>(id, plan_, codecs_, kept);
    ++shared_;
    if (row.learns && copies_.leads(*made)) learning_.push_back(made.get());
    rows_.push_back(std::move(made));
  }
  without_weights_ = shared_;
  if (plan_.clip >= 0) clip_parts_.push_back(clip_part(keeps.server));
}

std::string ShardRows::why_not_over() const {
  if (has_messages(plan_)) return "";  // a loss may have ended it in the middle of an iteration
  for (const ShardRow* row : learning_)
    if (const RowView view = row->view(); !view.held.empty())
      return str("while worker ", view.held[0].worker, "'s push of row ", row->id, " at clock ",
                 view.held[0].clock, " is not merged");
  return "";
}

void ShardRows::begin(Outbox& out) {
  if (!is_ready()) return;
  out.push_back({0, Ready{static_cast<std::uint32_t>(shared_), plan_.generation}});
  send_norm_if_complete(out);
}

Result<ShardRow*> ShardRows::row_of(RowId row, const auto&... what) const {
  if (row >= plan_.rows.size())
    return broken(what..., " is of row ", row, ", but the plan has ", plan_.rows.size(),
                  " rows, numbered from 0");
  if (ShardRow* const found = at<ShardRow>(row)) return found;
  return broken(what..., " is of row ", row, ", which server ", plan_.rows[row].server,
                " holds; this is server ", keeps_.server);
}

Status ShardRows::init(const Init& init, Outbox& out) {
  const Result<ShardRow*> found = row_of(init.row, "worker 0's Init");
  TRY(found);
  ShardRow& row = *found.value();
  const auto wrong = broken_with("worker 0's Init of row ", init.row);
  const int part = static_cast<int>(init.part), kept = optim::histories(plan_.rule.rule);
  if (init.part == Part::kLeftOut && !row.answers_changes())
    return wrong(" is of what answers left out, and they leave out nothing");
  if (part > kept && init.part != Part::kLeftOut)
    return wrong(" is of history ", part, "; ", optim::name_of(plan_.rule.rule), " keeps ", kept);
  Result<Values> numbers = Values();
  const bool is_zeros = init.payload.bytes.empty() && init.part != Part::kWeights;
  if (!is_zeros) numbers = decode_with(float32_codec(), init.payload, row.row.length);
  if (!numbers.ok()) return wrong(" ", numbers.error().message);
  if (init.part != Part::kWeights && !row.row.learns) return {};  // it is never asked for
  if (!row.has(init.part)) {
    if (row.was_changed()) return wrong(", history ", part, ", comes after the first update");
    row.set(init.part, numbers.value().data);
    if (init.part != Part::kWeights) return {};
    --without_weights_;
  }
  begin(out);
  return {};
}

// ---- pushes ----

Status ShardRows::check_push(int worker, const ShardRow& row, const Push& push) const {
  const auto wrong = [&](const auto&... words) {
    return broken(push_named(worker, push), words...);
  };
  if (!is_ready()) return wrong(" comes before worker 0 sent all weights");
  if (!row.row.learns) return wrong(" is of a row that does not learn");
  if (push.clock < plan_.start) return wrong(" is from before the start, clock ", plan_.start);
  if (push.base < plan_.start || push.base > row.version())
    return wrong(" is based on version ", push.base, "; the row has had ", plan_.start, " to ",
                 row.version());
  if (push.kind != scheme_->contribution())
    return wrong(" holds ", kContributions[static_cast<std::size_t>(push.kind)], "; scheme '",
                 scheme_->name(), "' takes ",
                 kContributions[static_cast<std::size_t>(scheme_->contribution())]);
  if (!(push.weight >= 0 && std::isfinite(push.weight)))
    return wrong(" has weight ", push.weight, "; it must be finite, 0 or more");
  if (!std::isfinite(push.rate)) return wrong(" has rate ", push.rate, "; it must be finite");
  return {};
}

// Returns the numbers of a push. One of weight 0 may have none.
Result<Values> ShardRows::numbers_of(int worker, const Push& push) const {
  if (push.weight == 0 && push.payload.bytes.empty()) return Values();
  const Row& row = plan_.rows[push.row];
  Result<Values> numbers = decode_with(codecs_.pushes(row), push.payload, row.length);
  if (numbers.ok()) return numbers;
  return broken(push_named(worker, push), " ", numbers.error().message);
}

Status ShardRows::check_finite(int worker, const Push& push, const Values& numbers) {
  if (keeps_.counts_only || push.finite || all_finite(numbers.data)) return {};
  ++keeps_.counters.refused;
  return Error{
      Code::kNonFinite,
      str(push_named(worker, push),
          " holds a NaN or an infinity: training diverges; lower base_lr or set clip_gradients")};
}

Status ShardRows::push_written(int worker, const Push& push, Outbox& out) {
  const int writer = plan_.rows[push.row].writer;
  if (worker != writer)
    return broken(push_named(worker, push), " is of a row that worker ", writer, " alone writes");
  if (push.payload.bytes.empty())
    return broken(push_named(worker, push), " holds no numbers, and its readers wait for ",
                  plan_.rows[push.row].length);
  const Result<Values> numbers = numbers_of(worker, push);
  TRY(numbers);
  TRY(check_finite(worker, push, numbers.value()));
  written(push.row)->push(push, out);
  return {};
}

// Takes a push in its turn, once. A repeated push asks whether it arrived; the answer is the row,
// at once or when it may be read.
Status ShardRows::push(int worker, const Push& push, Outbox& out) {
  if (written(push.row)) return push_written(worker, push, out);
  const Result<ShardRow*> found =
      row_of(push.row, "worker ", worker, "'s push at clock ", push.clock);
  TRY(found);
  ShardRow& row = *found.value();
  if (!copies_.leads(row)) return copies_.hold_back(worker, push), Status();
  TRY(check_push(worker, row, push));
  const Clock next = row.pushed(worker);
  Result<Values> numbers = numbers_of(worker, push);
  TRY(numbers);
  if (push.clock > next) {
    ++keeps_.counters.early;
    out.push_back({worker, NeedPush{push.row, next, plan_.generation}});
    return {};
  }
  if (push.clock < next) {
    ++keeps_.counters.repeated;
    // Otherwise the worker has pushed again since, so it has the answer.
    if (push.clock + 1 == next) ask_again(row, worker, next, out);
    return {};
  }
  TRY(check_finite(worker, push, numbers.value()));
  come_back(worker, push.clock);
  row.hold(worker, push, std::move(numbers).value(), ends_[worker]);
  row.wait(worker, next + 1);
  // In lockstep no worker may read more before all have pushed.
  if (merge(row, out) || !scheme_->lockstep) answer_readers(row, out);
  keeps_.counters.parked += row.is_waiting(worker);
  send_norm_if_complete(out);
  return {};
}

// Handles a read, or a push, that came again: if the row waits for the norm of all rows, this
// server's Norm or its answer may be lost.
void ShardRows::ask_again(ShardRow& row, int worker, Clock clock, Outbox& out) {
  const bool is_new = row.wait(worker, clock);
  answer_reader(row, worker, out);
  keeps_.counters.parked += is_new && row.is_waiting(worker);
  for (const ClipPart& part : clip_parts_)
    if (part.is_sent() && row.is_waiting(worker)) part.send(out);
}

Status ShardRows::get(int worker, const Get& get, Outbox& out) {
  const auto wrong =
      broken_with("worker ", worker, "'s read at clock ", get.clock, " of row ", get.row);
  if (WrittenRow* row = written(get.row)) {
    if (row->get(worker, get.clock, out)) return {};
    return wrong(", which worker ", plan_.rows[get.row].reader, " alone reads");
  }
  const Result<ShardRow*> found =
      row_of(get.row, "worker ", worker, "'s read at clock ", get.clock);
  TRY(found);
  ShardRow& row = *found.value();
  if (!copies_.leads(row)) return copies_.hold_back(worker, get), Status();
  if (!is_ready()) return wrong(" comes before worker 0 sent all weights");
  if (get.part != Part::kWeights) {
    const int part = static_cast<int>(get.part),
              kept = row.row.learns ? optim::histories(plan_.rule.rule) : 0;
    if (get.part == Part::kLeftOut && !row.answers_changes())
      return wrong(" wants what answers left out, and they leave out nothing");
    if (part > kept && get.part != Part::kLeftOut)
      return wrong(" wants history ", part, "; the row keeps ", kept);
    out.push_back({worker, RowMessage{get.row, get.clock, row.version(), get.part,
                                      as_payload(row.numbers(get.part)), plan_.generation}});
    return {};
  }
  if (get.clock < plan_.start) return wrong(" is from before the start, clock ", plan_.start);
  if (row.row.learns && get.clock > row.pushed(worker))
    out.push_back({worker, NeedPush{get.row, row.pushed(worker), plan_.generation}});
  else
    ask_again(row, worker, get.clock, out);
  if (row.row.learns && scheme_->hurries && row.hurry(worker)) advance(row, out);
  return {};
}

// ---- merges ----

// Merges what the row allows. Returns false if there was no merge.
bool ShardRows::merge(ShardRow& row, Outbox& out) {
  bool merged = false;
  while (!row.pending) {
    std::optional<Merge> merge = scheme_->next_merge(row.view());
    if (!merge) break;
    if (plan_.clip < 0) {
      apply(row, *merge, out);
    } else {
      ClipPart& part = clip_parts_.at(row.row.server == keeps_.server ? 0 : 1);
      if (part.is_ahead(row)) break;
      const double squares = keeps_.counts_only ? 0 : row.squares(*merge);
      part.hold(row, *std::move(merge), squares);
    }
    merged = true;
  }
  return merged;
}

void ShardRows::apply(ShardRow& row, const Merge& merge, Outbox& out) {
  keeps_.counters.merges += !merge.take.empty();
  keeps_.counters.contributions += merge.take.size();
  keeps_.counters.dropped += merge.drop.size();
  const std::span<const Contribution> held = row.view().held;
  for (const std::size_t i : merge.take) {
    std::vector<std::uint64_t>& staleness = keeps_.counts[held[i].worker].staleness;
    const std::size_t versions = staleness_class(row.version() - held[i].base);
    if (staleness.size() <= versions) staleness.resize(versions + 1);
    ++staleness[versions];
  }
  for (const std::size_t i : merge.drop) ++keeps_.counts[held[i].worker].dropped;
  if (keeps_.counts_only)
    row.count(merge);
  else if (copies_.is_copied(row))
    out.push_back(
        {copies_.copy(), row.uncopied.keep(row.apply_and_copy(
                             merge, gradient_scale(), keeps_.spares, keeps_.parallel_for))});
  else
    row.apply(merge, gradient_scale(), keeps_.spares, keeps_.parallel_for);
}

// Answers a worker that waits and may read.
void ShardRows::answer_reader(ShardRow& row, int worker, Outbox& out) {
  if (!row.is_waiting(worker) || !row.can_read(*scheme_, worker)) return;
  RowMessage answer = row.answer(*scheme_, worker);
  if (row.row.learns)
    ++keeps_.counters.staleness[staleness_class(answer.clock - row.view().slowest)];
  row.uncopied.answer(worker, std::move(answer), out);
}

// ---- a clip of the norm ----

ClipPart ShardRows::clip_part(int server) const {
  std::vector<ShardRow*> rows;
  std::ranges::copy_if(learning_, std::back_inserter(rows),
                       [&](const ShardRow* row) { return row->row.server == server; });
  return {static_cast<std::uint16_t>(server), plan_.generation,
          clip_parts_.empty() ? plan_.start : clip_parts_[0].clock(), std::move(rows)};
}

void ShardRows::send_norm_if_complete(Outbox& out) {
  if (without_weights_ > 0) return;
  for (ClipPart& part : clip_parts_) part.send_if_complete(std::ranges::max(ends_), out);
}

Status ShardRows::total(const NormTotal& total, Outbox& out) {
  const ClipPart& own = clip_parts_.at(0);
  const bool is_early = total.clock > own.clock() || (total.clock == own.clock() && !own.is_sent());
  // Without a lost worker this server's part, which it had sent, may have become nothing.
  if (is_early && std::ranges::none_of(gone_, std::identity()))
    return broken("the coordinator sends the norm of clock ", total.clock,
                  " before this server sent its own part; it is at clock ", own.clock());
  if (!(total.squares >= 0 && std::isfinite(total.squares)))
    return broken("the coordinator sends a norm whose square is ", total.squares);
  const double norm = std::sqrt(total.squares), clip = norm > plan_.clip ? plan_.clip / norm : 1;
  for (ClipPart& part : clip_parts_) {
    if (total.clock != part.clock() || !part.is_sent()) continue;  // it is said twice, or again
    for (ShardRow* row : part.pass()) {
      Merge merge = std::exchange(row->pending, {})->merge;
      merge.scale = static_cast<float>(clip / plan_.iter_size * merge.scale);
      apply(*row, merge, out);
    }
    for (ShardRow* row : part.rows()) advance(*row, out);
  }
  send_norm_if_complete(out);
  return {};
}

// ---- membership ----

Status ShardRows::retire(int worker, const Retire& retire, Outbox& out) {
  const auto wrong = broken_with("worker ", worker, " retires at clock ", retire.clock);
  Clock& end = ends_[worker];
  if (end == retire.clock) return {};
  if (end != kUnbounded) return wrong(", but it retired at clock ", end, " already");
  if (retire.clock < plan_.start) return wrong(", before the start, clock ", plan_.start);
  for (const ShardRow* row : learning_)
    if (row->pushed(worker) > retire.clock)
      return wrong(", but it pushed row ", row->id, " at clock ", row->pushed(worker) - 1);
  end = retire.clock;
  for (ShardRow* row : learning_) {
    row->end_at(worker, end);
    advance(*row, out);
  }
  send_norm_if_complete(out);
  return {};
}

// Removes a worker. A decision made before the norm of all is known is made again without the
// contributions that the worker leaves unfinished.
void ShardRows::leave(int worker, Outbox& out) {
  gone_[worker] = true;
  Clock& end = ends_[worker];
  end = std::min(end, clock_of(worker));
  for (const OwnRow& row : rows_) std::visit([&](const auto& one) { one->leave(worker); }, row);
  forget_pushes(worker, end);
  for (ShardRow* row : learning_) advance(*row, out);
  for (ClipPart& part : clip_parts_) part.take_back_if_incomplete();
  send_norm_if_complete(out);
}

Status ShardRows::hear_server(const Message& message, Outbox& out) {
  const auto* update = std::get_if<Update>(&message);
  const auto* copied = std::get_if<Copied>(&message);
  if (!update && !copied) return broken("a server sends a ", name_of(message), " to another");
  const Result<ShardRow*> row = row_of(update ? update->row : copied->row, "a server's message");
  TRY(row);
  if (copied) return copies_.take(*copied, *row.value(), out);
  const auto follow = [&] {
    row.value()->follow(*update, gradient_scale(), keeps_.spares, keeps_.parallel_for);
  };
  return copies_.take(*update, *row.value(), codecs_.merges(row.value()->row), follow, out);
}

void ShardRows::send_updates(Outbox& out) const {
  for (const ShardRow* row : learning_)
    for (const Update& update : row->uncopied.updates()) out.push_back({copies_.copy(), update});
}

void ShardRows::lose_server(int server, Outbox& out) {
  if (copies_.lose_copy(server))
    for (ShardRow* row : learning_) row->uncopied.give_up(out);
  if (!copies_.take_over(server)) return;
  for (const OwnRow& own : rows_) {
    const auto* row = std::get_if<std::unique_ptr<ShardRow>>(&own);
    if (!row || (*row)->row.server != server || !(*row)->row.learns) continue;
    learning_.push_back(row->get());
    for (int w = 0; w < plan_.workers; ++w)
      (*row)->end_at(w, gone_[w] ? (*row)->pushed(w) : ends_[w]);
  }
  if (plan_.clip >= 0) clip_parts_.push_back(clip_part(server));
  send_norm_if_complete(out);
  for (const auto& [worker, message] : copies_.take_held_back()) {
    if (gone_[worker]) continue;
    const Status status = std::holds_alternative<Push>(message)
                              ? push(worker, std::get<Push>(message), out)
                              : get(worker, std::get<Get>(message), out);
    if (!status.ok()) LOG(ERROR) << status.error().message;
  }
}

}  // namespace shoal::table
