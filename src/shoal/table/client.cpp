#include "shoal/table/client.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/table/update.h"

namespace shoal::table {
namespace {

template <class... Words>
Error broken_by(int server, const Words&... words) {
  return {Code::kPeer, str("server ", server, " broke the protocol: ", words...,
                           ". It runs another version of this program, or another plan.")};
}

// Returns the seed of the random numbers of a push's codec.
std::uint64_t seed_of(int worker, RowId row, Clock clock) {
  return (static_cast<std::uint64_t>(clock) << 36) ^ (static_cast<std::uint64_t>(worker) << 20) ^
         row;
}

}  // namespace

Client::Client(const ClientOptions& options, const Plan& plan,
               std::function<Destination(RowId, Part)> destinations)
    : options_(options),
      generation_(plan.generation),
      rows_(plan.rows),
      own_(rows_,
           [worker = options.worker](const Row& row) {
             return row.writer == kEveryWorker || row.writer == worker ||
                    row.reader == kEveryWorker || row.reader == worker;
           }),
      destinations_(std::move(destinations)),
      waits_(own_.size() * kParts),
      pushes_(own_.size()),
      versions_(own_.size(), plan.start),
      codecs_(plan, options.codecs),
      routes_(plan.servers),
      known_(own_.size()),
      queues_(plan.servers) {
  std::iota(routes_.begin(), routes_.end(), 0);
  for (std::size_t number = 0; number < own_.size(); ++number) {
    const RowId id = own_[number];
    const std::size_t length = codecs_.pushes(rows_[id]).state_length(rows_[id].length);
    if (length == 0) continue;
    states_[id] =
        options.states ? options.states(id, length) : CodecState(own_states_.emplace_back(length));
    CHECK_EQ(states_[id].size(), length) << "state of row " << id;
  }
}

// ---- the worker's side ----

void Client::start(Slot slot, Clock clock, Say what, Instant now) {
  Wait& wait = waits_[slot];
  wait.clock = clock;
  wait.waiting = true;
  wait.asked = false;
  wait.hurries = false;
  wait.since = now;
  say(slot, what);
}

void Client::say(Slot slot, Say what) {
  Wait& wait = waits_[slot];
  if (wait.say == what) return;
  const bool is_in_line = wait.say != Say::kNothing;
  wait.say = what;
  if (is_in_line) return;
  const Row& row = rows_[row_of(slot)];
  wait.ticket = ++tickets_;
  Turn turn{.ticket = wait.ticket, .slot = slot};
  if (options_.order == Order::kPriority) {
    turn.urgency = {wait.clock, row.priority};
    turn.row = row_of(slot);
  }
  queues_[routes_[row.server]].push(turn);
}

void Client::push(Push push, Instant now) {
  CHECK(is_own(push.row)) << "row " << push.row;
  const Row& row = rows_[push.row];
  const Slot slot = slot_of(push.row, Part::kWeights);
  CHECK(row.learns || row.writer == options_.worker) << "row " << push.row << " is frozen";
  CHECK(!waits_[slot].waiting) << "row " << push.row << " is pushed at clock " << push.clock
                               << " before that of clock " << waits_[slot].clock << " arrived";
  const std::size_t count = push.payload.floats().size();
  CHECK(count == row.length || (push.weight == 0 && count == 0))
      << count << " numbers for row " << push.row << ", which has " << row.length;
  if (server_of(push.row) == kNoServer) return std::ranges::fill(push.clear_after, 0.0f), void();
  encode(push);
  const std::size_t number = own_.find(push.row);
  push.base = versions_[number];
  push.generation = generation_;
  const Clock next = push.clock + 1;
  pushes_[number] = std::move(push);
  start(slot, next, Say::kPush, now);
}

void Client::get(RowId row, Clock clock, Part part, Instant now) {
  CHECK(is_own(row)) << "row " << row;
  const Slot slot = slot_of(row, part);
  const Wait& wait = waits_[slot];
  CHECK(!wait.waiting || wait.clock == clock)
      << "row " << row << " is asked for at clock " << clock << " and at " << wait.clock;
  if (!wait.waiting && server_of(row) != kNoServer) start(slot, clock, Say::kGet, now);
}

// Encodes the push's numbers. If the payload is other memory than these, they may be cleared at
// once.
void Client::encode(Push& push) {
  const Codec& codec = codecs_.pushes(rows_[push.row]);
  if (codec.id() == CodecId::kFloat32 || push.payload.bytes.empty()) return;
  const auto found = states_.find(push.row);
  const CodecState state = found == states_.end() ? CodecState() : found->second;
  if (!push.finite && !all_finite(push.payload.floats()))
    return std::ranges::fill(state, 0.0f), void();
  push.payload = codec.encode({push.payload.floats(), push.payload.owner},
                              {.state = state,
                               .clock = push.clock,
                               .rate = push.kind == ContributionKind::kGradient ? push.rate : 0,
                               .seed = seed_of(options_.worker, push.row, push.clock),
                               .whole = push.whole});
  std::ranges::fill(push.clear_after, 0.0f);
  push.clear_after = {};
}

void Client::hurry(RowId row) {
  if (!is_own(row)) return;
  const Slot slot = slot_of(row, Part::kWeights);
  Wait& wait = waits_[slot];
  if (!wait.waiting || !pushes_[slot / kParts] || wait.hurries) return;
  wait.hurries = true;
  if (wait.asked && wait.say == Say::kNothing) say(slot, Say::kGet);
}

bool Client::arrived(RowId row) const {
  if (!is_own(row)) return true;
  const Slot first = slot_of(row, Part::kWeights);
  return std::none_of(&waits_[first], &waits_[first] + kParts,
                      [](const Wait& wait) { return wait.waiting; });
}

// ---- the network's side ----

// Returns whether the answer is still expected. Answers of earlier clocks, and second ones, are
// not.
bool Client::expects(const RowMessage& row) const {
  if (row.generation != generation_ || !is_own(row.row) ||
      static_cast<std::size_t>(row.part) >= kParts)
    return false;
  const Wait& wait = waits_[slot_of(row.row, row.part)];
  return wait.waiting && wait.asked && wait.clock == row.clock;
}

const Codec& Client::codec_of(const RowMessage& row) const {
  return row.part == Part::kWeights ? codecs_.answers(rows_[row.row]) : float32_codec();
}

// Returns whether the answer holds what the weights changed by since the version that came last.
bool Client::is_change(const RowMessage& row) const {
  return row.part == Part::kWeights && row.payload.codec != CodecId::kFloat32 &&
         codecs_.answers_are_changes(rows_[row.row]);
}

// Returns whether an answer with numbers is expected. The answer for a row that this worker alone
// writes has none: it says that the push has come.
bool Client::expects_numbers(const RowMessage& row) const {
  return expects(row) && rows_[row.row].writer != options_.worker;
}

std::span<std::byte> Client::place(RowMessage& row, std::size_t bytes) const {
  if (!expects_numbers(row)) return {};
  const Codec& codec = codec_of(row);
  if (row.payload.codec == CodecId::kFloat32) {
    const auto place = std::as_writable_bytes(destinations_(row.row, row.part).numbers);
    return place.size() == bytes ? place : std::span<std::byte>();
  }
  if (bytes > codec.bound(rows_[row.row].length)) return {};
  return allocate(row.payload, bytes);
}

bool Client::keeps(const RowMessage& row) const {
  return expects_numbers(row) && codec_of(row).id() == CodecId::kFloat32 &&
         destinations_(row.row, row.part).values != nullptr;
}

Status Client::check_row(int server, RowId row, const char* name) const {
  if (row >= rows_.size())
    return broken_by(server, name, " of row ", row, "; there are ", rows_.size());
  if (server_of(row) != server)
    return broken_by(server, name, " of row ", row, ", which is server ", server_of(row), "'s");
  if (!is_own(row))
    return broken_by(server, name, " of row ", row, ", which is not for worker ", options_.worker);
  return {};
}

Result<bool> Client::take(int server, const Message& message) {
  if (const auto* row = std::get_if<RowMessage>(&message)) return handle_row(server, *row);
  if (const auto* need = std::get_if<NeedPush>(&message)) return handle_need(server, *need);
  return broken_by(server, "a ", name_of(message), " to a worker");
}

Result<bool> Client::handle_row(int server, const RowMessage& message) {
  if (message.generation < generation_) return false;
  if (message.generation > generation_)
    return broken_by(server, "Row of generation ", message.generation,
                     "; this worker is in generation ", generation_);
  TRY(check_row(server, message.row, "Row"));
  if (!expects(message)) return false;
  const Slot slot = slot_of(message.row, message.part);
  if (rows_[message.row].writer == options_.worker) {
    arrive(slot, message.version);
    return true;
  }
  const std::uint32_t length = rows_[message.row].length;
  const Result<Values> decoded = decode_with(codec_of(message), message.payload, length);
  if (!decoded.ok())
    return broken_by(server, "Row of row ", message.row, " ", decoded.error().message);
  const std::span<const float> numbers = decoded.value().data;
  const Destination to = destinations_(message.row, message.part);
  CHECK_EQ(to.numbers.size(), length) << "destination of row " << message.row;
  if (is_change(message)) {
    if (message.version != version(message.row) + 1)
      return broken_by(server, "Row of row ", message.row, " says what changed up to version ",
                       message.version, "; this worker has version ", version(message.row));
    std::ranges::transform(to.numbers, numbers, to.numbers.begin(), std::plus());
    if (to.values != nullptr) *to.values = {.data = to.numbers};
    arrive(slot, message.version);
    return true;
  }
  const bool keeps = to.values != nullptr && decoded.value().owner != nullptr;
  if (!keeps && numbers.data() != to.numbers.data()) std::ranges::copy(numbers, to.numbers.begin());
  if (to.values != nullptr) *to.values = keeps ? decoded.value() : Values{.data = to.numbers};
  arrive(slot, message.version);
  return true;
}

void Client::arrive(Slot slot, Version version) {
  Wait& wait = waits_[slot];
  wait.waiting = false;
  wait.say = Say::kNothing;
  if (part_of(slot) != Part::kWeights) return;
  versions_[slot / kParts] = version;
  known_[slot / kParts] = true;
  std::optional<Push>& push = pushes_[slot / kParts];
  if (!push) return;
  // One of the versions since is the push's own, unless it made none.
  if (push->weight == 0 || version <= push->base)
    ++staleness_.drops;
  else
    ++staleness_.pushes[staleness_class(version - push->base - 1)];
  push.reset();
}

// Handles a NeedPush: the server has not got the push, and never will unless it is sent again. A
// push that was acknowledged meanwhile is no longer kept, and one that waits for its turn leaves
// anyhow.
Result<bool> Client::handle_need(int server, const NeedPush& message) {
  if (message.generation < generation_) return false;
  TRY(check_row(server, message.row, "NeedPush"));
  const std::optional<Push>& push = pushes_[own_.find(message.row)];
  if (push && push->clock == message.clock) say(slot_of(message.row, Part::kWeights), Say::kPush);
  return false;
}

Message Client::message_of(Slot slot) const {
  const Wait& wait = waits_[slot];
  const RowId row = row_of(slot);
  if (wait.say == Say::kGet) return Get{row, wait.clock, part_of(slot), generation_};
  Push push = *pushes_[slot / kParts];
  // A push that is sent again may be acknowledged, by the first one's answer, while a link still
  // reads it.
  if (wait.asked) push.payload = owned(push.payload);
  return push;
}

std::optional<Message> Client::next(int server) {
  auto& queue = queues_.at(server);
  while (!queue.empty()) {
    const auto [urgency, row, ticket, slot] = queue.top();
    queue.pop();
    Wait& wait = waits_[slot];
    // The slot was answered before its turn came.
    if (wait.say == Say::kNothing || wait.ticket != ticket) continue;
    Message message = message_of(slot);
    const bool asks_again = wait.hurries && wait.say == Say::kPush;
    wait.say = Say::kNothing;
    wait.asked = true;
    if (asks_again) say(slot, Say::kGet);
    return message;
  }
  return std::nullopt;
}

void Client::link_up(int server) {
  for (Slot slot = 0; slot < waits_.size(); ++slot)
    if (waits_[slot].waiting && server_of(row_of(slot)) == server && waits_[slot].asked &&
        waits_[slot].say == Say::kNothing)
      say(slot, Say::kGet);
}

Result<std::vector<RowId>> Client::lose_server(int server, const std::function<int(int)>& heir_of,
                                               bool may_be_unread) {
  std::vector<Slot> waiting;
  for (Slot slot = 0; slot < waits_.size(); ++slot)
    if (waits_[slot].waiting && server_of(row_of(slot)) == server) waiting.push_back(slot);
  for (std::size_t s = 0; s < routes_.size(); ++s)
    if (routes_[s] == server) routes_[s] = heir_of(static_cast<int>(s));
  queues_.at(server) = {};
  std::vector<RowId> arrived;
  for (const Slot slot : waiting) {
    waits_[slot].say = Say::kNothing;
    if (is_written(row_of(slot))) continue;
    if (server_of(row_of(slot)) != kNoServer) {
      const bool pushes = part_of(slot) == Part::kWeights && pushes_[slot / kParts];
      say(slot, pushes ? Say::kPush : Say::kGet);
      continue;
    }
    if (part_of(slot) == Part::kWeights && !known_[slot / kParts] && !may_be_unread)
      return Error{Code::kPeer, str("row ", row_of(slot), " was never read from server ", server,
                                    ", which is lost, and no other has it")};
    arrive(slot, versions_[slot / kParts]);
    arrived.push_back(row_of(slot));
  }
  return arrived;
}

std::size_t Client::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [row, state] : states_) bytes += state.size_bytes();
  return bytes;
}

std::optional<Client::Overdue> Client::overdue() const {
  const auto since = [](const Wait& wait) { return wait.waiting ? wait.since : Instant::max(); };
  const auto wait = std::ranges::min_element(waits_, {}, since);
  if (wait == waits_.end() || !wait->waiting) return std::nullopt;
  const RowId row = row_of(static_cast<Slot>(wait - waits_.begin()));
  return Overdue{row, server_of(row), wait->clock, wait->since};
}

}  // namespace shoal::table
