// Runs a simulated job to its end in virtual time, and collects what it has done. What a worker is
// depends on the derived class: one that trains, or one without numbers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/parallel/scheme_words.h"
#include "shoal/simulate/simulated_job.h"
#include "shoal/simulate/simulation.h"
#include "shoal/simulate/tally.h"

namespace shoal::simulate {

class SimulationRun {
 public:
  SimulationRun(const SimulationRun&) = delete;
  virtual ~SimulationRun() = default;
  Result<Outcome> run();

 protected:
  SimulationRun(const SolverParameter& param, const Cluster& cluster,
                const SimulationOptions& options, bool dry,
                const std::function<void(const Point&)>& saw);

  virtual void start_workers() = 0;
  // Returns whether worker `i` has ended.
  virtual bool has_ended(std::size_t i) const = 0;
  virtual WorkerFigures figures(std::size_t i) const = 0;
  // Called after the last event.
  virtual void stop_workers() {}
  virtual std::vector<TestScore> test() { return {}; }
  virtual std::vector<float> weights() const { return {}; }
  // Called with every point after `saw`.
  virtual void write(const Point& point) { (void)point; }

  const SimulationOptions options_;
  const std::vector<parallel::Phase> phases_;
  SimulatedJob job_;
  Tally tally_;
  Instant test_every_{};  // 0: never

 private:
  void step_to_end();
  bool all_ended();
  std::int64_t updates();
  void keep_testing();
  void add_point();
  void check_target(const Point& point);
  void check_limits();
  Outcome outcome(Instant end);

  const std::function<void(const Point&)>& saw_;
  std::size_t ended_ = 0;  // workers before this one have ended
  std::vector<Point> points_;
  std::string ending_;  // why the run has ended
  std::optional<double> reached_;
};

// Returns the servers as the placement of rows knows them.
table::Servers servers_of(const Cluster& cluster, const SimulationOptions& options);

}  // namespace shoal::simulate
