#include "shoal/parallel/tuning/speed_tuner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/base/try.h"

namespace shoal::parallel {

void SpeedTuner::begin(const Phase& phase, const Share& share, const Ahead& ahead) {
  look_after_ = kNever;
  if (!phase.search && (!shares_ || share.clients == 1)) return;
  constexpr std::int64_t kFirst = 30;  // iterations before the first look at shares, at most
  const std::optional<std::int64_t> interval = (phase.search ? phase.search : shares_)->interval;
  const bool first = !phase.search && std::exchange(looked_at_, share.clients) != share.clients;
  if (interval == 0 && !first) return;
  const std::vector<double>& weights = share.weights;
  const double part = weights.empty()
                          ? 1.0 / share.clients
                          : weights[0] / std::accumulate(weights.begin(), weights.end(), 0.0);
  if (interval.value_or(0) > 0)
    look_after_ = *interval;
  else if (!interval && ahead.records > 0 && ahead.items > 0)
    look_after_ = std::max<std::int64_t>(1, std::llround(ahead.records * part / ahead.items));
  if (first) look_after_ = std::min(look_after_, kFirst);
  if (look_after_ >= ahead.iterations) look_after_ = kNever;
}

bool SpeedTuner::due() {
  if (speedometer_.iterations() < look_after_) return false;
  look_after_ = kNever;
  return true;
}

Result<Profile> SpeedTuner::measure(const End& end, const GroupSearch& search) const {
  const bool measured = speedometer_.iterations() > 0;
  const MeasuredWorker own{.busy = measured ? speedometer_.busy() : 0,
                           .exchange = exchange_,
                           .items = end.items,
                           .iteration = end.iteration};
  return make_profile(end.team, own, search);
}

Result<std::optional<SpeedTuner::Found>> SpeedTuner::find_shares(const End& end) const {
  const Result<Profile> profile = measure(end, {});
  TRY(profile);
  const std::vector<double>& speeds = profile.value().speeds;
  std::vector<double> before = end.weights;
  if (before.empty()) before.assign(speeds.size(), 1);
  const bool stays = !worth_changing(before, speeds);
  LOG(INFO) << "Iteration " << end.iteration << ": speeds " << numbers_text(speeds)
            << " items/s; shares of the data " << percent_text(stays ? before : speeds)
            << (stays ? ", as before" : ", before " + percent_text(before));
  return std::optional(Found{.scheme = {}, .weights = stays ? end.weights : speeds});
}

Result<std::optional<SpeedTuner::Found>> SpeedTuner::find(const End& end, const Phase& phase,
                                                          const Phase* next) {
  const bool again = phase.search.has_value();
  const Phase* const of = again ? &phase : next && next->search ? next : nullptr;
  if (!of) return shares_ ? find_shares(end) : std::optional<Found>();
  if (!again && speedometer_.iterations() > 0)
    exchange_ = speedometer_.seconds() - speedometer_.busy();
  const Result<Profile> profile = measure(end, *of->search);
  TRY(profile);
  if (again == (profile.value().least >= phase.end)) return std::optional<Found>();
  const std::vector<double>& speeds = profile.value().speeds;
  const Groups before = end.scheme.groups.value_or(Groups());
  Groups groups = profile.value().grouping.groups;
  const bool stays = again && !worth_changing(before, groups, speeds);
  LOG(INFO) << "Iteration " << end.iteration << ": " << text_of(profile.value())
            << (stays && before != groups
                    ? "; the gain is too small to change from " + text_of(before)
                    : "");
  if (stays) groups = before;
  if (end.team.chief() && !stays) TRY(write(files_, profile.value(), end.roster));
  Found found{of->scheme, share_weights(groups, speeds)};
  found.scheme->groups = std::move(groups);
  return std::optional(std::move(found));
}

}  // namespace shoal::parallel
