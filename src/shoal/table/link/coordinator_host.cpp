#include "shoal/table/link/coordinator_host.h"

#include "shoal/base/log.h"
#include "shoal/base/timer.h"
#include "shoal/base/try.h"
#include "shoal/table/wire/layout.h"

namespace shoal::table {
namespace {

// Returns the message as a process that has connected is told it.
Message as_said(const Message& message) {
  if (const Refuse* refuse = std::get_if<Refuse>(&message))
    return Directive{.kind = DirectiveKind::kAbort, .code = refuse->code, .text = refuse->reason};
  return message;
}

}  // namespace

CoordinatorHost::CoordinatorHost(ProcessState& process, IoThreads& threads,
                                 std::function<void(Message)> own)
    : process_(process),
      strand_(threads),
      own_(std::move(own)),
      coordinates_(process.options.rank == 0),
      coordinator_(make()),
      peers_(process, strand_, Purpose::kCoordination, *this),
      leaders_(process, strand_, Purpose::kStandby, *this),
      losses_(process, strand_, peers_,
              [this](Rank rank, const Error& error) { lose_now(rank, error); }),
      joins_(
          process, strand_,
          [this](Rank rank, Message message) { handle(rank, std::move(message)); },
          [this](Rank rank, const std::string& why) { refuse(rank, why); }),
      enrollment_(process, strand_,
                  [this](Clock incarnation, const PublicKey& key, const Enrollment::Reply& reply) {
                    return enroll(incarnation, key, reply);
                  }),
      standbys_(
          process, strand_,
          [this](Rank rank, const Error& error) { lose(rank, error.code, error.message); },
          [this] { note_standbys(); }),
      ranks_(process.options.processes),
      missing_(coordinator_->missing()) {
  if (coordinates_) strand_.after(process.options.stall_warn, [this] { watch(); });
}

std::unique_ptr<Coordinator> CoordinatorHost::make() const {
  return std::make_unique<Coordinator>(
      CoordinatorOptions{.processes = process_.options.processes,
                         .seed = process_.options.seed,
                         .ranks_by_order = process_.options.ranks_by_order,
                         .scheme = process_.options.scheme,
                         .losses = process_.options.losses,
                         .silence = process_.options.stall_abort});
}

void CoordinatorHost::close(bool with_bye) {
  for (const Peers* peers : {&peers_, &leaders_}) peers->close(with_bye);
  standbys_.close(with_bye);
  enrollment_.close(with_bye);
}

// Gives a process a rank, or the address of the coordinator.
bool CoordinatorHost::enroll(Clock incarnation, const PublicKey& key,
                             const Enrollment::Reply& reply) {
  std::string body;
  if (!coordinates_) {
    put_le(body, kNoRank);
    return reply(body + process_.where_coordinator_is()), true;
  }
  // A process that asks again, after its connection broke, has its rank.
  const bool is_new = !enrolled_.contains(incarnation);
  if (is_new && coordinator_->processes() >= wire::kMaxProcesses) {
    LOG(WARNING) << "a job has at most " << wire::kMaxProcesses << " processes: one is refused";
    return false;
  }
  if (is_new)
    (void)happened({.kind = RecordKind::kEnrolled,
                    .count = static_cast<std::uint64_t>(incarnation),
                    .bytes = std::string(chars_of(key))});
  put_le(body, enrolled_.at(incarnation));
  standbys_.when_kept([reply, body] { reply(body); });
  return true;
}

// ---- peers ----

Status CoordinatorHost::received(Peer& peer, Message&& message) {
  if (peer.purpose() == Purpose::kStandby) return record(peer.rank(), message);
  if (!coordinates_)
    early_.emplace_back(peer.rank(), std::move(message));
  else
    handle(peer.rank(), std::move(message));
  return {};
}

void CoordinatorHost::up(Peer& peer, bool) {
  if (peer.purpose() != Purpose::kCoordination) return;
  if (const std::shared_ptr<Link> link = peer.link())
    joins_.come_from(peer.rank(), split_address(link->peer().address).host);
  if (coordinates_) return;
  try_to_take_over();
  // If there is nothing to take over the process looks elsewhere.
  strand_.after(3 * process_.options.stall_abort, [this, &peer] {
    if (!coordinates_) peer.close(true);
  });
}

void CoordinatorHost::refuse(Rank rank, const std::string& why) {
  (void)happened(
      {.kind = RecordKind::kSaid, .rank = rank},
      Refuse{Code::kPeer, str("the coordinator cannot reach the server that wants to join: ", why,
                              " Give an address that all others reach (--advertise), or join with "
                              "--role=worker.")});
}

void CoordinatorHost::handle(Rank rank, Message message) {
  if (joins_.holds(rank, message)) return;
  const auto* const loss = std::get_if<Directive>(&message);
  if (loss && loss->kind == DirectiveKind::kLost && is_own(rank))
    return lose(static_cast<Rank>(loss->clock), loss->code, loss->text);
  hear_clocks();
  if (loss) record_clock(static_cast<Rank>(loss->clock));
  Record record{.kind = RecordKind::kMessage, .rank = rank};
  if (!is_own(rank)) record.count = peers_[rank].channel().counted();
  const Status status = happened(std::move(record), message);
  for (const std::string& line : coordinator_->take_warnings()) LOG(WARNING) << line;
  if (process_.options.on_round)
    if (const std::string round = coordinator_->take_round(); !round.empty())
      process_.options.on_round(round);
  if (!status.ok()) return lose(rank, status.error().code, status.error().message);
  MutexLock lock(process_.mutex);
  missing_ = coordinator_->missing();
}

void CoordinatorHost::lose(Rank rank, Code code, const std::string& why) {
  // Only a coordinator gives ranks: if somebody has one that this one never gave, there is another.
  if (says_removed(why) || finds_rank_beyond(why, ranks_))
    return process_.fail({code, str(process_.name_of(process_.options.rank), kRemoved, ": ", why)});
  losses_.look(rank, {code, why});
}

void CoordinatorHost::lose_now(Rank rank, const Error& error) {
  hear_clocks();
  record_clock(rank);
  (void)happened(
      {.kind = RecordKind::kLost, .rank = rank, .code = error.code, .bytes = error.message});
  for (const std::string& line : coordinator_->take_warnings()) LOG(WARNING) << line;
}

// Applies what has happened, and tells the processes what follows once the standbys know of it.
Status CoordinatorHost::happened(Record record, const Message& message) {
  record.at = time();
  if (record.kind == RecordKind::kMessage || record.kind == RecordKind::kSaid)
    record.bytes = encode(message, 0).head;
  std::vector<Dispatch> out;
  const Status status = apply(record, message, out);
  standbys_.add(record);
  Held held{.out = std::move(out)};
  if (record.kind == RecordKind::kMessage && !is_own(record.rank))
    held.from = record.rank, held.received = peers_[record.rank].channel().received();
  held_.push_back(std::move(held));
  standbys_.when_kept([this] { say_held(); });
  paused();
  return status;
}

void CoordinatorHost::say_held() {
  Held held = std::move(held_.front());
  held_.pop_front();
  if (held.from != kNoRank) peers_[held.from].channel().count(held.received);
  dispatch(held.out);
}

// Does what a standby does, too. `message` is that of the record.
Status CoordinatorHost::apply(const Record& record, const Message& message,
                              std::vector<Dispatch>& out) {
  switch (record.kind) {
    case RecordKind::kState:
    case RecordKind::kAttached: return {};
    case RecordKind::kMessage: {
      const Status status = coordinator_->handle(record.rank, message, record.at, out);
      if (const Ask* ask = std::get_if<Ask>(&message); ask && ask->topic == Topic::kJoin)
        process_.bind(record.rank, coordinator_->key_of(record.rank));
      if (const Directive* directive = std::get_if<Directive>(&message))
        tell_too(static_cast<Rank>(directive->clock), record.rank, out);
      return status;
    }
    case RecordKind::kLost:
      coordinator_->lost(record.rank, record.code, record.bytes, record.at, out);
      tell_too(record.rank, ranks_, out);  // no process reported it
      return {};
    case RecordKind::kEnrolled: {
      const Rank rank = coordinator_->enroll(record.key());
      enrolled_[static_cast<Clock>(record.count)] = rank;
      process_.bind(rank, record.key());
      ranks_ = coordinator_->processes();
      return {};
    }
    case RecordKind::kSaid: out.push_back({record.rank, message}); return {};
    case RecordKind::kStandbys: coordinator_->coordinates(record.rank, record.count > 0); return {};
    case RecordKind::kHeard:
      coordinator_->heard(record.rank, static_cast<Clock>(record.count));
      return {};
  }
  return {};
}

void CoordinatorHost::hear_clocks() {
  coordinator_->heard(process_.options.rank, process_.clock);
  for (const Peer* const peer : peers_.all())
    coordinator_->heard(peer->rank(), process_.heard(peer->rank(), peer->heard_clock()));
}

// Tells a process that another has lost, if it is still connected with the coordinator.
void CoordinatorHost::tell_too(Rank lost, Rank reporter, std::vector<Dispatch>& out) const {
  if (out.empty() || lost == reporter || !knows(lost)) return;
  if (std::none_of(out.begin(), out.end(), [&](const Dispatch& one) { return one.rank == lost; }))
    out.push_back({lost, out.front().message});
}

void CoordinatorHost::dispatch(const std::vector<Dispatch>& out) {
  for (const Dispatch& one : out) {
    if (is_own(one.rank))
      own_(as_said(one.message));
    else if (one.rank != leader_)
      peers_[one.rank].send_surely(as_said(one.message));
  }
  paused();
}

void CoordinatorHost::paused() {
  const bool idle =
      !coordinates_ || (standbys_.idle() && std::ranges::all_of(peers_.all(), &Peer::idle));
  MutexLock lock(process_.mutex);
  process_.host_idle = idle;
  process_.changed.notify_all();
}

// Warns of what the job waits for, if that is the same as stall_warn ago.
void CoordinatorHost::watch() {
  hear_clocks();
  std::string waited_for = process_.roster() ? coordinator_->waiting_for() : "";
  if (!waited_for.empty() && waited_for == waited_for_ && !process_.over())
    LOG(WARNING) << waited_for;
  waited_for_ = std::move(waited_for);
  strand_.after(process_.options.stall_warn, [this] { watch(); });
}

// ---- a standby ----

Record CoordinatorHost::save() {
  std::map<Rank, Conversation> conversations;
  for (Peer* const peer : peers_.all()) conversations[peer->rank()] = peer->channel().save();
  for (const Held& held : held_)
    for (const Dispatch& one : held.out)
      if (!is_own(one.rank))
        conversations[one.rank].uncounted.push_back(encode(as_said(one.message), 0).head);
  StateWriter io;
  io(coordinator_->save(), enrolled_, conversations);
  return {
      .kind = RecordKind::kState, .rank = process_.options.rank, .at = time(), .bytes = io.take()};
}

Status CoordinatorHost::load(const Record& state) {
  std::string coordinator;
  std::map<Rank, Conversation> conversations;
  StateReader io(state.bytes);
  io(coordinator, enrolled_, conversations);
  if (!io.ok())
    return broken("The state of the coordinator in rank ", state.rank, ", ", state.bytes.size(),
                  " bytes, cannot be read: is it another build?");
  leader_ = state.rank;
  is_attached_ = false;
  coordinator_ = make();
  TRY(coordinator_->load(coordinator));
  ranks_ = coordinator_->processes();
  for (Rank rank = 0; rank < ranks_; ++rank) process_.bind(rank, coordinator_->key_of(rank));
  for (const auto& [rank, conversation] : conversations)
    TRY(peers_[rank].channel().load(conversation));
  return {};
}

Status CoordinatorHost::record(Rank from, const Message& message) {
  const Ask* const piece = std::get_if<Ask>(&message);
  if (!piece || piece->topic != Topic::kRecord)
    return broken("A ", name_of(message), " came instead of a coordinator's record.");
  if (coordinates_) return {};
  const Result<std::optional<Record>> record = pieces_[from].take(*piece);
  TRY(record);
  if (!record.value()) return {};
  // A coordinator that was stopped, and has a successor, may go on with its records.
  if (from != leader_ && record.value()->kind != RecordKind::kState) return {};
  const Status status = follow(*record.value());
  if (!status.ok())
    LOG(WARNING) << "this process can no longer take the coordinator's place: "
                 << status.error().message;
  return status;
}

// Does what the coordinator does, but tells nobody: what it would say is kept until it is counted.
Status CoordinatorHost::follow(const Record& record) {
  ahead_ = record.at - now();
  if (record.kind == RecordKind::kState) return load(record);
  if (record.kind == RecordKind::kAttached) {
    is_attached_ = true;
    return {};
  }
  Message message = Bye();
  if (record.kind == RecordKind::kMessage || record.kind == RecordKind::kSaid) {
    Result<Message> said = decode(record.bytes, Stage::kPeer);
    TRY(said);
    message = std::move(said).value();
  }
  if (record.kind == RecordKind::kMessage && record.rank != leader_) {
    // The process may have come here, and said it again, before this record of it.
    const auto again = std::ranges::find(early_, record.rank, &std::pair<Rank, Message>::first);
    if (again != early_.end())
      early_.erase(again);
    else
      peers_[record.rank].channel().replay();
    peers_[record.rank].channel().forget(record.count);
  }
  std::vector<Dispatch> out;
  (void)apply(record, message, out);  // an error is followed by another record
  (void)coordinator_->take_warnings();
  (void)coordinator_->take_round();
  dispatch(out);
  return {};
}

void CoordinatorHost::choose_standbys() {
  const RosterBody* const roster = process_.roster();
  if (coordinates_ && roster && process_.options.losses.goes_on)
    standbys_.choose(*roster, [this] { return save(); });
}

void CoordinatorHost::stand(Rank rank, const Error& why, bool is_proof) {
  if (coordinates_) return;
  lost_ = Lost{rank, why, is_proof && !losses_.has_slept()};
  try_to_take_over();
  strand_.after(process_.options.stall_abort, [this] {
    if (!coordinates_)
      process_.fail(
          {Code::kRequeue,
           str("lost the coordinator, ", process_.name_of(lost_->rank), ": ", lost_->why.message,
               " This process cannot take its place: half or more of the processes have "
               "not come here, and may go on without it. It can join them again.")});
  });
}

// Silence alone is no proof that the coordinator is dead: on its side of a broken network the job
// may go on. So more than half of the last generation's processes must be on this side.
void CoordinatorHost::try_to_take_over() {
  const RosterBody* const roster = coordinator_->roster();
  if (!lost_ || coordinates_ || !roster) return;
  std::size_t here = 1, all = 0;
  for (const RosterBody::Process& process : roster->processes) {
    if (process.worker < 0 && process.server < 0) continue;
    ++all;
    here += process.rank != process_.options.rank && peers_[process.rank].link() ? 1 : 0;
  }
  if (lost_->is_proof || 2 * here > all) take_over();
}

void CoordinatorHost::take_over() {
  coordinates_ = true;
  process_.coordinator = process_.options.rank;
  const Lost lost = *std::exchange(lost_, {});
  LOG(WARNING) << "lost " << process_.name_of(lost.rank)
               << ", which coordinated the job: " << lost.why.message << " This process, rank "
               << process_.options.rank << ", coordinates it from now on";
  // Another that was asked first may be lost since.
  const std::set<Rank> all{lost.rank, std::exchange(leader_, kNoRank)};
  for (const Rank rank : all) standbys_.let_go(rank);
  choose_standbys();
  for (const Rank rank : all) lose(rank, lost.why.code, lost.why.message);
  for (auto& [rank, message] : std::exchange(early_, {})) handle(rank, std::move(message));
  expect_all(3 * process_.options.stall_abort);
  strand_.after(process_.options.stall_warn, [this] { watch(); });
}

// Counts processes out that have not found the way here in time.
void CoordinatorHost::expect_all(milliseconds within) {
  strand_.after(within, [this, within] {
    const RosterBody* const roster = coordinator_->roster();
    if (process_.over() || !roster) return;
    for (const RosterBody::Process& process : roster->processes)
      if ((process.worker >= 0 || process.server >= 0) && !peers_[process.rank].link() &&
          process.rank != process_.options.rank && !process_.is_gone(process.rank))
        lose(process.rank, Code::kTimeout,
             str("it has not found the new coordinator within ", to_seconds(within), " s."));
  });
}

}  // namespace shoal::table
