#include "shoal/table/link/enrollment.h"

#include "shoal/base/bytes.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

// Connections at a time of processes that ask for a rank.
constexpr std::size_t kMostEnrolling = 4096;

}  // namespace

void Enrollment::opened(std::shared_ptr<Link> link) {
  strand_.post([this, link = std::move(link)] {
    if (links_.size() < kMostEnrolling) links_[link.get()] = link;
  });
}

Status Enrollment::received(Link& link, Message&& message) {
  const Ask* ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kEnroll)
    return broken("A ", name_of(message), " came from a process without a rank.");
  if (ask->clock != static_cast<Clock>(link.peer().incarnation))
    return broken("A process asked for the rank of another: a connection gets one rank.");
  strand_.post([this, known = &link, clock = ask->clock, body = ask->body] {
    const auto found = links_.find(known);
    if (found == links_.end()) return;
    const std::shared_ptr<Link> asks = found->second;
    const Reply reply = [asks, clock](std::string said) {
      asks->send(Answer{Topic::kEnroll, clock, std::move(said)});
    };
    const bool answers =
        body.empty() ? asked_(clock, asks->peer().key, reply) : look_up(body, reply);
    if (!answers) asks->close(true);
  });
  return {};
}

// Answers a process that is started again, and asks whether the job goes on without its rank, which
// is the body: with the rank if it still is a member's, else with kNoRank. Returns false before the
// job has begun, which may wait for that process, and after it is over.
bool Enrollment::look_up(const std::string& body, const Reply& reply) const {
  const RosterBody* const roster = process_.roster();
  if (body.size() != sizeof(Rank) || !roster || process_.over()) return false;
  const auto rank = get_le<Rank>(body);
  const bool is_member =
      rank < roster->processes.size() && !process_.is_gone(rank) &&
      (roster->processes[rank].worker >= 0 || roster->processes[rank].server >= 0);
  std::string answer;
  put_le(answer, is_member ? rank : kNoRank);
  reply(answer);
  return true;
}

}  // namespace shoal::table
