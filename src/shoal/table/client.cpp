#include "shoal/table/client.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "shoal/base/log.h"

namespace shoal::table {
namespace {

// a part of a row: what is waited for, queued and timed; row * kParts + part
using Slot = std::uint32_t;
constexpr std::size_t kParts = 3;
constexpr int kPatience = 4;  // how often the time until the next question doubles

enum class Say : std::uint8_t { kNothing, kPush, kGet };

// The wait for one part of one row.
struct Wait {
  Clock clock = -1;  // that the answer will carry
  bool waiting = false;
  bool asked = false;       // a link has taken the push or the read at least once
  Say say = Say::kNothing;  // when its turn in its server's queue, under `ticket`, comes
  int patience = 0;         // times the silence was answered by another question, up to kPatience
  std::uint64_t ticket = 0;
  Instant since{}, again{};  // waits since then; asks again then
};

struct Turn {
  std::uint64_t rank = 0;    // smaller ones first
  std::uint64_t ticket = 0;  // then these
  Slot slot = 0;
  // for a heap
  bool operator<(const Turn& other) const {
    return std::tie(rank, ticket) > std::tie(other.rank, other.ticket);
  }
};

template <class... Words>
Error broken_by(int server, const Words&... words) {
  return {Code::kPeer, str("server ", server, " broke the protocol: ", words...,
                           ". It runs another version of this program, or another plan.")};
}

// A push that is sent again may be acknowledged, by the first one's answer, while a link still
// reads it: its payload has an owner.
Push with_own_payload(const Push& push) {
  Push copy = push;
  copy.payload = owned(push.payload);
  return copy;
}

}  // namespace

struct Client::State {
  State(const ClientOptions& options, const Plan& plan,
        std::function<std::span<float>(RowId, Part)> destination)
      : options(options),
        generation(plan.generation),
        rows(plan.rows),
        destination(std::move(destination)),
        waits(plan.rows.size() * kParts),
        pushes(plan.rows.size()),
        versions(plan.rows.size(), plan.start),
        queues(plan.servers) {}

  static Slot slot_of(RowId row, Part part) {
    return static_cast<Slot>(row * kParts + static_cast<std::size_t>(part));
  }
  static RowId row_of(Slot slot) { return slot / kParts; }
  static Part part_of(Slot slot) { return static_cast<Part>(slot % kParts); }

  void start(Slot slot, Clock clock, Say what, Instant now);
  void say(Slot slot, Say what);
  void encode(Push& push) const;
  const Codec& codec_of(const RowMessage& row) const;
  void be_patient(Slot slot, int times, Instant now);
  void arrive(Slot slot, Version version);
  void count(const Push& push, Version version);
  bool expects(const RowMessage& row) const;
  Result<bool> handle_row(int server, const RowMessage& message);
  Result<bool> handle_need(int server, const NeedPush& message);
  Status check_row(int server, RowId row, const char* name) const;
  Message message_of(Slot slot) const;

