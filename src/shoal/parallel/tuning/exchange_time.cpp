#include "shoal/parallel/tuning/exchange_time.h"

#include <algorithm>
#include <chrono>

#include "shoal/table/coordinator.h"

namespace shoal::parallel {

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
  double seconds = 0;
  for (int worker = 0; worker < plan.workers; ++worker) {
    if (worker == table.worker()) {
      const table::Instant start = table.now();
      for (const table::RowId row : sample.rows)
        table.get(row, plan.start_of(worker), table::Part::kWeights);
      if (Status status = table.wait(sample.rows); !status.ok()) return status.error();
      seconds = std::chrono::duration<double>(table.now() - start).count() / sample.share;
    }
    const Result<std::string> all =
        table.ask(table::Topic::kBarrier, table::end_of_turn(plan.generation, worker), {});
    if (!all.ok()) return all.error();
  }
  return seconds;
}

}  // namespace shoal::parallel
