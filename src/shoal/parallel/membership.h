// The part of a process in a job, generation by generation: alone, or as a worker of the table
// service.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/parallel/job_spec.h"
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
  // the phase goes on whatever the clocks of fast workers say
  bool within = false;
  const table::SchemeSpec& scheme;  // that ends
};

// The segment that follows.
struct SegmentStart {
  // kLeft: this process is no longer a member; kDone: the groups that --profile_only asks for are
  // found
  Ending ending = Ending::kContinues;
  // with the groups that were found, in place of the phase's or the next one's
  std::optional<table::SchemeSpec> found{};
  std::optional<table::SchemeSpec> scheme{};  // that the job goes on with; none: as the phases say
};

// An object of this class itself is a process that trains alone: a job of one member, without
// plans. It borrows the options; `name`, the prototxt's, stands in front of errors.
class JobMembership {
 public:
  JobMembership(const RunOptions& options, const std::string& name)
      : options_(options), name_(name), share_(options.share) {}
  virtual ~JobMembership() = default;

  // ---- who takes part; constant until the next segment ----
  Team* team() const { return team_.get(); }     // null: this process trains alone
  const Share& share() const { return share_; }  // its part of the data
  // The iterations that each worker has behind it; none where all have as many.
  virtual std::vector<std::int64_t> clocks() const { return {}; }
  // The workers are those of the segment before.
  virtual bool same_workers() const { return true; }
  // The job has had a plan before the present one.
  virtual bool has_other_plans() const { return false; }

  // ---- before the first segment ----
  // The scheme of a job that was training before this process joined it; nothing otherwise.
  virtual std::optional<table::SchemeSpec> joined() const { return {}; }
  // Throws ConfigError for what would be wrong in one of the phases.
  virtual void check(const SolverParameter&, const std::vector<Phase>&) const {
    if (options_.profile_only)
      throw ConfigError(Code::kUsage, name_, ": --profile_only: this run has no other workers");
  }

  // ---- a segment ----
  // Measures what the job wants to know before it. `phase_end` as in SegmentEnd. False: this
  // process is no longer a member.
  virtual Result<bool> prepare(std::int64_t /*iteration*/, std::int64_t /*phase_end*/,
                               table::SchemeSpec&) {
    return true;
  }
  virtual std::unique_ptr<Updater> make_updater(const SolverParameter& solver,
                                                const table::SchemeSpec&,
                                                std::int64_t /*phase_end*/, Net& net) {
    return make_local_updater(solver, name_, net);
  }
  virtual Meter* meter() { return options_.meter; }
  // Says in the log where rows are and what the scheme is, if that is new.
  virtual void report(Solver&, const table::SchemeSpec&, bool /*is_first*/) {}
  virtual void begin(const Solver&, const Phase&, std::int64_t /*phase_end*/) {}
  // The job wants another plan.
  virtual bool wants_regroup() { return false; }

  // ---- its end ----
  virtual Result<SegmentStart> next(const SegmentEnd&) { return SegmentStart(); }
  virtual Status finish(std::int64_t /*iteration*/, std::int64_t /*iterations*/,
                        const table::SchemeSpec&) {
    return {};
  }
  virtual void abort(const Error&) {}
  // Returns when no memory of the last solver is looked at any more.
  virtual void release() {}

 protected:
  const RunOptions& options_;
  const std::string name_;
  Share share_;
  std::unique_ptr<Team> team_;
};

// Throws ConfigError where the solver or the options divide the data in a way that cannot be.
std::unique_ptr<JobMembership> make_table_membership(const RunOptions& options, const JobSpec& spec,
                                                     table::Table& table);

}  // namespace shoal::parallel
