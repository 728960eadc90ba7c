// The work of a dry job (simulate --dry), whose workers take time and send bytes but compute no
// numbers: what each computes, waits for and sends, one slice of the net after the other. It is
// derived once from the net and the job's schemes.
#pragma once

#include <span>
#include <vector>

#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/sums/collective.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/solver/recipe.h"

namespace shoal::simulate {

// A sum over all workers, whose transfers are rows from `first` on.
struct DrySum {
  RowId first = 0;
  // By worker: its steps, and the rows that it writes and reads.
  std::vector<std::vector<parallel::Strip>> strips;
  std::vector<std::vector<RowId>> writes, reads;
};

// A slice of computation between two actions on the table.
struct DrySlice {
  std::vector<RowId> needs{};  // must have arrived before it, in a task's first step
  std::vector<RowId> sends{};  // are pushed when it begins, in a task's last step
  double share = 0;            // its part of a step's time
  // By worker, of a layer whose gradients travel as factors: the rows of its message. A slice that
  // asks for them needs the last ones before.
  std::vector<std::vector<RowId>> asks{}, tells{};
  // Indices of sums of gradients: `expects` must be over before the slice, and is then expected
  // anew; `starts` begins with the slice. -1: none.
  int expects = -1, starts = -1;
  bool needs_sums = false;  // all sums and factors must have arrived before it: for a clip
};

// The work of every worker in a phase.
struct DryPhase {
  Plan plan;
  table::Task task;
  bool bounded = true;
  std::vector<DrySlice> slices;  // of a step
  std::vector<RowId> all, learning;
  std::vector<RowId> rest;  // the learning rows that no slice sends
  // The learning rows by fragment, where they are sent at steps of their own: no other field has
  // them then.
  std::vector<std::vector<RowId>> fragments;
  std::vector<DrySum> sums;
  Clock end = 0;  // the clock after its last task
};

// Derives the work, which is the same for every worker of the job. Throws ConfigError for settings
// that need numbers.
class DryJob {
 public:
  explicit DryJob(const WorkerSetup& setup);

  std::vector<DryPhase> phases;
  bool asks = false;   // workers ask the coordinator, in some phase
  double samples = 0;  // of an iteration
  // Returns a stand-in for the values of a row, which needs no copy.
  std::span<float> row(const DryPhase& phase, RowId row) const {
    return std::span(*numbers_).first(phase.plan.rows[row].length);
  }
  table::Values values(const DryPhase& phase, RowId row) const {
    return {this->row(phase, row), numbers_};
  }

 private:
  DryPhase phase_of(Net& net, const parallel::Phase& given) const;
  std::vector<std::size_t> add_slices(const Net& net, const parallel::RowMap& map,
                                      DryPhase& phase) const;
  void add_factors(const Net& net, int layer, std::size_t sends, DryPhase& phase) const;
  void add_sum(const parallel::Bucket& bucket, const std::vector<std::size_t>& sends,
               DryPhase& phase) const;

  const WorkerSetup setup_;
  const Recipe recipe_;
  std::shared_ptr<std::vector<float>> numbers_;  // of the longest row
};

}  // namespace shoal::simulate
