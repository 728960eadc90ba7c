#include "shoal/simulate/failure_account.h"

#include <algorithm>

namespace shoal::simulate {

void FailureAccount::pass(Instant now) {
  active_seconds_ += active_ * to_seconds(now - at_);
  at_ = now;
}

void FailureAccount::lose(Instant now, table::Generation generation) {
  pass(now);
  --active_;
  ++figures_.failures;
  open_.push_back(stops_.size());
  stops_.push_back({.after = generation});
}

std::size_t FailureAccount::asks() {
  open_.push_back(stops_.size());
  stops_.push_back({.joins = true, .after = {}});
  return stops_.size() - 1;
}

void FailureAccount::joins(std::size_t number, Instant now, table::Generation generation) {
  pass(now);
  ++active_;
  ++figures_.returns;
  stops_[number].after = generation - 1;
}

void FailureAccount::gives_up(std::size_t number) {
  ++figures_.failures;
  std::erase(open_, number);
}

void FailureAccount::trains(table::Generation generation) {
  for (const std::size_t number : open_)
    if (Stop& stop = stops_[number]; stop.after && *stop.after < generation) stop.resumed = true;
}

void FailureAccount::updated(Instant now, std::int64_t updates) {
  if (updates == updates_) return;
  const Instant gap = now - updated_;
  const bool was_open = !open_.empty();
  if (!was_open && updates_ > 0) {
    gaps_ += gap;
    gap_count_ += updates - updates_;
  }
  for (const std::size_t number : open_) {
    Stop& stop = stops_[number];
    stop.longest = std::max(stop.longest, gap);
    stop.over = stop.resumed;
  }
  std::erase_if(open_, [this](std::size_t number) { return stops_[number].over; });
  if (was_open && open_.empty()) quiet_since_ = now;
  updates_ = updates;
  updated_ = now;
}

void FailureAccount::step(std::size_t worker, Instant from, Instant to) {
  Steps& steps = steps_[worker];
  steps.all += to - from;
  ++steps.count;
  if (!open_.empty() || from < quiet_since_) return;
  steps.quiet += to - from;
  ++steps.quiet_count;
}

// Returns the mean seconds of a step; of all if none was without a failure.
std::optional<double> FailureAccount::Steps::mean() const {
  if (quiet_count > 0) return to_seconds(quiet) / static_cast<double>(quiet_count);
  if (count > 0) return to_seconds(all) / static_cast<double>(count);
  return std::nullopt;
}

FailureFigures FailureAccount::figures(Instant end, const std::vector<double>& had) {
  pass(end);
  figures_.mean_workers = end > Instant{} ? active_seconds_ / to_seconds(end) : active_;
  const double usual = gap_count_ > 0 ? to_seconds(gaps_) / static_cast<double>(gap_count_) : 0;
  for (const Stop& stop : stops_) {
    if (!stop.over) continue;
    (stop.joins ? figures_.stops_by_returns : figures_.stops_by_failures)
        .push_back(std::max(0.0, to_seconds(stop.longest) - usual));
  }
  double rates = 0;
  int known = 0;
  for (const Steps& steps : steps_)
    if (const std::optional<double> mean = steps.mean(); mean && *mean > 0) {
      rates += 1 / *mean;
      ++known;
    }
  for (std::size_t worker = 0; worker < steps_.size(); ++worker) {
    const std::optional<double> mean = steps_[worker].mean();
    const double rate = mean && *mean > 0 ? 1 / *mean : known > 0 ? rates / known : 0;
    figures_.possible += rate * had[worker];
  }
  return figures_;
}

}  // namespace shoal::simulate
