#include "shoal/table/link/loss_check.h"

#include "shoal/table/broken.h"

namespace shoal::table {

void LossCheck::look(Rank rank, const Error& error) {
  const auto [here, all] = heard();
  const bool may_be_cut_off = error.code == Code::kTimeout && 2 * here < all;
  if (may_be_cut_off || !silent_.empty()) {
    // The others' silence ends within a heartbeat of this one's, or somebody is heard.
    if (silent_.empty()) strand_.after(process_.options.stall_abort / 2, [this] { decide(); });
    silent_.emplace(rank, error);
  } else if (sleep_.has_slept()) {
    // Others may have counted this process out, and say so in a moment.
    strand_.after(process_.options.stall_abort / 4, [this, rank, error] {
      if (!process_.over()) lost_(rank, error);
    });
  } else {
    lost_(rank, error);
  }
}

std::pair<std::size_t, std::size_t> LossCheck::heard() const {
  const RosterBody* const roster = process_.roster();
  if (!roster) return {1, 1};
  std::size_t here = 0, all = 0;
  for (const RosterBody::Process& process : roster->processes) {
    const bool takes_part = process.worker >= 0 || process.server >= 0;
    if (!takes_part || process_.is_gone(process.rank)) continue;
    ++all;
    const bool is_heard = process.rank == process_.options.rank ||
                          (!silent_.contains(process.rank) && peers_[process.rank].link() &&
                           !peers_[process.rank].was_silent());
    here += is_heard ? 1 : 0;
  }
  return {here, all};
}

void LossCheck::decide() {
  if (process_.over()) return;
  const auto [here, all] = heard();
  const std::map<Rank, Error> silent = std::exchange(silent_, {});
  if (2 * here >= all) {
    for (const auto& [rank, error] : silent)
      if (!process_.over()) lost_(rank, error);
    return;
  }
  const auto& [rank, error] = *silent.begin();
  process_.fail({Code::kRequeue,
                 str("of ", all, " processes ", here, " are heard, ", process_.name_of(rank),
                     " is not: ", error.message,
                     " The silent ones may go on without these: this side of the network ends, and "
                     "can join the others again.")});
}

}  // namespace shoal::table
