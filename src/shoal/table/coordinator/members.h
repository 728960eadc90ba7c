// The processes of a job as the coordinator knows them.
#pragma once

#include <algorithm>

#include "shoal/base/text.h"
#include "shoal/table/broken.h"
#include "shoal/table/coordinator/bodies.h"
#include "shoal/table/coordinator/state.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

// A message to the process with this rank.
struct Dispatch {
  Rank rank = 0;
  Message message;
};

// Lines for people.
using Lines = std::vector<std::string>;

struct Member {
  bool joined = false, done = false;
  bool leaving = false, left = false;  // wants to leave, and is still here; has left, or is lost
  std::optional<Clock> asks_to_leave;  // and waits for the answer
  std::int64_t incarnation = 0;
  JoinBody body;
  std::int32_t worker = -1, server = -1;  // numbers, once all have joined
  Clock clock = -1;                       // last heard of
  double weight = 0;                      // as in the roster
  std::optional<double> bandwidth;        // of its server, once something was said of it
  bool told_to_leave = false;             // and it cannot: a warning said so
  void state(auto& io) {
    io(joined, done, leaving, left, asks_to_leave, incarnation, body, worker, server, clock, weight,
       bandwidth, told_to_leave);
  }
  bool works() const { return worker >= 0; }
  bool serves() const { return server >= 0; }
  bool active() const { return works() && !done; }
  bool here() const { return joined && !left; }
};

class Members {
 public:
  explicit Members(std::uint32_t processes) : founding_(processes), members_(processes) {}
  // Gives ranks to the processes that the job begins with, which come without them, except process
  // 0.
  void give_ranks() { next_ = 1; }
  // Returns the next rank of the processes that the job begins with, if they come without ranks.
  // Otherwise returns a rank for a process that joins the running job: founding processes have the
  // smaller ranks. It belongs to the process with this key.
  Rank enroll(const PublicKey& key) {
    const Rank rank = next_ < founding_ ? next_++ : size();
    if (rank == size()) members_.emplace_back();
    members_[rank].body.key = key;
    return rank;
  }
  bool is_founding(std::uint32_t rank) const { return rank < founding_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  Member& operator[](Rank rank) { return members_[rank]; }
  const Member& operator[](Rank rank) const { return members_[rank]; }

  // Returns the ranks, in order, of the processes for which `test` holds.
  std::vector<Rank> which(const std::function<bool(const Member&)>& test) const {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < size(); ++rank)
      if (test(members_[rank])) ranks.push_back(rank);
    return ranks;
  }
  std::vector<Rank> active() const { return which(&Member::active); }
  std::vector<Rank> here() const { return which(&Member::here); }
  std::vector<Rank> workers() const { return which(&Member::works); }
  std::vector<Rank> servers() const { return which(&Member::serves); }
  // Returns the first worker that has not left: the chief, or, if that is lost, the next one.
  Rank chief() const {
    const auto is_here = [](const Member& member) { return member.works() && !member.left; };
    const std::vector<Rank> here = which(is_here);
    return here.empty() ? rank_of_worker(0) : here.front();
  }
  // Makes the first worker a server, too, if none of these processes is one: it keeps the role.
  // Those that the job began with come first, whose addresses others can reach.
  void fill_role_of_server(const std::function<bool(const Member&)>& of) {
    const std::vector<Rank> all = which(of);
    const auto serves = [this](Rank rank) { return members_[rank].body.server; };
    if (all.empty() || std::ranges::any_of(all, serves)) return;
    members_[all.front()].body.server = true;
    warn(name(all.front()) + " holds the params from now on: no server is left");
  }
  void heard(Rank rank, Clock clock) {
    if (rank < size()) members_[rank].clock = std::max(members_[rank].clock, clock);
  }

  // The time of the call that is handled, and the messages that it sends.
  Instant now{};
  void say(Rank rank, Message message) { said_.push_back({rank, std::move(message)}); }
  void move_messages_to(std::vector<Dispatch>& out) {
    std::ranges::move(std::exchange(said_, {}), std::back_inserter(out));
  }
  // Adds a line to the log.
  void warn(std::string line) { warnings_.push_back(std::move(line)); }
  Lines take_warnings() { return std::exchange(warnings_, {}); }
  // As in Coordinator::save.
  void state(auto& io) { io(founding_, next_, members_, now, warnings_); }

  Rank rank_of_worker(std::int32_t worker) const {
    return which([&](const Member& member) { return member.worker == worker; }).at(0);
  }

  // Returns "rank 2 (host b, last clock 498)", as much of it as is known; and several with commas.
  std::string name(Rank rank) const {
    Lines known;
    if (rank < size() && !members_[rank].body.host.empty())
      known.push_back("host " + members_[rank].body.host);
    if (rank < size() && members_[rank].clock >= 0)
      known.push_back(str("last clock ", members_[rank].clock));
    return str("rank ", rank, known.empty() ? "" : " (" + join(known) + ")");
  }
  std::string names(std::span<const Rank> ranks) const {
    Lines words;
    for (const Rank rank : ranks) words.push_back(name(rank));
    return join(words);
  }
  // Returns "barrier 500: waiting for rank 2", of the `ranks` that are not in `said`.
  std::string waiting_for(const std::string& what, std::vector<Rank> ranks,
                          const auto& said) const {
    std::erase_if(ranks, [&](Rank rank) { return said.contains(rank); });
    return str(what, ": waiting for ", names(ranks));
  }
  // Returns the error of a process that breaks the protocol: its name, and `words`.
  template <class... Words>
  Error broken(Rank rank, const Words&... words) const {
    return table::broken(name(rank), words...);
  }

 private:
  std::uint32_t founding_;
  Rank next_ = founding_;  // to be handed out; founding_: none
  std::vector<Member> members_;
  std::vector<Dispatch> said_;
  Lines warnings_;
};

std::string numbers_to_bytes(std::span<const double> numbers);
// The caller has checked that these are whole numbers.
std::vector<double> bytes_to_numbers(std::string_view bytes);
inline bool whole_numbers(std::string_view bytes) { return bytes.size() % sizeof(double) == 0; }

// Returns "sum", for a topic in which workers wait.
const char* name_of(Topic topic);

}  // namespace shoal::table
