#include "shoal/parallel/exchange/exchange_cost.h"

#include <algorithm>
#include <limits>

#include "shoal/base/log.h"
#include "shoal/parallel/sums/collective.h"

namespace shoal::parallel {
namespace {

constexpr double kNumberBytes = sizeof(float);

// Numbers a server receives, and sends back, per number of a layer. A worker in its process sends
// and receives as many in turn.
double table_load(const JobSize& job) {
  const auto workers = static_cast<double>(job.workers), servers = static_cast<double>(job.servers);
  return job.apart ? std::max(workers / servers, 1.0) : (workers + servers - 2) / servers;
}

// Returns the transfers of a message, one after the other.
int hops_of(const JobSize& job) { return job.relays ? 2 : 1; }

// Predicts a library's sum as halving and doubling, since its algorithm is unknown.
Cost collective_cost(Way of, const LayerSize& size, const JobSize& job, const Rates& rates) {
  const Way way = is_of_library(of) ? Way::kHalvingDoubling : of;
  const int workers = static_cast<int>(job.workers);
  const Load load = load_of(way, workers);
  const auto all = static_cast<double>(size.params);
  const double bytes = is_of_library(of) ? kNumberBytes : size.sum_bytes;
  // A worker sends each number of the vector to all but one, and back.
  const double relayed =
      job.relays ? 2.0 * static_cast<double>(job.writers) * (workers - 1) / workers * all : 0;
  Cost cost{.numbers = 2 * std::max(load.busiest * all, relayed) * bytes / kNumberBytes};
  if (rates.bandwidth <= 0) return cost;
  // The first strip goes all the way. Behind it the busiest worker's link is never idle.
  const double strip =
      static_cast<double>(strips_of(way, workers, static_cast<std::size_t>(size.params)).at(1));
  cost.link = std::max(load.in_turn * strip + load.busiest * (all - strip), relayed) * bytes /
              rates.bandwidth;
  cost.latency = load.rounds * hops_of(job) * rates.latency;
  return cost;
}

}  // namespace

Cost cost_of(Way way, const LayerSize& size, const JobSize& job, const Rates& rates) {
  if (job.workers < 2) return {};
  if (is_collective(way)) return collective_cost(way, size, job, rates);
  const bool by_table = way == Way::kTable;
  CHECK(by_table || size.factors) << "a layer without factors";
  const auto [rows, outputs, inputs] = size.factors.value_or(Factored::Sizes());
  const auto workers = static_cast<double>(job.workers);
  Cost cost;
  const double each_way = static_cast<double>(size.params) * table_load(job);
  if (by_table)
    cost.numbers = each_way * (size.push_bytes + size.pull_bytes) / kNumberBytes;
  else
    cost.numbers = 2.0 * static_cast<double>(rows * (job.workers - 1) * job.writers) *
                   static_cast<double>(outputs + inputs) * size.sum_bytes / kNumberBytes;
  if (rates.bandwidth <= 0) return cost;
  // The two ways of a link do not wait for each other. Factors go both ways alike.
  cost.link = by_table ? each_way * std::max(size.push_bytes, size.pull_bytes) / rates.bandwidth
                       : cost.numbers / 2 * kNumberBytes / rates.bandwidth;
  if (by_table) cost.product = each_way * size.codec_seconds;
  cost.latency = (by_table ? 2 : hops_of(job)) * rates.latency;
  // Each replica would multiply its own rows, beside the others.
  if (!by_table && rates.multiply_adds > 0)
    cost.product = (workers - 1.0 / job.replicas) * static_cast<double>(rows * outputs) *
                   static_cast<double>(inputs) / rates.multiply_adds;
  return cost;
}

bool factors_are_fewer(const Factored::Sizes& sizes, const JobSize& job) {
  const std::int64_t table =
      job.apart ? std::max(job.workers, job.servers) : job.workers + job.servers - 2;
  return sizes.rows * (job.workers - 1) * job.writers * (sizes.outputs + sizes.inputs) *
             job.servers <=
         sizes.outputs * sizes.inputs * table;
}

std::size_t bucket_bytes(const Rates& rates) {
  constexpr double kUsual = 1 << 20, kMessages = 16;
  if (rates.bandwidth <= 0 || rates.latency <= 0) return static_cast<std::size_t>(kUsual);
  return static_cast<std::size_t>(
      std::clamp(kMessages * rates.latency * rates.bandwidth, kUsual / 16, 4 * kUsual));
}

namespace {

// Legs that take turns on a link, each of which comes before all that began earlier.
class LinkTurns {
 public:
  explicit LinkTurns(std::size_t legs) : over_(legs) {}

  // Begins a leg that needs the link for so long from `when` on, which is no earlier than that of
  // the last.
  void begin(std::size_t leg, double when, double takes) {
    run_until(when);
    now_ = std::max(now_, when);
    begun_.push_back({leg, takes});
  }
  // Returns when the last leg is over.
  double finish() {
    run_until(std::numeric_limits<double>::infinity());
    return now_;
  }
  double over(std::size_t leg) const { return over_[leg]; }

 private:
  struct Begun {
    std::size_t leg = 0;
    double left = 0;
  };
  void run_until(double when) {
    while (!begun_.empty() && now_ + begun_.back().left <= when) {
      now_ += begun_.back().left;
      over_[begun_.back().leg] = now_;
      begun_.pop_back();
    }
    if (begun_.empty() || now_ >= when) return;
    begun_.back().left -= when - now_;
    now_ = when;
  }

  std::vector<Begun> begun_;
  std::vector<double> over_;  // by leg
  double now_ = 0;
};

}  // namespace

double Forecast::seconds_of_busy(double busy) const {
  double products = 0;
  for (const Leg& leg : legs) products += leg.cost.product;
  return seconds(std::max(0.0, busy - products));
}

double Forecast::seconds(double compute) const {
  const std::size_t layers = slices.forward.size();
  // Times after the start of the backward passes; `ready` then counts from their end, where the
  // next forward pass begins.
  std::vector<double> complete(layers), ready(layers), product(layers);
  double passed = 0;
  for (std::size_t layer = layers; layer-- > 0;) {
    complete[layer] = passed;  // its gradients are there where its slice begins
    passed += slices.backward[layer] * compute;
  }
  LinkTurns turns(legs.size());
  double norm = 0;  // is known then, if it is limited
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const Leg& leg = legs[i];
    turns.begin(i, complete[static_cast<std::size_t>(leg.layers.back())],
                leg.cost.link - (clips ? leg.answers : 0));
    norm = std::max(norm, leg.cost.latency);
  }
  norm += turns.finish();
  for (std::size_t i = 0; clips && i < legs.size(); ++i) turns.begin(i, norm, legs[i].answers);
  if (clips) turns.finish();
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const Leg& leg = legs[i];
    const double latency = clips && leg.answers == 0 ? 0 : leg.cost.latency;  // else in the norm's
    for (const int layer : leg.layers) ready[layer] = turns.over(i) + latency - passed;
    product[static_cast<std::size_t>(leg.layers.back())] += leg.cost.product;
  }
  double now = slices.begin * compute;
  for (std::size_t layer = 0; layer < layers; ++layer)
    now = std::max(now, ready[layer]) + product[layer] + slices.forward[layer] * compute;
  return now + passed;
}

}  // namespace shoal::parallel
