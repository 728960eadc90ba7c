#include "shoal/table/link/joins.h"

namespace shoal::table {

bool Joins::holds(Rank rank, Message& message) {
  Ask* const ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kJoin) return false;
  Result<JoinBody> join = decode<JoinBody>(ask->body);
  if (!join.ok()) return false;  // the coordinator says so
  if (const auto [host, port] = split_address(join.value().address); is_anywhere(host))
    join.value().address = join_address(hosts_[rank], port);
  join.value().key = process_.key_of(rank).value_or(PublicKey{});
  ask->body = encode(join.value());
  const std::string& address = join.value().address;
  if (rank < process_.options.processes || !join.value().server) {
    reach(strand_, address, process_.options.connect, [this, rank](const Status& status) {
      if (status.ok()) process_.note_reached(rank);
    });
    return false;
  }
  const auto [known, is_new] = dialled_.try_emplace(rank, false);
  if (!is_new) return !known->second;
  reach(strand_, address, process_.options.connect, [this, rank, message](const Status& status) {
    dialled_[rank] = status.ok();
    if (!status.ok()) return refused_(rank, status.error().message);
    process_.note_reached(rank);
    reached_(rank, message);
  });
  return true;
}

}  // namespace shoal::table
