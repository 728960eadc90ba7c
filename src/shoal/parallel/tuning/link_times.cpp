#include "shoal/parallel/tuning/link_times.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "shoal/base/timer.h"
#include "shoal/base/try.h"
#include "shoal/ops/gemm.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/exchange/codec_choice.h"
#include "shoal/parallel/job/plan.h"
#include "shoal/table/coordinator.h"

namespace shoal::parallel {
namespace {

using table::RowId;

constexpr std::size_t kRowsEach = 4;  // on a server: a MiB
constexpr int kProbers = 3;

table::Plan rows_of(const table::RosterBody& roster, const table::SchemeSpec& scheme) {
  std::vector<table::Row> rows;
  for (std::uint16_t server = 0; server < servers_of(roster); ++server)
    rows.insert(rows.end(), kRowsEach, table::Row{.length = table::kRowFloats, .server = server});
  return plan_of(Recipe(), rows, roster, 0, clocks_of(roster),
                 {.scheme = scheme, .generation = roster.generation});
}

// Returns the seconds of a call.
Result<double> time_of(const table::Table& table, const std::function<Status()>& call) {
  const table::Instant start = table.now();
  TRY(call());
  return to_seconds(table.now() - start);
}

// Returns the seconds of reading these rows as of this worker's first clock.
Result<double> time_of_reading(table::Table& table, const table::Plan& plan,
                               std::span<const RowId> rows) {
  return time_of(table, [&] {
    for (const RowId row : rows)
      table.get(row, plan.start_of(table.worker()), table::Part::kWeights);
    return table.wait(rows);
  });
}

class Probe {
 public:
  Probe(table::Table& table, const table::SchemeSpec& scheme)
      : table_(table),
        plan_(rows_of(table.roster(), scheme)),
        numbers_(plan_.rows.size(), std::vector<float>(table::kRowFloats)) {}

  // Measures as measure_servers does, but for the release.
  Result<std::vector<double>> run(Team& team) {
    const auto numbers = [this](RowId row, table::Part) { return std::span<float>(numbers_[row]); };
    TRY(table_.create(plan_, numbers, numbers));
    std::vector<double> fastest(plan_.servers);
    for (int prober = 0; prober < std::min(kProbers, team.size()); ++prober) {
      std::vector<double> seen(fastest.size());
      for (const auto& process : table_.roster().processes) {
        if (team.index() != prober || process.server < 0 || process.worker == prober) continue;
        const auto server = static_cast<std::size_t>(process.server);
        const Result<double> speed = measure(server);
        TRY(speed);
        seen[server] = speed.value();
      }
      // Only one of the numbers added is not 0. No worker goes on before the sum is there.
      TRY(team.sum(seen));
      for (std::size_t server = 0; server < seen.size(); ++server)
        fastest[server] = std::max(fastest[server], seen[server]);
    }
    return fastest;
  }

 private:
  // Returns the bytes a second from a server: the most of some readings, or the result of one
  // reading that is long enough for a short delay not to matter.
  Result<double> measure(std::size_t server) {
    constexpr int kReadings = 4;
    constexpr double kLong = 1;  // second
    std::vector<RowId> rows;
    for (RowId row = 0; row < plan_.rows.size(); ++row)
      if (plan_.rows[row].server == server) rows.push_back(row);
    double least = std::numeric_limits<double>::infinity(), sum = 0;
    for (int reading = -1; reading < kReadings && sum < kLong; ++reading) {
      const Result<double> seconds = time_of_reading(table_, plan_, rows);
      TRY(seconds);
      if (reading < 0) continue;  // the way is warm when it counts
      least = std::min(least, seconds.value());
      sum += seconds.value();
    }
    return static_cast<double>(rows.size() * table::kRowFloats * sizeof(float)) /
           std::max(1e-9, least);
  }

