// A worker without numbers: it waits, sends and lets time pass as one that trains does. Its
// messages have a size and no values.
#include <algorithm>

#include "shoal/parallel/rows/fragments.h"
#include "shoal/parallel/rows/pacer_client.h"
#include "shoal/parallel/tuning/link_times.h"
#include "shoal/simulate/dry_job.h"

namespace shoal::simulate {
namespace {

class DryWorker final : public SimulatedWorker {
 public:
  DryWorker(const WorkerSetup& setup, const Place& place, std::shared_ptr<DryJob> dry)
      : SimulatedWorker(setup, place), dry_(std::move(dry)) {}

 private:
  const table::Task& task() const { return phase_->task; }

  // Runs the phases. Workers that nothing keeps in step come to the end of a phase one after the
  // other. The others do not wait for the pushes of one that has.
  Status work() override {
    for (const DryPhase& phase : dry_->phases) {
      phase_ = &phase;
      run_phase();
      if (dry_->asks && !phase.bounded)
        or_throw(table_.ask(table::Topic::kMeet, Clock{phase.plan.generation} << 32,
                            encode(table::Meeting::kEnd)));
      clock_ = phase.end;  // where workers share iterations: the mean of all
    }
    if (dry_->asks) table_.tell(table::Topic::kDone, clock_, {});
    if (!dry_->asks || phase_->bounded)
      table_.retire({.clock = clock_, .generation = phase_->plan.generation});
    table_.release();
    return {};
  }

  void run_phase() {
    const auto initial = [this](RowId row, table::Part part) {
      return part == table::Part::kWeights ? dry_->row(*phase_, row) : std::span<float>();
    };
    const auto destination = [this](RowId row, table::Part) { return dry_->row(*phase_, row); };
    begin_sums();
    or_throw(table_.create(phase_->plan, initial, destination));
    pacer_.emplace(table_, task(), waits_, phase_->end);
    if (task().is_planned())
      pacer_->exchange_takes(or_throw(parallel::measure_exchange(table_, phase_->plan)));
    get(phase_->all, clock_);
    if (task().is_streamed()) wait(phase_->all);
    fragments_.emplace(task());
    while ((clock_ != phase_->end || task().shared) && may_begin()) run_task();
    wait(phase_->all);
    for (const auto rows : {&DrySum::reads, &DrySum::writes})
      for (const DrySum& sum : phase_->sums) wait((sum.*rows)[own()]);
    for (const DrySlice& slice : phase_->slices)
      for (const auto& rows : slice.asks) wait(rows);
  }

  bool may_begin() {
    if (!task().paced) return true;
    if (!task().asks_early) wait(phase_->all);
    if (or_throw(pacer_->begin(clock_)) == Begin::kOver) return false;
    if (pacer_->start().reread && task().contribution != table::ContributionKind::kWeights) {
      get(phase_->learning, clock_);
      wait(phase_->learning);
    }
    return true;
  }

  void run_task() {
    if (task().pull_first) {
      wait(phase_->all);
      push(phase_->learning, clock_);
    }
    pacer_->task_begins();
    table::Verdict verdict = table::Verdict::kAnother;
    while (verdict == table::Verdict::kAnother) {
      step();
      if (pacer_->wanted() <= pacer_->steps()) verdict = or_throw(pacer_->judge(clock_));
    }
    if (!task().pull_first) push(phase_->rest, clock_, verdict == table::Verdict::kDrop);
    ++clock_;
    setup_.job.task_ends(place_.rank);
  }

  void step() {
    take_fragments();
    seconds_ = draw_seconds();
    slice_ = phase_->slices.begin();
    run_slices();
    double counted = 0;  // slice by slice
    or_throw(table_.wait_until([this] { return slice_ == phase_->slices.end(); }, counted));
    count_iteration(dry_->samples);
    pacer_->step_done(dry_->samples);
    send_fragments();
    if (task().pull_first && pacer_->steps() == 1) wait(phase_->learning);
  }

  // ---- fragments ----
  // Waits for the answers that are applied before this step.
  void take_fragments() {
    for (int f = 0; f < fragments_->count(); ++f) {
      if (!fragments_->is_due(f)) continue;
      const std::vector<RowId>& rows = phase_->fragments[static_cast<std::size_t>(f)];
      if (!table_.has(rows)) table_.hurry(rows);
      wait(rows);
      fragments_->come(f);
    }
  }
  void send_fragments() {
    fragments_->step_done();
    for (int f = 0; f < fragments_->count(); ++f) {
      if (!fragments_->leaves(f, pacer_->steps(), pacer_->wanted())) continue;
      push(phase_->fragments[static_cast<std::size_t>(f)], clock_);
      fragments_->send(f);
    }
  }

