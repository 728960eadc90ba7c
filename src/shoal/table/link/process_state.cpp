#include "shoal/table/link/process_state.h"

#include <algorithm>

#include "shoal/base/random.h"
#include "shoal/base/sha256.h"
#include "shoal/table/coordinator/difference.h"
#include "shoal/table/link/throttle.h"

namespace shoal::table {
namespace {

Credentials credentials(const ServiceOptions& options) {
  Sha256 configuration;
  configuration.update(parted(options.configuration).first);
  return {.rank = options.rank,
          .incarnation = random_seed(),
          .token = options.token,
          .configuration = configuration.digest(),
          .key = options.key ? options.key : std::make_shared<const SigningKey>()};
}

}  // namespace

ProcessState::ProcessState(const ServiceOptions& given)
    : options(given),
      self(credentials(given)),
      coordinator(given.coordinator_rank),
      throttles(given.throttle > 0 ? std::make_shared<Throttles>(given.throttle) : nullptr) {
  if (self.rank != kNoRank) bind(self.rank, self.key->public_key());
}

void ProcessState::bind(Rank rank, const PublicKey& key) {
  std::function<void()> then;
  {
    MutexLock lock(mutex);
    if (key == PublicKey{} || !keys_.try_emplace(rank, key).second) return;
    then = on_keys_;
  }
  if (then) then();
}

void ProcessState::on_keys(std::function<void()> then) {
  {
    MutexLock lock(mutex);
    on_keys_ = then;
  }
  then();  // some may have come before
}

void ProcessState::know(RosterBody roster) {
  if (options.rank >= roster.processes.size())
    return fail(broken("A Roster has no rank ", options.rank, ", which this process has"));
  std::function<void()> then;
  {
    MutexLock lock(mutex);
    if (!rosters_.empty() && roster.generation <= rosters_.back().generation) return;
    for (const RosterBody::Process& process : roster.processes)
      if (process.key != PublicKey{}) keys_.try_emplace(process.rank, process.key);
    roster_ = &rosters_.emplace_back(std::move(roster));
    changed.notify_all();
    then = on_keys_;
  }
  if (then) then();
}

LinkOptions ProcessState::link_options() const {
  const milliseconds heartbeat =
      std::min(milliseconds(1000), std::max(options.stall_abort / 4, milliseconds(1)));
  return {
      .window = options.window,
      .throttles = throttles,
      .encrypt = options.encrypt,
      .certificates = options.certificates,
      .heartbeat = heartbeat,
      .stall_warn = std::max(std::min(options.stall_warn, options.stall_abort / 2), 2 * heartbeat),
      .stall_abort = options.stall_abort,
      .connect = options.connect,
      .clock = &clock,
      .handover = handover,
      .traffic = traffic,
      .last_words = last_words};
}

std::string ProcessState::address_of(Rank rank) const {
  const RosterBody* const known = roster();
  if (!known || rank >= known->processes.size()) return "";
  const std::string& address = known->processes[rank].address;
  const bool is_here = rank == options.coordinator_rank && is_anywhere(split_address(address).host);
  return is_here ? options.coordinator : address;
}

Clock ProcessState::heard(Rank rank, Clock clock) {
  MutexLock lock(mutex);
  Clock& highest = heard_.try_emplace(rank, clock).first->second;
  return highest = std::max(highest, clock);
}

bool ProcessState::silence_is_news(Rank rank) {
  MutexLock lock(mutex);
  const auto [last, first] = warned_.try_emplace(rank, now());
  const bool due = first || now() - last->second >= 2 * options.stall_warn;
  if (due) last->second = now();
  return due;
}

std::string ProcessState::name_of(Rank rank, Clock clock) {
  clock = heard(rank, clock);
  const RosterBody* known = roster();
  std::string inside;
  if (known && rank < known->processes.size())
    inside = str("host ", known->processes[rank].host);
  else if (rank == 0)
    inside = str("at ", options.coordinator);
  if (clock >= 0) inside += str(inside.empty() ? "" : ", ", "last clock ", clock);
  return inside.empty() ? str("rank ", rank) : str("rank ", rank, " (", inside, ")");
}

void let_run(IoThreads& threads) {
  // Closing posts to a strand, which posts to a link's strand, which writes.
  constexpr int kSteps = 3;
  const Strand strand(threads);
  for (int step = 0; step < kSteps; ++step)
    if (!strand.call([] {}, std::chrono::seconds(1))) return;
}

bool is_anywhere(const std::string& host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

}  // namespace shoal::table
