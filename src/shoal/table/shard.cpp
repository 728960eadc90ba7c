#include "shoal/table/shard_state.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal::table {
namespace {

// None of what is said of no rows.
std::optional<Generation> generation_of(const Message& message) {
  return std::visit(
      []<class M>(const M& m) -> std::optional<Generation> {
        if constexpr (requires { m.generation; })
          return m.generation;
        else if constexpr (requires { m.plan; })
          return m.plan.generation;
        else
          return std::nullopt;
      },
      message);
}

}  // namespace

Shard::Shard(int server, SchemeMaker maker, CodecFinder codecs)
    : state_(std::make_unique<State>(server, std::move(maker), codecs)) {}
Shard::~Shard() = default;

Status Shard::handle(int worker, const Message& message, Outbox& out) {
  if (const auto* total = std::get_if<NormTotal>(&message))
    return state_->handle_total(*total, out);
  return state_->handle(worker, message, out);
}
void Shard::renumber(int server) { state_->server = server; }
void Shard::leave(int worker, Outbox& out) { state_->leave(worker, out); }
std::optional<RowMessage> Shard::look(RowId id) const {
  const ShardRow* row = state_->find(id);
  if (row == nullptr) return std::nullopt;
  return RowMessage{
      .row = id, .version = row->version(), .payload = as_payload(row->numbers(Part::kWeights))};
}
std::optional<Version> Shard::version_of(RowId id) const {
  const ShardRow* row = state_->find(id);
  return row == nullptr ? std::nullopt : std::optional(row->version());
}
void Shard::share_out(ParallelFor parallel_for) { state_->parallel_for = std::move(parallel_for); }
void Shard::count_only() { state_->counts_only = true; }
bool Shard::ready() const { return state_->plan && state_->without_weights == 0; }
const Plan* Shard::plan() const { return state_->plan ? &*state_->plan : nullptr; }
Clock Shard::clock_of(int worker) const { return state_->clock_of(worker); }
ShardCounters Shard::counters() const { return state_->counters; }

PushCounts Shard::counts_of(int worker) const {
  const auto which = static_cast<std::size_t>(worker);
  return which < state_->counts.size() ? state_->counts[which] : PushCounts();
}

std::size_t Shard::bytes_held() const {
  std::size_t bytes = state_->spares.bytes();
  for (const auto& row : state_->rows)
    if (row) bytes += row->bytes();
  return bytes;
}

Status Shard::State::handle(int worker, const Message& message, Outbox& out) {
  const char* name = name_of(type_of(message));
  const std::optional<Generation> generation = generation_of(message);
  // who said it may have had another number then
  if (plan && generation && is_late(*generation)) return {};
  if (worker < 0 || (plan && worker >= plan->workers))
    return broken("worker ", worker, " sends a ", name, ", and there are ",
                  plan ? plan->workers : 0, " (the first is 0)");
  if (plan && gone[static_cast<std::size_t>(worker)])
    return broken("worker ", worker, " sends a ", name,
                  ", and it is counted out since it was lost");
  const bool is_chiefs =
      std::holds_alternative<PlanMessage>(message) || std::holds_alternative<Init>(message);
  if (is_chiefs && worker != 0)
    return broken("worker ", worker, " sends a ", name, ", and only worker 0 may");
  if (const auto* said = std::get_if<PlanMessage>(&message)) return handle_plan(*said, out);
  if (!plan) return broken("worker ", worker, " sends a ", name, " before worker 0 sent the plan");
  if (generation && *generation > plan->generation)
    return broken("worker ", worker, " sends a ", name, " of generation ", *generation,
                  ", and this server is in generation ", plan->generation);
  if (const auto* init = std::get_if<Init>(&message)) return handle_init(*init, out);
  if (const auto* push = std::get_if<Push>(&message)) return handle_push(worker, *push, out);
  if (const auto* get = std::get_if<Get>(&message)) return handle_get(worker, *get, out);
  if (const auto* retire = std::get_if<Retire>(&message))
    return handle_retire(worker, *retire, out);
  return broken("worker ", worker, " sends a ", name, ", which is not for servers");
}

bool Shard::State::is_late(Generation said) {
  const bool late = said < plan->generation;
  counters.late += late;
  return late;
}

// ---- the beginning ----

