// How a shard takes pushes and reads, what it does with them, and how workers leave.
#include <algorithm>
#include <cmath>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/table/shard_state.h"

namespace shoal::table {
namespace {

constexpr const char* kContributions[] = {"a gradient", "a delta", "weights"};

std::string push_named(int worker, const Push& push) {
  return str("worker ", worker, "'s push of row ", push.row, " at clock ", push.clock);
}

}  // namespace

// ---- pushes ----

Status Shard::State::check_push(int worker, const Push& push) const {
  const ShardRow& row = *rows[push.row];
  const auto wrong = [&](const auto&... words) {
    return broken(push_named(worker, push), words...);
  };
  if (without_weights > 0) return wrong(" comes before worker 0 sent all weights");
  if (!row.row.learns) return wrong(" is of a row that does not learn");
  if (push.clock < plan->start) return wrong(" is from before the start, clock ", plan->start);
  if (push.base < plan->start || push.base > row.version())
    return wrong(" is based on version ", push.base, "; the row has had ", plan->start, " to ",
                 row.version());
  if (push.kind != scheme->contribution())
    return wrong(" holds ", kContributions[static_cast<std::size_t>(push.kind)], "; scheme '",
                 scheme->name(), "' takes ",
                 kContributions[static_cast<std::size_t>(scheme->contribution())]);
  if (!(push.weight >= 0 && std::isfinite(push.weight)))
    return wrong(" has weight ", push.weight, "; it must be finite, 0 or more");
  if (!std::isfinite(push.rate)) return wrong(" has rate ", push.rate, "; it must be finite");
  return {};
}

// A push of weight 0 may have no numbers.
Result<Values> Shard::State::numbers_of(int worker, const Push& push) const {
  if (push.weight == 0 && push.payload.bytes.empty()) return Values();
  const Row& row = plan->rows[push.row];
  Result<Values> numbers = decode_with(*codecs(row.push_codec), push.payload, row.length);
  if (numbers.ok()) return numbers;
  return broken(push_named(worker, push), " ", numbers.error().message);
}

// A push is taken in its turn, once. One that is there already is its worker's question whether it
// arrived; the answer is the row, if not yet then when it may be read.
Status Shard::State::handle_push(int worker, const Push& push, Outbox& out) {
  ShardRow* const found = find(push.row);
  if (found == nullptr)
    return not_here(push.row, str("worker ", worker, "'s push at clock ", push.clock));
  if (Status status = check_push(worker, push); !status.ok()) return status;
  Result<Values> numbers = numbers_of(worker, push);
  if (!numbers.ok()) return numbers.error();
  ShardRow& row = *found;
  const Clock next = row.pushed(worker);
  if (push.clock > next) {
    ++counters.early;
    out.push_back({to_worker(worker), NeedPush{push.row, next, plan->generation}});
    return {};
  }
  if (push.clock < next) {
    ++counters.repeated;
    // else it has pushed again since: it knows
    if (push.clock + 1 == next) ask_again(row, worker, next, out);
    return {};
  }
  if (!counts_only && !push.finite && !all_finite(numbers.value().data)) {
    ++counters.refused;
    return Error{Code::kNonFinite,
                 str(push_named(worker, push),
                     " holds a NaN or an infinity: its gradients have grown beyond all bounds")};
  }
  come_back(worker, push.clock);
  row.hold(worker, push, std::move(numbers).value(), ends[static_cast<std::size_t>(worker)]);
  row.wait(worker, next + 1);
  // in lockstep nobody may read more before all have pushed
  if (merge(row) || !scheme->lockstep()) answer_readers(row, out);
  counters.parked += row.is_waiting(worker);
  send_norm_if_complete(out);
  return {};
}

// A read, or a push, that came again: if the row waits for the norm of all rows, the word of that
// may be lost.
void Shard::State::ask_again(ShardRow& row, int worker, Clock clock, Outbox& out) {
  const bool is_new = row.wait(worker, clock);
  std::optional<Clock> least;
  answer_reader(row, worker, least, out);
  counters.parked += is_new && row.is_waiting(worker);
  if (norm_sent && row.is_waiting(worker)) send_norm(out);
}

Status Shard::State::handle_get(int worker, const Get& get, Outbox& out) {
  const auto wrong = [&](const auto&... words) {
    return broken("worker ", worker, "'s read at clock ", get.clock, " of row ", get.row, words...);
  };
  ShardRow* const found = find(get.row);
  if (found == nullptr)
    return not_here(get.row, str("worker ", worker, "'s read at clock ", get.clock));
  ShardRow& row = *found;
  if (without_weights > 0) return wrong(" comes before worker 0 sent all weights");
  if (get.part != Part::kWeights) {
    const int part = static_cast<int>(get.part),
              kept = row.row.learns ? optim::histories(plan->rule.rule) : 0;
    if (part > kept) return wrong(" wants history ", part, "; the row keeps ", kept);
    out.push_back(
        {to_worker(worker), RowMessage{get.row, get.clock, row.version(), get.part,
                                       as_payload(row.numbers(get.part)), plan->generation}});
    return {};
  }
  if (get.clock < plan->start) return wrong(" is from before the start, clock ", plan->start);
  if (row.row.learns && get.clock > row.pushed(worker))
    out.push_back({to_worker(worker), NeedPush{get.row, row.pushed(worker), plan->generation}});
  else
    ask_again(row, worker, get.clock, out);
  return {};
}

// ---- merges ----

// All merges that the row allows, then all reads.
void Shard::State::advance(ShardRow& row, Outbox& out) {
  merge(row);
  answer_readers(row, out);
}

// False: there was none.
bool Shard::State::merge(ShardRow& row) {
  bool merged = false;
  while (!row.pending) {
    std::optional<Merge> merge = scheme->next_merge(row.view());
    if (!merge) break;
    if (plan->clip >= 0)
      park(row, std::move(*merge));
    else
      apply(row, *merge, 1);
    merged = true;
  }
  return merged;
}

void Shard::State::park(ShardRow& row, Merge merge) {
  const std::size_t first = merge.take.empty() ? merge.drop.at(0) : merge.take[0];
  CHECK(row.view().held[first].clock == norm_clock)
      << "row " << row.id << ": scheme '" << scheme->name() << "' is not lockstep";
  const double squares = counts_only ? 0 : row.squares(merge);
  row.pending = ShardRow::Pending{std::move(merge), squares};
  ++complete;
}

void Shard::State::count(const ShardRow& row, const Merge& merge) {
  counters.merges += !merge.take.empty();
  counters.contributions += merge.take.size();
  counters.dropped += merge.drop.size();
  const std::span<const Contribution> held = row.view().held;
  for (const std::size_t i : merge.take) {
    std::vector<std::uint64_t>& staleness =
        counts[static_cast<std::size_t>(held[i].worker)].staleness;
    const std::size_t versions =
        std::min(static_cast<std::size_t>(std::max<Version>(0, row.version() - held[i].base)),
                 kStalenessClasses - 1);
    if (staleness.size() <= versions) staleness.resize(versions + 1);
    ++staleness[versions];
  }
  for (const std::size_t i : merge.drop) ++counts[static_cast<std::size_t>(held[i].worker)].dropped;
}

void Shard::State::apply(ShardRow& row, const Merge& merge, double clip) {
  count(row, merge);
  if (counts_only)
    row.count(merge);
  else
    row.apply(merge, *plan, clip / plan->iter_size, spares, parallel_for);
}

void Shard::State::answer_readers(ShardRow& row, Outbox& out) {
  std::optional<Clock> least;
  for (int worker = 0; worker < plan->workers; ++worker) answer_reader(row, worker, least, out);
}

// If it waits, and may read. `least`: the slowest worker's clock, which answers do not change, if
// it is known.
void Shard::State::answer_reader(ShardRow& row, int worker, std::optional<Clock>& least,
                                 Outbox& out) {
  if (!row.is_waiting(worker) || !row.can_read(*scheme, worker)) return;
  RowMessage answer = row.answer(*scheme, worker);
  answer.generation = plan->generation;
  if (row.row.learns) {
    if (!least) least = slowest(row.view());
    const std::size_t ahead =
        *least < answer.clock ? static_cast<std::size_t>(answer.clock - *least) : 0;
    ++counters.staleness[std::min(ahead, kStalenessClasses - 1)];
  }
  out.push_back({to_worker(worker), std::move(answer)});
}

// ---- a clip of the norm ----

void Shard::State::send_norm(Outbox& out) const {
  double squares = 0;
  for (const ShardRow* row : learning) squares += row->pending->squares;
  out.push_back({{Address::Kind::kCoordinator, 0},
                 Norm{norm_clock, static_cast<std::uint16_t>(server), squares, plan->generation}});
}

// A server without rows that learn is always complete: the coordinator waits for its word too.
void Shard::State::send_norm_if_complete(Outbox& out) {
  if (plan->clip < 0 || norm_sent || without_weights > 0 || complete < learning.size()) return;
  if (std::ranges::max(ends) <= norm_clock) return;
  norm_sent = true;
  send_norm(out);
}

Status Shard::State::handle_total(const NormTotal& total, Outbox& out) {
  if (plan && is_late(total.generation)) return {};
  if (!plan || plan->clip < 0)
    return broken("the coordinator sends the norm of clock ", total.clock,
                  ", and nothing is to be clipped");
  if (total.clock < norm_clock) return {};  // said twice
  if (total.clock > norm_clock || !norm_sent)
    return broken("the coordinator sends the norm of clock ", total.clock,
                  " before this server said its part; it is at clock ", norm_clock);
  if (!(total.squares >= 0 && std::isfinite(total.squares)))
    return broken("the coordinator sends a norm whose square is ", total.squares);
  const double norm = std::sqrt(total.squares), clip = norm > plan->clip ? plan->clip / norm : 1;
  norm_sent = false;
  complete = 0;
  ++norm_clock;
  for (ShardRow* row : learning) {
    apply(*row, row->pending->merge, clip);
    row->pending.reset();
  }
  for (ShardRow* row : learning) advance(*row, out);
  send_norm_if_complete(out);
  return {};
}

// ---- membership ----

Clock Shard::State::clock_of(int worker) const {
  if (!plan) return 0;
  Clock least = learning.empty() ? plan->start : kUnbounded;
  for (const ShardRow* row : learning) least = std::min(least, row->pushed(worker));
  return least;
}

Status Shard::State::handle_retire(int worker, const Retire& retire, Outbox& out) {
  Clock& end = ends[static_cast<std::size_t>(worker)];
  if (end == retire.clock) return {};
  if (end != kUnbounded)
    return broken("worker ", worker, " retires at clock ", retire.clock, ", and did so at clock ",
                  end);
  if (retire.clock < plan->start)
    return broken("worker ", worker, " retires at clock ", retire.clock,
                  ", before the start, clock ", plan->start);
  for (const ShardRow* row : learning)
    if (row->pushed(worker) > retire.clock)
      return broken("worker ", worker, " retires at clock ", retire.clock, ", and has pushed row ",
                    row->id, " at clock ", row->pushed(worker) - 1);
  end = retire.clock;
  for (ShardRow* row : learning) {
    row->end_at(worker, end);
    advance(*row, out);
  }
  send_norm_if_complete(out);
  return {};
}

// It had stopped, and others did not wait for it.
void Shard::State::come_back(int worker, Clock clock) {
  Clock& end = ends[static_cast<std::size_t>(worker)];
  if (clock < end) return;
  end = kUnbounded;
  for (ShardRow* row : learning) row->end_at(worker, end);
}

// What was decided before the norm of all is known is decided again without what the worker leaves
// unfinished.
void Shard::State::leave(int worker, Outbox& out) {
  if (!plan || worker < 0 || worker >= plan->workers || gone[static_cast<std::size_t>(worker)])
    return;
  gone[static_cast<std::size_t>(worker)] = true;
  Clock& end = ends[static_cast<std::size_t>(worker)];
  end = std::min(end, clock_of(worker));
  for (const auto& row : rows)
    if (row) row->stop_waiting(worker);
  complete = 0;
  for (ShardRow* row : learning) {
    row->pending.reset();
    counters.dropped += row->forget(worker, end);
    advance(*row, out);
  }
  CHECK(!norm_sent || complete == learning.size())
      << "a norm was sent of rows that are not complete";
  send_norm_if_complete(out);
}

}  // namespace shoal::table
