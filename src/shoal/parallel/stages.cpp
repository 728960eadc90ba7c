#include "shoal/parallel/stages.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "shoal/proto/config_error.h"

namespace shoal::parallel {
namespace {

// A phase whose groups are to be found stands for what it is with any.
std::unique_ptr<table::Scheme> scheme_of(const Stage& stage) {
  table::SchemeSpec spec = stage.scheme;
  if (stage.search) spec.groups = {{0}};
  return or_throw(spec.make());
}

}  // namespace

bool shares_iterations(const Stage& stage) { return scheme_of(stage)->task().shared; }

std::int64_t come_to(const Stage& stage, const std::vector<std::int64_t>& iterations, int workers) {
  const auto scheme = scheme_of(stage);
  if (scheme->bounded() || iterations.size() != static_cast<std::size_t>(std::max(1, workers)))
    return iterations[0];
  if (!scheme->task().shared) return std::ranges::min(iterations);
  return std::accumulate(iterations.begin(), iterations.end(), std::int64_t{0}) /
         static_cast<std::int64_t>(iterations.size());
}

std::vector<Stage> stages_of(const std::vector<Phase>& phases) {
  std::vector<Stage> stages;
  std::int64_t end = 0;
  for (const Phase& phase : phases) stages.push_back({phase, end += phase.iterations});
  if (stages.empty()) stages.push_back({});
  return stages;
}

std::vector<Stage> alone(std::vector<Stage> stages) {
  const auto same = [](const Stage& one, const Stage& next) {
    return one.base_lr == next.base_lr && one.test_interval == next.test_interval;
  };
  for (std::size_t i = 1; i < stages.size();) {
    if (same(stages[i - 1], stages[i]))
      stages.erase(stages.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    else
      ++i;
  }
  return stages;
}

std::vector<Stage> with_profile(std::vector<Stage> stages, std::size_t at, std::int64_t end) {
  if (!stages[at].search) return stages;
  Stage profile = stages[at];
  profile.scheme = {.name = kProfile};
  profile.search.reset();
  profile.end = std::min(profile.end, end);
  stages.insert(stages.begin() + static_cast<std::ptrdiff_t>(at), std::move(profile));
  return stages;
}

bool has_search(const std::vector<Stage>& stages) {
  return std::ranges::any_of(stages, [](const Stage& stage) { return stage.search.has_value(); });
}

std::size_t stage_at(const std::vector<Stage>& stages, std::size_t at, std::int64_t from) {
  while (at + 1 < stages.size() && from >= stages[at].end) ++at;
  return at;
}

}  // namespace shoal::parallel
