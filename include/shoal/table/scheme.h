// A consistency scheme: which contributions to a row become an update, and when a worker may read
// it. Pure: no socket, no thread, no time. One object serves all rows of a shard, and keeps nothing
// of any.
//
// A shard holds every contribution to a row that was not merged yet, in the order of arrival, and
// asks next_merge() after each arrival and each change of membership until it says nothing; then it
// asks readable() for each read that waits. A scheme is one file in src/shoal/table/scheme and one
// line in schemes.def there.
//
// A clock is a task: where a worker does several local steps between two exchanges, it pushes, and
// counts, once for all of them; `task` says what it does in one. Schemes whose decisions are about
// whole tasks rather than rows (a drift barrier, weed-out by completions, local steps by measured
// speed) take them at the coordinator, in their pacer (pacer.h): a worker asks it before it starts
// a task, or before it pushes, and a drop is a push of weight 0. Shards need not know. A change of
// scheme, or of groups, is a new plan that starts at the clock of an agreed pause.
#pragma once

#include "shoal/table/pacer.h"
#include "shoal/table/scheme_spec.h"

namespace shoal::table {

// A push that waits at its row.
struct Contribution {
  int worker = 0;
  Clock clock = 0;
  Version base = 0;  // of the row when its worker last read it
  // Relative weight, for instance the sample count. 0: the iteration was skipped.
  float weight = 1;
  // The fields of its Push. Schemes do not read these.
  float rate = 0;
  Values values{};
  bool whole = false;  // it came in float32
  std::span<float> clear_after{};
  // Its worker has waited for as long as it grants to others. Kept where SchemeTraits::hurries.
  bool is_overdue = false;
};

// The state of a worker at a row.
struct WorkerView {
  // False once it finished or left, and all its pushes are here: no worker waits for it.
  bool counts = true;
  Clock pushed = 0;  // its contributions 0 .. pushed-1 have arrived (starts at Plan::start)
  Clock merged = 0;  // and 0 .. merged-1 are in the row, or were dropped
  // The row's version just after its last contribution was merged (before the first: Plan::start).
  Version last = 0;
};

struct RowView {
  std::span<const WorkerView> workers;  // by worker
  std::span<const Contribution> held;   // in order of arrival
  Version version = 0;
  Clock slowest = kUnbounded;  // the least `pushed` of the workers that count; kUnbounded: none do
  Clock oldest = 0;            // the least clock held, if anything is
  bool is_param = true;        // gradients change it: it is no running mean or the like
};

// One update: the version rises by one. Per worker, take and drop cover a prefix of its held
// contributions.
struct Merge {
  std::vector<std::size_t> take{};  // indices into held, in the order of summation
  std::vector<float> weights{};     // one each
  // Multiplies the sum; for kRule before the clip, and not the decay.
  float scale = 1;
  float rate_scale = 1;  // times the rate that the first contribution carries (kRule)
  Apply apply = Apply::kRule;
  // Contributions that are thrown away: counted, not merged. A merge of drops alone makes no update
  // and no version.
  std::vector<std::size_t> drop{};
  // The lambda of compensation: values are v + lambda * v * v * (row - what their worker last
  // read); see keeps_reads.
  float compensation = 0;
};

// The work of a worker in one task. With a gradient: the passes of one iteration. With a delta or
// weights: `steps` iterations of its own solver, rate, momentum, decay and clip included.
struct Task {
  ContributionKind contribution = ContributionKind::kGradient;
  int steps = 1;  // 0: as many as the pacer says
  // Asks the pacer, before it pushes, for a verdict on the task (Topic::kJudge).
  bool judged = false;
  bool paced = false;  // asks the pacer before it starts (Topic::kBegin)
  // It may ask before its last task is in the rows: the answer does not depend on it.
  bool asks_early = false;
  // Tasks are the job's: each worker takes the next one while there are any, and asks before it
  // starts.
  bool shared = false;
  // Weights are exchanged before the first step, whose gradient is still that of the weights before
  // the exchange.
  bool pull_first = false;
  MomentumPolicy momentum = MomentumPolicy::kKeep;
  Weighing weighing = Weighing::kSamples;
  // global_rate, global_momentum: applied to the mean of deltas. Each worker adds its share of the
  // momentum to its push: it computes the past steps from the rows it read, and all workers' shares
  // add up to one.
  float global_rate = 1, global_momentum = 0;
  bool global_nesterov = false;
  // Deltas are exchanged by fragments of the rows, each at a step of its own in a round of `steps`;
  // 0: all rows at the end of a task.
  int fragments = 0;
  // The local steps from a fragment's push until its answer is applied; the part of a worker's own
  // weights then; the seconds that a worker grants to others before it hurries the table. The
  // table keeps the momentum: the rows' rule is SGD's or Nesterov's.
  int overlap = 0;
  float mix = 0;
  double grace = std::numeric_limits<double>::infinity();
  bool is_streamed() const { return fragments > 0; }
  // Returns whether the pacer sets the number of steps, from the time that they, and exchanges,
  // take.
  bool is_planned() const { return paced && steps == 0; }
};

// Makes a scheme's decisions on whole tasks.
using PacerMaker = std::function<std::unique_ptr<Pacer>()>;

// The traits of a scheme. They hold for every row, at every time.
struct SchemeTraits {
  Task task{};
  // A worker reads rows with all updates of the clocks before its own less this, and all its own;
  // kUnbounded: all its own.
  Clock staleness = kUnbounded;
  // Every update takes the contributions of one clock of all workers that count, without skipped
  // ones. A clip of the global norm needs that.
  bool lockstep = false;
  // Without a bound or a common clock, a push may wait for others' pushes: no worker may wait for
  // one that has stopped.
  bool waits_for_others = false;
  // Workers tell shards when they have waited long enough for others: Table::hurry().
  bool hurries = false;
  // Shards keep, for Merge::compensation, the numbers that each worker last read of each row: up to
  // the row's bytes a worker.
  bool keeps_reads = false;
  PacerMaker pacer{};

