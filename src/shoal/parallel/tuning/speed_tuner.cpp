#include "shoal/parallel/tuning/speed_groups.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/base/log.h"

namespace shoal::parallel {

void SpeedGroups::begin(const Phase& phase, const Share& share, const Ahead& ahead) {
  look_after_ = kNever;
  if (!phase.search || phase.search->interval == 0) return;
  const std::vector<double>& weights = share.weights;
  const double part = weights.empty()
                          ? 1.0 / share.clients
                          : weights[0] / std::accumulate(weights.begin(), weights.end(), 0.0);
  if (phase.search->interval)
    look_after_ = *phase.search->interval;
  else if (ahead.records > 0 && ahead.items > 0)
    look_after_ = std::max<std::int64_t>(1, std::llround(ahead.records * part / ahead.items));
  if (look_after_ >= ahead.iterations) look_after_ = kNever;
}

bool SpeedGroups::due() {
  if (speedometer_.iterations() < look_after_) return false;
  look_after_ = kNever;
  return true;
}

Result<std::optional<SpeedGroups::Found>> SpeedGroups::find(const End& end, const Phase& phase,
                                                            const Phase* next) {
  const bool again = phase.search.has_value();
  const Phase* const of = again ? &phase : next && next->search ? next : nullptr;
  if (!of) return std::optional<Found>();
  const bool measured = speedometer_.iterations() > 0;
  if (!again && measured) exchange_ = speedometer_.seconds() - speedometer_.busy();
  const MeasuredWorker own{.busy = measured ? speedometer_.busy() : 0,
                           .exchange = exchange_,
                           .items = end.items,
                           .iteration = end.iteration};
  const Result<Profile> profile = make_profile(end.team, own, *of->search);
  if (!profile.ok()) return profile.error();
  if (again == (profile.value().least >= phase.end)) return std::optional<Found>();
  const std::vector<double>& speeds = profile.value().speeds;
  const Groups& before = end.scheme.groups;
  Groups groups = profile.value().grouping.groups;
  const bool stays = again && !worth_changing(before, groups, speeds);
  LOG(INFO) << "Iteration " << end.iteration << ": " << text_of(profile.value())
            << (stays && before != groups
                    ? "; too little would be gained, it stays " + text_of(before)
                    : "");
  if (stays) groups = before;
  if (end.team.chief() && !stays)
    if (Status status = write(files_, profile.value(), end.roster); !status.ok())
      return status.error();
  Found found{of->scheme, share_weights(groups, speeds)};
  found.scheme.groups = std::move(groups);
  return std::optional(std::move(found));
}

}  // namespace shoal::parallel