  const ClientOptions options;
  const Generation generation;
  const std::vector<Row> rows;
  const std::function<std::span<float>(RowId, Part)> destination;
  std::vector<Wait> waits;                         // by slot
  std::vector<std::optional<Push>> pushes;         // by row; those not acknowledged
  std::vector<Version> versions;                   // by row: last read
  std::vector<std::vector<Turn>> queues;           // by server; heaps
  std::set<std::pair<Instant, Slot>> by_deadline;  // slots that wait, by Wait::again
  std::uint64_t tickets = 0;
  StalenessCounts staleness;
};

Client::Client(const ClientOptions& options, const Plan& plan,
               std::function<std::span<float>(RowId, Part)> destination)
    : state_(std::make_unique<State>(options, plan, std::move(destination))) {
  CHECK_GT(options.retry.count(), 0);
  const std::string unknown = unknown_codec(plan, options.codecs);
  CHECK(unknown.empty()) << unknown;
}
Client::~Client() = default;

// ---- the worker's side ----

void Client::State::start(Slot slot, Clock clock, Say what, Instant now) {
  Wait& wait = waits[slot];
  wait.clock = clock;
  wait.waiting = true;
  wait.asked = false;
  wait.since = now;
  be_patient(slot, 0, now);
  say(slot, what);
}

void Client::State::say(Slot slot, Say what) {
  Wait& wait = waits[slot];
  if (wait.say == what) return;
  const bool is_in_line = wait.say != Say::kNothing;
  wait.say = what;
  if (is_in_line) return;
  const Row& row = rows[row_of(slot)];
  wait.ticket = ++tickets;
  const std::uint64_t rank = std::uint64_t{row.priority} << 32 | row_of(slot);
  std::vector<Turn>& queue = queues[row.server];
  queue.push_back({options.order == Order::kPriority ? rank : 0, wait.ticket, slot});
  std::push_heap(queue.begin(), queue.end());
}

void Client::State::be_patient(Slot slot, int times, Instant now) {
  Wait& wait = waits[slot];
  by_deadline.erase({wait.again, slot});
  wait.patience = std::min(times, kPatience);
  wait.again = now + options.retry * (1 << wait.patience);
  by_deadline.emplace(wait.again, slot);
}

void Client::push(Push push, Instant now) {
  CHECK_LT(push.row, state_->rows.size());
  const Row& row = state_->rows[push.row];
  const Slot slot = State::slot_of(push.row, Part::kWeights);
  CHECK(row.learns) << "row " << push.row << " is frozen";
  CHECK(!state_->waits[slot].waiting)
      << "row " << push.row << " is pushed at clock " << push.clock << " before that of clock "
      << state_->waits[slot].clock << " arrived";
  const std::size_t count = push.payload.floats().size();
  CHECK(count == row.length || (push.weight == 0 && count == 0))
      << count << " numbers for row " << push.row << ", which has " << row.length;
  state_->encode(push);
  push.base = state_->versions[push.row];
  push.generation = state_->generation;
  const Clock next = push.clock + 1;
  state_->pushes[push.row] = std::move(push);
  state_->start(slot, next, Say::kPush, now);
}

void Client::get(RowId row, Clock clock, Part part, Instant now) {
  CHECK_LT(row, state_->rows.size());
  const Slot slot = State::slot_of(row, part);
  const Wait& wait = state_->waits[slot];
  CHECK(!wait.waiting || wait.clock == clock)
      << "row " << row << " is asked for at clock " << clock << " and at " << wait.clock;
  if (!wait.waiting) state_->start(slot, clock, Say::kGet, now);
}

// Where the payload is other memory than the numbers, these may be cleared at once.
void Client::State::encode(Push& push) const {
  const Codec& codec = *options.codecs(rows[push.row].push_codec);
  if (push.payload.bytes.empty()) {
    push.payload.codec = codec.id();
    return;
  }
  const std::byte* const before = push.payload.bytes.data();
  push.payload = codec.encode({push.payload.floats(), push.payload.owner});
  if (push.payload.bytes.data() == before) return;
  std::ranges::fill(push.clear_after, 0.0f);
  push.clear_after = {};
}

bool Client::arrived(RowId row) const {
  const Slot first = State::slot_of(row, Part::kWeights);
  return std::none_of(&state_->waits[first], &state_->waits[first] + kParts,
                      [](const Wait& wait) { return wait.waiting; });
}

std::size_t Client::waiting() const { return state_->by_deadline.size(); }

// ---- the network's side ----

// An answer to what was asked, and not answered yet. Answers of earlier clocks, and second ones,
// are not.
bool Client::State::expects(const RowMessage& row) const {
  if (row.generation != generation || row.row >= rows.size() ||
      static_cast<std::size_t>(row.part) >= kParts)
    return false;
  const Wait& wait = waits[slot_of(row.row, row.part)];
  return wait.waiting && wait.asked && wait.clock == row.clock;
}

const Codec& Client::State::codec_of(const RowMessage& row) const {
  return row.part == Part::kWeights ? *options.codecs(rows[row.row].pull_codec) : float32_codec();
}

std::span<std::byte> Client::place(RowMessage& row, std::size_t bytes) const {
  if (!state_->expects(row)) return {};
  const Codec& codec = state_->codec_of(row);
  if (codec.id() == CodecId::kFloat32) {
    const auto place = std::as_writable_bytes(state_->destination(row.row, row.part));
    return place.size() == bytes ? place : std::span<std::byte>();
  }
  if (bytes > codec.bound(state_->rows[row.row].length)) return {};
  const auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  row.payload.bytes = {memory.get(), bytes};
  row.payload.owner = memory;
  return {memory.get(), bytes};
}

Status Client::State::check_row(int server, RowId row, const char* name) const {
  if (row >= rows.size())
    return broken_by(server, name, " of row ", row, "; there are ", rows.size());
  if (rows[row].server != server)
    return broken_by(server, name, " of row ", row, ", which is server ", rows[row].server, "'s");
  return {};
}

Result<bool> Client::take(int server, const Message& message, Instant) {
  if (const auto* row = std::get_if<RowMessage>(&message)) return state_->handle_row(server, *row);
  if (const auto* need = std::get_if<NeedPush>(&message)) return state_->handle_need(server, *need);
  return broken_by(server, "a ", name_of(type_of(message)), " to a worker");
}

Result<bool> Client::State::handle_row(int server, const RowMessage& message) {
  if (message.generation < generation) return false;
  if (message.generation > generation)
    return broken_by(server, "Row of generation ", message.generation,
                     "; this worker is in generation ", generation);
  if (const Status known = check_row(server, message.row, "Row"); !known.ok()) return known.error();
  if (!expects(message)) return false;
  const std::uint32_t length = rows[message.row].length;
  const Result<Values> decoded = decode_with(codec_of(message), message.payload, length);
  if (!decoded.ok())
    return broken_by(server, "Row of row ", message.row, " ", decoded.error().message);
  const std::span<const float> numbers = decoded.value().data;
  const std::span<float> place = destination(message.row, message.part);
  CHECK_EQ(place.size(), length) << "destination of row " << message.row;
  if (numbers.data() != place.data()) std::copy(numbers.begin(), numbers.end(), place.begin());
  arrive(slot_of(message.row, message.part), message.version);
  return true;
}

void Client::State::arrive(Slot slot, Version version) {
  Wait& wait = waits[slot];
  wait.waiting = false;
  wait.say = Say::kNothing;
  by_deadline.erase({wait.again, slot});
  if (part_of(slot) != Part::kWeights) return;
  versions[row_of(slot)] = version;
  std::optional<Push>& push = pushes[row_of(slot)];
  if (push) count(*push, version);
  push.reset();
}

// One of the versions since is the push's own, unless there was none for it.
void Client::State::count(const Push& push, Version version) {
  if (push.weight == 0 || version <= push.base) {
    ++staleness.drops;
    return;
  }
  const auto others = static_cast<std::size_t>(version - push.base - 1);
  ++staleness.pushes[std::min(others, StalenessCounts::kClasses - 1)];
}

const StalenessCounts& Client::staleness() const { return state_->staleness; }

// The server has not got the push, and never will unless it is sent again. One that was
// acknowledged meanwhile is not kept any more, and one that waits for its turn leaves anyhow.
Result<bool> Client::State::handle_need(int server, const NeedPush& message) {
  if (message.generation < generation) return false;
  if (const Status known = check_row(server, message.row, "NeedPush"); !known.ok())
    return known.error();
  const std::optional<Push>& push = pushes[message.row];
  if (push && push->clock == message.clock) say(slot_of(message.row, Part::kWeights), Say::kPush);
  return false;
}

Message Client::State::message_of(Slot slot) const {
  const Wait& wait = waits[slot];
  const RowId row = row_of(slot);
  if (wait.say == Say::kGet) return Get{row, wait.clock, part_of(slot), generation};
  return wait.asked ? with_own_payload(*pushes[row]) : *pushes[row];
}

std::optional<Message> Client::next(int server) {
  std::vector<Turn>& queue = state_->queues.at(static_cast<std::size_t>(server));
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end());
    const Turn turn = queue.back();
    queue.pop_back();
    Wait& wait = state_->waits[turn.slot];
    // answered before its turn came
    if (wait.say == Say::kNothing || wait.ticket != turn.ticket) continue;
    Message message = state_->message_of(turn.slot);
    wait.say = Say::kNothing;
    wait.asked = true;
    return message;
  }
  return std::nullopt;
}

