#include "shoal/parallel/phases.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "shoal/proto/config_error.h"

namespace shoal::parallel {
namespace {

// A phase whose groups are to be found stands for what it is with any.
std::unique_ptr<table::Scheme> scheme_of(const Phase& phase) {
  table::SchemeSpec spec = phase.scheme;
  if (phase.search) spec.groups = {{0}};
  return or_throw(spec.make());
}

}  // namespace

bool shares_iterations(const Phase& phase) { return scheme_of(phase)->task().shared; }

std::int64_t come_to(const Phase& phase, const std::vector<std::int64_t>& iterations, int workers) {
  const auto scheme = scheme_of(phase);
  if (scheme->bounded() || iterations.size() != static_cast<std::size_t>(std::max(1, workers)))
    return iterations[0];
  if (!scheme->task().shared) return std::ranges::min(iterations);
  return std::accumulate(iterations.begin(), iterations.end(), std::int64_t{0}) /
         static_cast<std::int64_t>(iterations.size());
}

std::vector<Phase> alone(std::vector<Phase> phases) {
  const auto same = [](const Phase& one, const Phase& next) {
    return one.own == next.own && one.batch_size == next.batch_size;
  };
  for (std::size_t i = 1; i < phases.size();) {
    if (same(phases[i - 1], phases[i]))
      phases.erase(phases.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    else
      ++i;
  }
  return phases;
}

std::vector<Phase> with_profile(std::vector<Phase> phases, std::size_t at, std::int64_t end) {
  if (!phases[at].search) return phases;
  phases.insert(phases.begin() + static_cast<std::ptrdiff_t>(at), profile_of(phases[at], end));
  return phases;
}

bool has_search(const std::vector<Phase>& phases) {
  return std::ranges::any_of(phases, [](const Phase& phase) { return phase.search.has_value(); });
}

std::size_t phase_at(const std::vector<Phase>& phases, std::size_t at, std::int64_t from) {
  while (at + 1 < phases.size() && from >= phases[at].end) ++at;
  return at;
}

}  // namespace shoal::parallel
