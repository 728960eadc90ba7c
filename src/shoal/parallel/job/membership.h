// The part of a process in a job, generation by generation: alone, or as a worker of the table
// service.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/solver.h"

namespace shoal::parallel {

// The end of a segment, at which all workers of the job have come.
struct SegmentEnd {
  std::int64_t iteration = 0;   // that this worker has behind it
  double items = 0;             // of this worker in an iteration
  const Phase& phase;           // that the segment belongs to
  const Phase* next = nullptr;  // after the phase; null: none
  std::int64_t phase_end = 0;   // the iteration at which the run ends the phase
  // The phase goes on, however far the clocks of fast workers are.
  bool within = false;
  const table::SchemeSpec& scheme;  // that ends
};

// The segment that follows.
struct SegmentStart {
  // kLeft: this process is no longer a member; kDone: the groups that --profile_only asks for are
  // found
  Ending ending = Ending::kContinues;
  // The scheme with the groups that were found, in place of the phase's or the next one's.
  std::optional<table::SchemeSpec> found{};
  std::optional<table::SchemeSpec> scheme{};  // that the job goes on with; none: as the phases say
};

// A process in a job. It borrows the options; `name`, the prototxt's, stands in front of errors.
class JobMembership {
 public:
  JobMembership(const RunOptions& options, const std::string& name)
      : options_(options), name_(name), share_(options.share) {}
  virtual ~JobMembership() = default;

  // ---- the members; constant until the next segment ----
  Team* team() const { return team_.get(); }     // null: this process trains alone
  const Share& share() const { return share_; }  // its part of the data
  // Returns the iterations that each worker has finished; none where all have as many.
  virtual std::vector<std::int64_t> clocks() const = 0;
  // Returns whether the workers are those of the segment before.
  virtual bool same_workers() const = 0;
  // Returns whether the job has had a plan before the present one.
  virtual bool has_other_plans() const = 0;

  // ---- before the first segment ----
  // The scheme of a job that was training before this process joined it; nothing otherwise.
  virtual std::optional<table::SchemeSpec> joined() const = 0;
  // Throws ConfigError for what would be wrong in one of the phases.
  virtual void check(const SolverParameter& solver, const std::vector<Phase>& phases) const = 0;

  // ---- a segment ----
  // Measures what the job wants to know before it. `phase_end` as in SegmentEnd. False: this
  // process is no longer a member.
  virtual Result<bool> prepare(std::int64_t iteration, std::int64_t phase_end,
                               table::SchemeSpec& scheme) = 0;
  virtual std::unique_ptr<Updater> make_updater(const SolverParameter& solver,
                                                const table::SchemeSpec& scheme,
                                                std::int64_t phase_end, Net& net) = 0;
  virtual Meter* meter() = 0;
  // Says in the log where rows are and what the scheme is, if that is new.
  virtual void report(Solver& solver, const table::SchemeSpec& scheme, bool is_first) = 0;
  virtual void begin(const Solver& solver, const Phase& phase, std::int64_t phase_end) = 0;
  // Returns whether the job needs another plan.
  virtual bool wants_regroup() = 0;
  // Returns whether the job needs a snapshot at once.
  virtual bool wants_snapshot() = 0;

  // Goes on to another generation, instead of one that began in vain (table/in_vain.h) after so
  // many iterations, with its scheme. False: this process is not in it.
  virtual Result<bool> begin_anew(std::int64_t iteration, std::int64_t phase_end,
                                  table::SchemeSpec& scheme) = 0;

  // ---- its end ----
  virtual Result<SegmentStart> next(const SegmentEnd& end) = 0;
  virtual Status finish(std::int64_t iteration, std::int64_t iterations,
                        const table::SchemeSpec& scheme) = 0;
  virtual void abort(const Error& error) = 0;
  // Returns when no memory of the last solver is read any more.
  virtual void release() = 0;

 protected:
  const RunOptions& options_;
  const std::string name_;
  Share share_;
  std::unique_ptr<Team> team_;
};

// A process that trains alone: a job of one member, without plans.
class LoneMembership final : public JobMembership {
 public:
  using JobMembership::JobMembership;

  std::vector<std::int64_t> clocks() const override { return {}; }
  bool same_workers() const override { return true; }
  bool has_other_plans() const override { return false; }
  std::optional<table::SchemeSpec> joined() const override { return {}; }
  void check(const SolverParameter&, const std::vector<Phase>&) const override {
    if (options_.profile_only)
      throw ConfigError(Code::kUsage, name_, ": --profile_only: this run has no other workers");
  }
  Result<bool> prepare(std::int64_t, std::int64_t, table::SchemeSpec&) override { return true; }
  std::unique_ptr<Updater> make_updater(const SolverParameter& solver, const table::SchemeSpec&,
                                        std::int64_t, Net& net) override {
    return make_local_updater(solver, name_, net);
  }
  Result<bool> begin_anew(std::int64_t, std::int64_t, table::SchemeSpec&) override { return false; }
  Meter* meter() override { return options_.meter; }
  void report(Solver&, const table::SchemeSpec&, bool) override {}
  void begin(const Solver&, const Phase&, std::int64_t) override {}
  bool wants_regroup() override { return false; }
  bool wants_snapshot() override { return false; }
  Result<SegmentStart> next(const SegmentEnd&) override { return SegmentStart(); }
  Status finish(std::int64_t, std::int64_t, const table::SchemeSpec&) override { return {}; }
  void abort(const Error&) override {}
  void release() override {}
};

// Throws ConfigError where the solver or the options divide the data in a way that cannot be.
std::unique_ptr<JobMembership> make_table_membership(const RunOptions& options, const JobSpec& spec,
                                                     table::Table& table);

}  // namespace shoal::parallel