  // Runs the rest of the step's slices, from one event to the next. The thread is not needed for
  // that: to resume it for each slice would take longer than all else.
  void run_slices() {
    if (slice_ == phase_->slices.end()) return table_.wake();
    const bool reads = pacer_->steps() == 0 && !task().pull_first && !task().is_streamed();
    const Instant since = table_.now();
    const DrySum* const sum = expected();
    std::vector<RowId> needs;
    const auto add = [&](const std::vector<RowId>& rows) {
      needs.insert(needs.end(), rows.begin(), rows.end());
    };
    if (sum) add(sum->reads[own()]);
    if (reads) add(slice_->needs);
    for (const auto& rows : slice_->asks) add(rows);
    if (reads && slice_->needs_sums) {
      for (const DrySum& each : phase_->sums) add(each.reads[own()]);
      for (const DrySlice& slice : phase_->slices)
        for (const auto& rows : slice.asks) add(rows);
    }
    table_.waits_for_rows();
    // The rows that a sum still writes leave when the last row that it reads arrives.
    table_.when_arrived(needs, [this, since, sum] {
      table_.when_arrived(sum ? sum->writes[own()] : std::vector<RowId>(),
                          [this, since] { begin_slice(since); });
    });
  }

  // Begins the slice: all that it needs has arrived, for which the worker has waited since then.
  void begin_slice(Instant since) {
    const Instant from = table_.now();
    waits_.add(from - since);
    table_.has_rows();
    for (std::size_t worker = 0; worker < slice_->asks.size(); ++worker)
      if (worker != own()) get(slice_->asks[worker], clock_ + 1);
    if (const DrySum* const sum = expected()) get(sum->reads[own()], clock_ + 1);
    const bool is_last = pacer_->steps() + 1 == pacer_->wanted();
    if (is_last) push(slice_->sends, clock_);
    if (!slice_->tells.empty()) push(slice_->tells[own()], clock_);
    if (is_last && slice_->starts >= 0) {
      const auto sum = static_cast<std::size_t>(slice_->starts);
      sums_[sum].clock = clock_;
      sums_[sum].done.restart();
      go_on(sum);
    }
    const double share = slice_++->share;
    if (share <= 0) return run_slices();
    const Instant until = compute().done(from, seconds_ * share);
    table_.computes(until);
    setup_.job.time().at(until, [this] { run_slices(); });
  }

  // ---- sums over all workers ----
  // The one that the slice waits for, in the first step of a task; null: none.
  const DrySum* expected() const {
    if (pacer_->steps() > 0 || slice_->expects < 0) return nullptr;
    return &phase_->sums[slice_->expects];
  }
  void begin_sums() {
    sums_.clear();
    for (const DrySum& sum : phase_->sums)
      sums_.push_back({.clock = clock_, .done = parallel::StepsDone(sum.strips[own()])});
    if (!sums_.empty()) table_.on_arrival([this](RowId row) { arrived(row); });
  }
  void arrived(RowId row) {
    const auto& sums = phase_->sums;
    const auto after = std::ranges::upper_bound(sums, row, {}, &DrySum::first);
    if (after != sums.begin()) go_on(static_cast<std::size_t>(after - sums.begin()) - 1);
  }
  void go_on(std::size_t sum) {
    sums_[sum].done.advance([&](const parallel::Step& step) {
      const RowId row = phase_->sums[sum].first + static_cast<RowId>(step.transfer);
      if (!step.sends) return table_.has({&row, 1});
      push({&row, 1}, sums_[sum].clock);
      return true;
    });
  }

  std::size_t own() const { return static_cast<std::size_t>(place_.number); }
  void wait(std::span<const RowId> rows) { or_throw(waits_.wait(rows)); }
  void get(std::span<const RowId> rows, Clock clock) {
    for (const RowId row : rows) table_.get(row, clock, table::Part::kWeights);
  }
  void push(std::span<const RowId> rows, Clock clock, bool empty = false) {
    for (const RowId row : rows) {
      const table::Push push{
          .row = row,
          .clock = clock,
          .kind = task().contribution,
          .weight = empty ? 0.0f : 1.0f,
          .rate = 1,
          .payload = table::as_payload(empty ? table::Values() : dry_->values(*phase_, row))};
      table_.push(std::span(&push, 1));
    }
  }

  const std::shared_ptr<DryJob> dry_;
  const DryPhase* phase_ = nullptr;
  Clock clock_ = 0;
  parallel::RowWaits waits_{table_};
  std::optional<parallel::PacerClient> pacer_;
  std::optional<parallel::FragmentClock> fragments_;  // of the phase
  double seconds_ = 0;                                // the time of this step
  std::vector<DrySlice>::const_iterator slice_;       // the next of this step
  // The progress of a sum of the phase, which may end after the iteration that began it.
  struct SumUnderWay {
    Clock clock = 0;
    parallel::StepsDone done;
  };
  std::vector<SumUnderWay> sums_;
};

}  // namespace

Workers make_dry_workers(const WorkerSetup& setup) {
  return make_workers<DryWorker>(setup, std::make_shared<DryJob>(setup));
}

}  // namespace shoal::simulate