  table::Table& table_;
  const table::Plan plan_;
  std::vector<std::vector<float>> numbers_;  // by row
};

}  // namespace

RowSample sample_of(std::span<const table::Row> rows, int servers) {
  constexpr std::size_t kEnough = 256 * 1024;  // numbers
  RowSample sample;
  std::vector<std::size_t> taken(static_cast<std::size_t>(servers));
  std::size_t all = 0, sum = 0;
  for (table::RowId row = 0; row < rows.size(); ++row) {
    all += rows[row].length;
    if (taken[rows[row].server] >= kEnough / taken.size()) continue;
    taken[rows[row].server] += rows[row].length;
    sum += rows[row].length;
    sample.rows.push_back(row);
  }
  sample.share = static_cast<double>(sum) / static_cast<double>(std::max<std::size_t>(1, all));
  return sample;
}

Result<double> measure_exchange(table::Table& table, const table::Plan& plan) {
  const RowSample sample = sample_of(plan.rows, plan.servers);
  Result<double> seconds = 0.0;
  for (int worker = 0; worker < plan.workers; ++worker) {
    if (worker == table.worker()) seconds = time_of_reading(table, plan, sample.rows);
    TRY(seconds);
    const Result<std::string> all =
        table.ask(table::Topic::kBarrier, table::end_of_turn(plan.generation, worker), {});
    TRY(all);
  }
  return seconds.value() / sample.share;
}

Result<std::vector<double>> measure_servers(table::Table& table, Team& team,
                                            const table::SchemeSpec& scheme) {
  Probe probe(table, scheme);
  Result<std::vector<double>> fastest = probe.run(team);
  if (!fastest.ok()) table.release();  // before the numbers go
  return fastest;
}

namespace {

double measure_multiply_adds(const table::Table& table, const Context::Options& options) {
  constexpr std::int64_t kSide = 512;
  constexpr int kProducts = 4;
  Context context(options);
  Tensor a({kSide, kSide}), b({kSide, kSide}), c({kSide, kSide});
  for (Tensor* const one : {&a, &b}) ops::fill(context, 1, *one);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kProducts; ++i) {
    const auto seconds = time_of(table, [&]() -> Status {
      ops::gemm(context, ops::Trans::kNo, ops::Trans::kYes, kSide, kSide, kSide, 1, a, b, 0, c);
      (void)c.host();  // a device is through
      return {};
    });
    least = std::min(least, seconds.value());
  }
  return std::pow(static_cast<double>(kSide), 3) / std::max(1e-9, least);
}

// Returns the seconds of the shortest of a few calls of all workers together.
Result<double> least_of(const table::Table& table, Team& team, int calls,
                        const std::function<Status()>& call) {
  double nothing[] = {0}, least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < calls; ++i) {
    TRY(team.sum(nothing));
    const Result<double> seconds = time_of(table, call);
    TRY(seconds);
    least = std::min(least, seconds.value());
  }
  return least;
}

}  // namespace

Result<Rates> measure_rates(const table::Table& table, Team& team,
                            const Context::Options& computes) {
  constexpr std::size_t kMost = 12u << 20, kEach = 4u << 20;  // bytes: of all, and of a worker
  constexpr int kQuestions = 8, kGathers = 3;
  const std::size_t each = std::min(kEach, kMost / static_cast<std::size_t>(team.size()));
  double nothing[] = {0};
  const Result<double> question =
      least_of(table, team, kQuestions, [&] { return team.sum(nothing); });
  TRY(question);
  const Result<double> gather = least_of(table, team, kGathers, [&]() -> Status {
    const auto all = team.gather(team.chief() ? "" : std::string(each, '\0'));
    return all.ok() ? Status() : Status(all.error());
  });
  TRY(gather);
  // Each number comes from one worker; the others add 0.
  std::vector<double> said(3 + candidate_codecs().size());
  if (team.chief()) {
    said[0] = static_cast<double>(each * static_cast<std::size_t>(team.size() - 1)) /
              std::max(1e-9, gather.value());
    said[1] = measure_multiply_adds(table, computes);
    std::ranges::copy(measure_codecs(), said.begin() + 3);
  }
  if (team.index() == 1) said[2] = question.value() / 2;
  TRY(team.sum(said));
  return Rates{.bandwidth = said[0],
               .latency = said[2],
               .multiply_adds = said[1],
               .codecs = {said.begin() + 3, said.end()}};
}

}  // namespace shoal::parallel
