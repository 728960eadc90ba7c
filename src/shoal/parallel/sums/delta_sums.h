// Sums the changes by local steps over workers in lockstep (scheme local_steps), by a collective:
// each worker then moves its own copy of the params by the same mean.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/rows/table_side.h"
#include "shoal/parallel/sums/bucket_sums.h"

namespace shoal {
class RunState;
}  // namespace shoal

namespace shoal::parallel {

// With from the params that a task begins with and d the mean of all workers' changes
//   params = from + global_rate d
// or, with a momentum b, as GlobalMomentum has it. Layers: those that go by a collective; calls on
// the solver's thread.
class DeltaSums {
 public:
  DeltaSums(const TableSetup& setup, TableSide& side);

  bool owns(int layer) const { return sums_.part_of(layer).has_value(); }

  // Begins a layer's task before its first forward pass: its params are those with which all begin.
  Status begin(int layer, table::Clock task);
  // Sends the difference that this worker made to its params. weight: as in a push. Called once a
  // task and layer, in the order of backward.
  void send(int layer, float weight);
  // Sends the layers that were not sent in this task.
  void send_rest(float weight);
  void progress() { sums_.progress(); }
  // Waits for the sums of the last task and moves the params.
  Status apply_all();

  // Returns the version of a layer's params. It rises with each task in which a worker has learned
  // something.
  std::int64_t version(int layer) const { return versions_[*sums_.part_of(layer)]; }
  void start_at(std::int64_t iteration) {
    versions_.assign(sums_.size(), iteration);
    done_.assign(sums_.size(), iteration);
  }

  // ---- after an interruption: these are as in Recoverable, of a bucket ----
  std::size_t size() const { return sums_.size(); }
  std::int64_t done(std::size_t part) const { return done_[part]; }
  void give(std::size_t part, std::string& out) const;
  Status take(std::size_t part, std::int64_t version, std::string_view bytes);
  void give_part(std::size_t part, std::string& out) const;
  Status sum(std::size_t part, std::span<const std::string_view> parts);
  // Forgets sums under way, and what this worker has done beyond so many tasks.
  void go_back_to(std::int64_t tasks);
  // Write and read the momentum as Checkpointed does. After apply_all().
  void put(RunState& run) const;
  void take(const RunState& run, const std::string& file);

 private:
  Status apply(std::size_t part);
  void end_task(std::size_t part, bool has_learned);
  float count_of(float weight) const;
  // Returns a param as the bucket's task began with it, or is to.
  std::span<const float> start_of(std::size_t param) const;
  void move(std::size_t param, std::span<const float> sum, float scale);

  const table::Task task_;
  Net& net_;
  BucketSums sums_;
  std::vector<bool> is_unsent_;               // by layer, in this task
  std::vector<std::vector<float>> from_, v_;  // by param
  std::vector<std::int64_t> versions_;        // by bucket
  std::vector<std::int64_t> done_;            // by bucket: tasks whose sums the params hold
  std::vector<float> weights_;                // by bucket: of this worker's last task
  std::vector<bool> has_begun_;               // by layer: a task, and from_ has its start
};

}  // namespace shoal::parallel
