#include "shoal/table/link/throttle.h"

#include <algorithm>

namespace shoal::table {
namespace {

constexpr double kLongestBurst = 0.002;  // seconds of the rate
// So that links take turns, at low rates too: who waits, waits for what the others were granted.
constexpr double kSmallestGrant = 1024, kLargestGrant = 32 * 1024;

}  // namespace

Throttle::Throttle(double bytes_per_second)
    : rate_(bytes_per_second),
      most_(rate_ * kLongestBurst),
      largest_(static_cast<std::size_t>(std::clamp(most_, kSmallestGrant, kLargestGrant))),
      tokens_(most_) {}

void Throttle::fill(Time now) {
  if (filled_ != Time{} && now > filled_)
    tokens_ =
        std::min(most_, tokens_ + rate_ * std::chrono::duration<double>(now - filled_).count());
  filled_ = std::max(filled_, now);
}

std::size_t Throttle::grant(std::size_t wanted, Time now) {
  MutexLock lock(mutex_);
  fill(now);
  if (tokens_ <= 0) return 0;
  const std::size_t granted = std::min(wanted, largest_);
  tokens_ -= static_cast<double>(granted);
  return granted;
}

Throttle::Time Throttle::wait(Time now) {
  MutexLock lock(mutex_);
  fill(now);
  return tokens_ > 0 ? Time{} : Time(static_cast<Time::rep>(-tokens_ / rate_ * 1e9) + 1000);
}

void Throttle::give_back(std::size_t unused) {
  MutexLock lock(mutex_);
  tokens_ += static_cast<double>(unused);
}

}  // namespace shoal::table