void Client::link_up(int server, Instant now) {
  State& state = *state_;
  for (const auto& [again, slot] : std::set(state.by_deadline)) {
    if (state.rows[State::row_of(slot)].server != server) continue;
    if (state.waits[slot].asked && state.waits[slot].say == Say::kNothing)
      state.say(slot, Say::kGet);
    state.be_patient(slot, 0, now);
  }
}

Instant Client::on_time(Instant now) {
  State& state = *state_;
  while (!state.by_deadline.empty() && state.by_deadline.begin()->first <= now) {
    const Slot slot = state.by_deadline.begin()->second;
    const Wait& wait = state.waits[slot];
    const bool silent = wait.say == Say::kNothing;  // if not, its turn has not come yet
    if (silent) state.say(slot, Say::kGet);
    state.be_patient(slot, wait.patience + (silent ? 1 : 0), now);
  }
  return state.by_deadline.empty() ? Instant::max() : state.by_deadline.begin()->first;
}

std::optional<Client::Overdue> Client::overdue() const {
  if (state_->by_deadline.empty()) return std::nullopt;
  const auto since = [this](const auto& entry) { return state_->waits[entry.second].since; };
  const Slot slot = std::ranges::min_element(state_->by_deadline, {}, since)->second;
  const RowId row = State::row_of(slot);
  const Wait& wait = state_->waits[slot];
  return Overdue{row, state_->rows[row].server, wait.clock, wait.since};
}

}  // namespace shoal::table
