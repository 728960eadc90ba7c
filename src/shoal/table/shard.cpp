#include "shoal/table/shard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "shard_row.h"
#include "shoal/base/log.h"

namespace shoal::table {
namespace {

constexpr std::size_t kStaleness = 64;   // classes of the histogram
constexpr const char* kPayloads[] = {"a gradient", "a delta", "weights"};

template <class... Args>
Error broken(const Args&... args) {
  return {Code::kPeer, str(args...)};
}

Address to_worker(int worker) { return {Address::Kind::kWorker, worker}; }
// None of what is said of no rows.
std::optional<Epoch> epoch_of(const Message& message) {
  return std::visit([]<class M>(const M& m) -> std::optional<Epoch> {
    if constexpr (requires { m.epoch; }) return m.epoch;
    else if constexpr (requires { m.plan; }) return m.plan.epoch;
    else return std::nullopt;
  }, message);
}
std::string push_named(int worker, const Push& push) { return str("worker ", worker, "'s push of row ", push.row, " at clock ", push.clock); }

}  // namespace

struct Shard::State {
  State(int server, SchemeMaker maker) : server(server), maker(std::move(maker)) { counters.staleness.resize(kStaleness); }

  Status take(int worker, const Message& message, Outbox& out);
  Status take_plan(const PlanMessage& message, Outbox& out);
  Status check_next(const Plan& said) const;
  void begin(const Plan& said, std::unique_ptr<Scheme> made, const Home& home);
  bool is_late(Epoch said);
  Status take_init(const Init& init, Outbox& out);
  Status take_push(int worker, const Push& push, Outbox& out);
  Status take_get(int worker, const Get& get, Outbox& out);
  Status take_retire(int worker, const Retire& retire, Outbox& out);
  Status take_total(const NormTotal& total, Outbox& out);
  Status check_push(int worker, const Push& push) const;
  ShardRow* find(RowId row) const;
  Error not_here(RowId row, const std::string& what) const;

  void be_ready(Outbox& out);
  void say_ready(Outbox& out) const;
  void leave(int worker, Outbox& out);
  void advance(ShardRow& row, Outbox& out);
  void answer_readers(ShardRow& row, Outbox& out);
  void ask_again(ShardRow& row, int worker, Clock clock, Outbox& out);
  void hang(ShardRow& row, Merge merge);
  void apply(ShardRow& row, const Merge& merge, double clip);
  void send_norm(Outbox& out) const;
  void send_norm_if_complete(Outbox& out);
  Clock clock_of(int worker) const;