Status Shard::State::handle_plan(const PlanMessage& message, Outbox& out) {
  const Plan& said = message.plan;
  if (plan && said.generation == plan->generation) {
    if (said != *plan) return broken("worker 0 sends a second plan, which differs from its first");
    if (without_weights == 0) say_ready(out);
    return {};
  }
  if (const std::string wrong = validate(said); !wrong.empty())
    return broken("worker 0's plan: ", wrong);
  if (const std::string wrong = unknown_codec(said, codecs); !wrong.empty())
    return broken("worker 0's plan: ", wrong);
  if (server >= said.servers)
    return broken("worker 0's plan is for ", said.servers, " servers, and this is server ", server,
                  " (the first is 0)");
  auto made = maker(said.scheme);
  if (!made.ok()) return broken("worker 0's plan: ", made.error().message);
  if (const std::string unfit = made.value()->unfit(said.workers); !unfit.empty())
    return broken("worker 0's plan: scheme '", said.scheme, "': ", unfit);
  if (said.clip >= 0 && !made.value()->lockstep())
    return broken(
        "worker 0's plan: a clip of the norm needs all workers' gradients at once, and under "
        "scheme '",
        said.scheme, "' they come one by one");
  if (plan)
    if (Status status = check_next(said); !status.ok()) return status;
  begin(said, std::move(made).value(), message.in_place);
  if (without_weights == 0) be_ready(out);
  return {};
}

// Whether the generation is at its end: all pushes are in the rows, or were dropped.
Status Shard::State::check_next(const Plan& said) const {
  if (said.generation != plan->generation + 1)
    return broken("worker 0's plan is of generation ", said.generation,
                  ", and this server is in generation ", plan->generation);
  if (without_weights > 0)
    return broken("worker 0's plan of generation ", said.generation,
                  " comes before all weights of generation ", plan->generation);
  for (const ShardRow* row : learning)
    if (const RowView view = row->view(); !view.held.empty())
      return broken("worker 0's plan of generation ", said.generation, " comes while worker ",
                    view.held[0].worker, "'s push of row ", row->id, " at clock ",
                    view.held[0].clock, " is not merged");
  return {};
}

// A row with one reader, which need not stay as it was read, is kept in the memory of its reader:
// an update there is a read too.
void Shard::State::begin(const Plan& said, std::unique_ptr<Scheme> made, const InPlace& in_place) {
  scheme = std::move(made);
  plan = said;
  norm_clock = said.start;
  complete = 0;
  norm_sent = false;
  learning.clear();
  rows.clear();
  counts.resize(std::max<std::size_t>(counts.size(), said.workers));
  ends.assign(said.workers, kUnbounded);
  gone.assign(said.workers, false);
  rows.resize(said.rows.size());
  const bool updates_in_place = in_place && said.workers == 1 &&
                                scheme->contribution() == ContributionKind::kGradient &&
                                !scheme->keeps_reads();
  for (RowId id = 0; id < said.rows.size(); ++id) {
    if (said.rows[id].server != server) continue;
    const Codec& answers = *codecs(said.rows[id].pull_codec);
    const bool is_shared = updates_in_place && said.rows[id].pull_codec == CodecId::kFloat32;
    rows[id] = std::make_unique<ShardRow>(id, *plan, answers,
                                          is_shared ? in_place(id) : std::span<float>());
    ++without_weights;
    if (said.rows[id].learns) learning.push_back(rows[id].get());
  }
}

Status Shard::State::handle_init(const Init& init, Outbox& out) {
  ShardRow* const found = find(init.row);
  if (found == nullptr) return not_here(init.row, "worker 0's Init");
  ShardRow& row = *found;
  const int part = static_cast<int>(init.part);
  if (part > optim::histories(plan->rule.rule))
    return broken("worker 0's Init of row ", init.row, " is of history ", part, "; ",
                  optim::name_of(plan->rule.rule), " keeps ", optim::histories(plan->rule.rule));
  Result<Values> numbers = Values();
  const bool is_zeros = init.payload.bytes.empty() && init.part != Part::kWeights;
  if (!is_zeros) numbers = decode_with(float32_codec(), init.payload, row.row.length);
  if (!numbers.ok())
    return broken("worker 0's Init of row ", init.row, " ", numbers.error().message);
  if (init.part != Part::kWeights && !row.row.learns) return {};  // nobody will ask
  if (!row.has(init.part)) {
    if (row.was_changed())
      return broken("worker 0's Init of row ", init.row, ", history ", part,
                    ", comes after the first update");
    row.set(init.part, numbers.value().data);
    if (init.part != Part::kWeights || --without_weights > 0) return {};
    be_ready(out);
  } else if (without_weights == 0) {
    say_ready(out);
  }
  return {};
}

void Shard::State::say_ready(Outbox& out) const {
  const auto own = std::ranges::count_if(rows, [](const auto& row) { return row != nullptr; });
  out.push_back({to_worker(0), Ready{static_cast<std::uint32_t>(own), plan->generation}});
}

void Shard::State::be_ready(Outbox& out) {
  say_ready(out);
  send_norm_if_complete(out);
}

ShardRow* Shard::State::find(RowId row) const {
  return row < rows.size() ? rows[row].get() : nullptr;
}

// Why there is no such row here.
Error Shard::State::not_here(RowId row, const std::string& what) const {
  if (row >= rows.size())
    return broken(what, " is of row ", row, "; the plan has ", rows.size(), " (the first is 0)");
  return broken(what, " is of row ", row, ", which server ", plan->rows[row].server,
                " holds; this is server ", server);
}

}  // namespace shoal::table