  // Returns whether workers stay within a bound of each other's clocks, so that all can meet at
  // one: to test, to save, to stop. Others do these things each at a clock of its own.
  bool bounded() const { return staleness != kUnbounded; }
  ContributionKind contribution() const { return task.contribution; }
  // Makes the pacer, which decides on whole tasks; null if the scheme needs none. The coordinator
  // has one for the job.
  std::unique_ptr<Pacer> make_pacer() const { return pacer ? pacer() : nullptr; }
};

class Scheme : public SchemeTraits {
 public:
  explicit Scheme(SchemeSpec spec = {}, SchemeTraits traits = {})
      : SchemeTraits(std::move(traits)), spec_(std::move(spec)) {}
  virtual ~Scheme() = default;
  // Returns the spec without values equal to their defaults: for {dc_asgd, compensation 0.04} that
  // of {dc_asgd}.
  const SchemeSpec& spec() const { return spec_; }
  std::string name() const { return spec_.words(); }
  // Returns why it cannot serve a job of so many workers; "" if it can.
  virtual std::string unfit(int) const { return ""; }
  // Returns the spec for a job's next generation. Its worker i was number before[i], or -1: is new;
  // seconds[i] is the time of one of its iterations, 0: not known.
  virtual SchemeSpec for_workers(std::span<const int>, std::span<const double>) const {
    return spec_;
  }
  // Returns a warning about its use by so many workers; "" if there is none.
  virtual std::string caution(int) const { return ""; }
  // Returns the next update that the held contributions allow, or nothing.
  virtual std::optional<Merge> next_merge(const RowView& row) const = 0;
  // Returns whether `worker`, which has finished `clock` iterations, may read the row for the next.
  // Once true it stays true until the worker pushes again. A worker's own contributions 0 ..
  // clock-1 have arrived before the call.
  virtual bool readable(const RowView& row, int worker, Clock clock) const {
    return row.workers[worker].merged >= clock && (!bounded() || row.slowest >= clock - staleness);
  }

 private:
  const SchemeSpec spec_;
};

// Makes the scheme of a spec; tests put others in its place.
using SchemeMaker = std::function<Result<std::unique_ptr<Scheme>>(const SchemeSpec&)>;

}  // namespace shoal::table