  const int server;
  const SchemeMaker maker;
  std::optional<Plan> plan;
  std::unique_ptr<Scheme> scheme;
  std::vector<std::unique_ptr<ShardRow>> rows;   // of the plan; null where another server's
  std::vector<ShardRow*> learning;               // own rows that learn, by id
  std::size_t without_weights = 0;               // own rows
  std::vector<Clock> ends;                       // by worker: no push from there on
  std::vector<bool> gone;                        // by worker
  Spares spares;
  Crew crew;
  ShardCounters counters;
  bool counts_only = false;
  // A clip of the norm: each learning row's merge of norm_clock waits until all have theirs, and the coordinator has added up all servers'.
  Clock norm_clock = 0;
  std::size_t complete = 0;                      // rows with a merge that waits
  bool norm_sent = false;
};

Shard::Shard(int server, SchemeMaker maker) : state_(std::make_unique<State>(server, std::move(maker))) {}
Shard::~Shard() = default;

Status Shard::handle(int worker, const Message& message, Outbox& out) {
  if (const auto* total = std::get_if<NormTotal>(&message)) return state_->take_total(*total, out);
  return state_->take(worker, message, out);
}
void Shard::leave(int worker, Outbox& out) { state_->leave(worker, out); }
std::optional<RowMessage> Shard::look(RowId id) const {
  const ShardRow* row = state_->find(id);
  if (row == nullptr) return std::nullopt;
  return RowMessage{.row = id, .version = row->version(), .values = row->numbers(Part::kWeights)};
}
std::optional<Version> Shard::version_of(RowId id) const {
  const ShardRow* row = state_->find(id);
  return row == nullptr ? std::nullopt : std::optional(row->version());
}
void Shard::share_out(Crew crew) { state_->crew = std::move(crew); }
void Shard::count_only() { state_->counts_only = true; }
bool Shard::ready() const { return state_->plan && state_->without_weights == 0; }
const Plan* Shard::plan() const { return state_->plan ? &*state_->plan : nullptr; }
Clock Shard::clock_of(int worker) const { return state_->clock_of(worker); }
ShardCounters Shard::counters() const { return state_->counters; }

std::size_t Shard::bytes_held() const {
  std::size_t bytes = state_->spares.bytes();
  for (const auto& row : state_->rows)
    if (row) bytes += row->bytes();
  return bytes;
}

Status Shard::State::take(int worker, const Message& message, Outbox& out) {
  const char* name = name_of(type_of(message));
  const std::optional<Epoch> epoch = epoch_of(message);
  if (plan && epoch && is_late(*epoch)) return {};   // who said it may have had another number then
  if (worker < 0 || (plan && worker >= plan->workers))
    return broken("worker ", worker, " sends a ", name, ", and there are ", plan ? plan->workers : 0, " (the first is 0)");
  if (plan && gone[static_cast<std::size_t>(worker)]) return broken("worker ", worker, " sends a ", name, ", and it is counted out since it was lost");
  const bool is_chiefs = std::holds_alternative<PlanMessage>(message) || std::holds_alternative<Init>(message);
  if (is_chiefs && worker != 0) return broken("worker ", worker, " sends a ", name, ", and only worker 0 may");
  if (const auto* said = std::get_if<PlanMessage>(&message)) return take_plan(*said, out);
  if (!plan) return broken("worker ", worker, " sends a ", name, " before worker 0 sent the plan");
  if (epoch && *epoch > plan->epoch) return broken("worker ", worker, " sends a ", name, " of epoch ", *epoch, ", and this server is in epoch ", plan->epoch);
  if (const auto* init = std::get_if<Init>(&message)) return take_init(*init, out);
  if (const auto* push = std::get_if<Push>(&message)) return take_push(worker, *push, out);
  if (const auto* get = std::get_if<Get>(&message)) return take_get(worker, *get, out);
  if (const auto* retire = std::get_if<Retire>(&message)) return take_retire(worker, *retire, out);
  return broken("worker ", worker, " sends a ", name, ", which is not for servers");
}

bool Shard::State::is_late(Epoch said) {
  const bool late = said < plan->epoch;
  counters.late += late;
  return late;
}

// ---- the beginning ----

Status Shard::State::take_plan(const PlanMessage& message, Outbox& out) {
  const Plan& said = message.plan;
  if (plan && said.epoch == plan->epoch) {
    if (said != *plan) return broken("worker 0 sends a second plan, which differs from its first");
    if (without_weights == 0) say_ready(out);
    return {};
  }
  if (const std::string wrong = validate(said); !wrong.empty()) return broken("worker 0's plan: ", wrong);
  if (server >= said.servers) return broken("worker 0's plan is for ", said.servers, " servers, and this is server ", server, " (the first is 0)");
  auto made = maker(said.scheme);
  if (!made.ok()) return broken("worker 0's plan: ", made.error().message);
  if (const std::string unfit = made.value()->unfit(said.workers); !unfit.empty())
    return broken("worker 0's plan: scheme '", said.scheme, "': ", unfit);
  if (said.clip >= 0 && !made.value()->lockstep())
    return broken("worker 0's plan: a clip of the norm needs all workers' gradients at once, and under scheme '", said.scheme, "' they come one by one");
  if (plan)
    if (Status status = check_next(said); !status.ok()) return status;
  begin(said, std::move(made).value(), message.home);
  if (without_weights == 0) be_ready(out);
  return {};
}

// Whether the epoch is at its end: all pushes are in the rows, or were dropped.
Status Shard::State::check_next(const Plan& said) const {
  if (said.epoch != plan->epoch + 1) return broken("worker 0's plan is of epoch ", said.epoch, ", and this server is in epoch ", plan->epoch);
  if (without_weights > 0) return broken("worker 0's plan of epoch ", said.epoch, " comes before all weights of epoch ", plan->epoch);
  for (const ShardRow* row : learning)
    if (const RowView view = row->view(); !view.held.empty())
      return broken("worker 0's plan of epoch ", said.epoch, " comes while worker ", view.held[0].worker, "'s push of row ", row->id, " at clock ",
                    view.held[0].clock, " is not merged");
  return {};
}

// A row that nobody else reads, or is to stay as it was read, is where its reader has it: there an update is a read too.
void Shard::State::begin(const Plan& said, std::unique_ptr<Scheme> made, const Home& home) {
  scheme = std::move(made);
  plan = said;
  norm_clock = said.start;
  complete = 0;
  norm_sent = false;
  learning.clear();
  rows.clear();
  ends.assign(said.workers, kUnbounded);
  gone.assign(said.workers, false);
  rows.resize(said.rows.size());
  const bool at_home = home && said.workers == 1 && scheme->payload() == Payload::kGradient && !scheme->keeps_reads();
  for (RowId id = 0; id < said.rows.size(); ++id) {
    if (said.rows[id].server != server) continue;
    rows[id] = std::make_unique<ShardRow>(id, *plan, at_home ? home(id) : std::span<float>());
    ++without_weights;
    if (said.rows[id].learns) learning.push_back(rows[id].get());
  }
}

Status Shard::State::take_init(const Init& init, Outbox& out) {
  ShardRow* const found = find(init.row);
  if (found == nullptr) return not_here(init.row, "worker 0's Init");
  ShardRow& row = *found;
  const int part = static_cast<int>(init.part);
  if (part > optim::histories(plan->rule.rule))
    return broken("worker 0's Init of row ", init.row, " is of history ", part, "; ", optim::name_of(plan->rule.rule), " keeps ", optim::histories(plan->rule.rule));
  const bool is_zeros = init.values.data.empty() && init.part != Part::kWeights;
  if (!is_zeros && init.values.data.size() != row.row.length)
    return broken("worker 0's Init of row ", init.row, " has ", init.values.data.size(), " numbers; the row has ", row.row.length);
  if (init.part != Part::kWeights && !row.row.learns) return {};   // nobody will ask
  if (!row.has(init.part)) {
    if (row.was_changed()) return broken("worker 0's Init of row ", init.row, ", history ", part, ", comes after the first update");
    row.set(init.part, init.values.data);
    if (init.part != Part::kWeights || --without_weights > 0) return {};
    be_ready(out);
  } else if (without_weights == 0) {
    say_ready(out);
  }
  return {};
}

void Shard::State::say_ready(Outbox& out) const {
  const auto own = std::ranges::count_if(rows, [](const auto& row) { return row != nullptr; });
  out.push_back({to_worker(0), Ready{static_cast<std::uint32_t>(own), plan->epoch}});
}

void Shard::State::be_ready(Outbox& out) {
  say_ready(out);
  send_norm_if_complete(out);
}

ShardRow* Shard::State::find(RowId row) const { return row < rows.size() ? rows[row].get() : nullptr; }

// Why there is no such row here.
Error Shard::State::not_here(RowId row, const std::string& what) const {
  if (row >= rows.size()) return broken(what, " is of row ", row, "; the plan has ", rows.size(), " (the first is 0)");
  return broken(what, " is of row ", row, ", which server ", plan->rows[row].server, " holds; this is server ", server);
}

// ---- pushes ----

Status Shard::State::check_push(int worker, const Push& push) const {
  const ShardRow& row = *rows[push.row];
  const auto wrong = [&](const auto&... words) { return broken(push_named(worker, push), words...); };
  if (without_weights > 0) return wrong(" comes before worker 0 sent all weights");
  if (!row.row.learns) return wrong(" is of a row that does not learn");
  if (push.clock < plan->start) return wrong(" is from before the start, clock ", plan->start);
  if (push.clock >= ends[static_cast<std::size_t>(worker)])
    return wrong(" comes after it retired at clock ", ends[static_cast<std::size_t>(worker)]);
  if (push.base < plan->start || push.base > row.version())
    return wrong(" is based on version ", push.base, "; the row has had ", plan->start, " to ", row.version());
  if (push.payload != scheme->payload())
    return wrong(" holds ", kPayloads[static_cast<std::size_t>(push.payload)], "; scheme '", scheme->name(), "' takes ",
                  kPayloads[static_cast<std::size_t>(scheme->payload())]);
  if (!(push.weight >= 0 && std::isfinite(push.weight))) return wrong(" has weight ", push.weight, "; it must be finite, 0 or more");
  if (!std::isfinite(push.rate)) return wrong(" has rate ", push.rate, "; it must be finite");
  const std::size_t count = push.values.data.size();
  if (count != row.row.length && !(push.weight == 0 && count == 0)) return wrong(" has ", count, " numbers; the row has ", row.row.length);
  return {};
}

// A push is taken in its turn, once. One that is there already is its worker's question whether it arrived; the answer is the row, if not
// yet then when it may be read.
Status Shard::State::take_push(int worker, const Push& push, Outbox& out) {
  ShardRow* const found = find(push.row);
  if (found == nullptr) return not_here(push.row, str("worker ", worker, "'s push at clock ", push.clock));
  if (Status status = check_push(worker, push); !status.ok()) return status;
  ShardRow& row = *found;
  const Clock next = row.pushed(worker);
  if (push.clock > next) {
    ++counters.early;
    out.push_back({to_worker(worker), NeedPush{push.row, next, plan->epoch}});
    return {};
  }
  if (push.clock < next) {
    ++counters.repeated;
    if (push.clock + 1 == next) ask_again(row, worker, next, out);   // else it has pushed again since: it knows
    return {};
  }
  if (!counts_only && !push.finite && !all_finite(push.values.data)) {
    ++counters.refused;
    return Error{Code::kNonFinite, str(push_named(worker, push), " holds a NaN or an infinity: its gradients have grown beyond all bounds")};
  }
  row.hold(worker, push, ends[static_cast<std::size_t>(worker)]);
  row.wait(worker, next + 1);
  advance(row, out);
  counters.parked += row.is_waiting(worker);
  send_norm_if_complete(out);
  return {};
}

// A read, or a push, that came again: if the row waits for the norm of all rows, the word of that may be lost.
void Shard::State::ask_again(ShardRow& row, int worker, Clock clock, Outbox& out) {
  const bool is_new = row.wait(worker, clock);
  answer_readers(row, out);
  counters.parked += is_new && row.is_waiting(worker);
  if (norm_sent && row.is_waiting(worker)) send_norm(out);
}

Status Shard::State::take_get(int worker, const Get& get, Outbox& out) {
  const auto wrong = [&](const auto&... words) { return broken("worker ", worker, "'s read at clock ", get.clock, " of row ", get.row, words...); };
  ShardRow* const found = find(get.row);
  if (found == nullptr) return not_here(get.row, str("worker ", worker, "'s read at clock ", get.clock));
  ShardRow& row = *found;
  if (without_weights > 0) return wrong(" comes before worker 0 sent all weights");
  if (get.part != Part::kWeights) {
    const int part = static_cast<int>(get.part), kept = row.row.learns ? optim::histories(plan->rule.rule) : 0;
    if (part > kept) return wrong(" wants history ", part, "; the row keeps ", kept);
    out.push_back({to_worker(worker), RowMessage{get.row, get.clock, row.version(), get.part, row.numbers(get.part), plan->epoch}});
    return {};
  }
  if (get.clock < plan->start) return wrong(" is from before the start, clock ", plan->start);
  if (row.row.learns && get.clock > row.pushed(worker)) out.push_back({to_worker(worker), NeedPush{get.row, row.pushed(worker), plan->epoch}});
  else ask_again(row, worker, get.clock, out);
  return {};
}

// ---- merges ----

// All merges that the row allows, then all reads.
void Shard::State::advance(ShardRow& row, Outbox& out) {
  while (!row.pending) {
    std::optional<Merge> merge = scheme->next_merge(row.view());
    if (!merge) break;
    if (plan->clip >= 0) hang(row, std::move(*merge));
    else apply(row, *merge, 1);
  }
  answer_readers(row, out);
}

void Shard::State::hang(ShardRow& row, Merge merge) {
  const std::size_t first = merge.take.empty() ? merge.drop.at(0) : merge.take[0];
  CHECK(row.view().held[first].clock == norm_clock) << "row " << row.id << ": scheme '" << scheme->name() << "' is not lockstep";
  const double squares = counts_only ? 0 : row.squares(merge);
  row.pending = ShardRow::Pending{std::move(merge), squares};
  ++complete;
}

void Shard::State::apply(ShardRow& row, const Merge& merge, double clip) {
  counters.merges += !merge.take.empty();
  counters.contributions += merge.take.size();
  counters.dropped += merge.drop.size();
  if (counts_only) row.count(merge);
  else row.apply(merge, *plan, clip / plan->iter_size, spares, crew);
}

void Shard::State::answer_readers(ShardRow& row, Outbox& out) {
  std::optional<Clock> least;                    // which answers do not change
  for (int worker = 0; worker < plan->workers; ++worker) {
    if (!row.is_waiting(worker) || !row.can_read(*scheme, worker)) continue;
    RowMessage answer = row.answer(*scheme, worker);
    answer.epoch = plan->epoch;
    if (row.row.learns) {
      if (!least) least = slowest(row.view());
      const std::size_t ahead = *least < answer.clock ? static_cast<std::size_t>(answer.clock - *least) : 0;
      ++counters.staleness[std::min(ahead, kStaleness - 1)];
    }
    out.push_back({to_worker(worker), std::move(answer)});
  }
}

// ---- a clip of the norm ----

void Shard::State::send_norm(Outbox& out) const {
  double squares = 0;
  for (const ShardRow* row : learning) squares += row->pending->squares;
  out.push_back({{Address::Kind::kCoordinator, 0}, Norm{norm_clock, static_cast<std::uint16_t>(server), squares, plan->epoch}});
}

// A server without rows that learn is always complete: the coordinator waits for its word too.
void Shard::State::send_norm_if_complete(Outbox& out) {
  if (plan->clip < 0 || norm_sent || without_weights > 0 || complete < learning.size()) return;
  if (std::ranges::max(ends) <= norm_clock) return;
  norm_sent = true;
  send_norm(out);
}

Status Shard::State::take_total(const NormTotal& total, Outbox& out) {
  if (plan && is_late(total.epoch)) return {};
  if (!plan || plan->clip < 0) return broken("the coordinator sends the norm of clock ", total.clock, ", and nothing is to be clipped");
  if (total.clock < norm_clock) return {};   // said twice
  if (total.clock > norm_clock || !norm_sent)
    return broken("the coordinator sends the norm of clock ", total.clock, " before this server said its part; it is at clock ", norm_clock);
  if (!(total.squares >= 0 && std::isfinite(total.squares))) return broken("the coordinator sends a norm whose square is ", total.squares);
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

Status Shard::State::take_retire(int worker, const Retire& retire, Outbox& out) {
  Clock& end = ends[static_cast<std::size_t>(worker)];
  if (end == retire.clock) return {};
  if (end != kUnbounded) return broken("worker ", worker, " retires at clock ", retire.clock, ", and did so at clock ", end);
  if (retire.clock < plan->start) return broken("worker ", worker, " retires at clock ", retire.clock, ", before the start, clock ", plan->start);
  for (const ShardRow* row : learning)
    if (row->pushed(worker) > retire.clock)
      return broken("worker ", worker, " retires at clock ", retire.clock, ", and has pushed row ", row->id, " at clock ", row->pushed(worker) - 1);
  end = retire.clock;
  for (ShardRow* row : learning) {
    row->end_at(worker, end);
    advance(*row, out);
  }
  send_norm_if_complete(out);
  return {};
}

// What was decided before the norm of all is known is decided again without what the worker leaves unfinished.
void Shard::State::leave(int worker, Outbox& out) {
  if (!plan || worker < 0 || worker >= plan->workers || gone[static_cast<std::size_t>(worker)]) return;
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
  CHECK(!norm_sent || complete == learning.size()) << "a norm was sent of rows that are not complete";
  send_norm_if_complete(out);
}

}  // namespace shoal::table
