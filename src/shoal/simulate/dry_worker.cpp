#include "shoal/simulate/dry_worker.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace shoal::simulate {

using table::Clock;
using table::ContributionKind;
using table::RowId;
using table::Topic;
using table::Verdict;

void JobPlan::install(SimulatedJob& job, const DryPhase& phase) {
  job.install_plan(phase.plan, [&](RowId row, table::Part part) {
    return part == table::Part::kWeights ? std::span<const float>(this->row(phase, row))
                                         : std::span<const float>();
  });
}

WorkerFigures DryWorker::figures() const {
  return {.iterations = iterations_,
          .samples = static_cast<double>(iterations_) * plan_.items,
          .seconds = to_seconds(ended_at_),
          .compute = computed_,
          .rows = waited_,
          .others = waited_for_others_,
          .traffic = job_.traffic(worker_)};
}

DryWorker::Wait DryWorker::ask(Topic topic, Clock clock, std::string body) {
  asked_ = {topic, clock, table::part_of(topic, body)};
  tell(topic, clock, std::move(body));
  return {.worker = *this, .account = waited_for_others_};
}

void DryWorker::tell(Topic topic, Clock clock, std::string body) {
  job_.ask(worker_, table::Ask{.topic = topic, .clock = clock, .body = std::move(body)});
}

void DryWorker::heard(const table::Message& message) {
  answers_.hear(message);
  if (!asked_) return;
  std::optional<std::string> mine =
      std::apply([this](auto... question) { return answers_.take_answer(question...); }, *asked_);
  if (!mine) return;
  asked_.reset();
  answer_ = *std::move(mine);
  resume();
}

DryWorker::Wait DryWorker::compute(double share) {
  job_.time().at(compute_.done(now(), seconds_ * share), [this] { resume(); });
  return {.worker = *this, .account = computed_};
}

void DryWorker::get(std::span<const RowId> rows) {
  for (const RowId row : rows) get_row(row, clock_, table::Part::kWeights);
}

void DryWorker::push(std::span<const RowId> rows, bool empty) {
  for (const RowId row : rows)
    push_row({.row = row,
              .clock = clock_,
              .kind = task().contribution,
              .weight = empty ? 0.0f : 1.0f,
              .rate = 1,
              .payload = table::as_payload({empty ? std::span<const float>()
                                                  : std::span<const float>(plan_.row(phase(), row)),
                                            nullptr})});
}

void DryWorker::retire() {
  for (int server = 0; server < job_.servers(); ++server)
    job_.send(worker_, server,
              table::Retire{.clock = clock_, .generation = phase().plan.generation});
}

// Workers that nothing keeps in step come to the end of a phase one after the other. The others do
// not wait for the pushes of one that has.
Coroutine DryWorker::run() {
  while (true) {
    co_await run_phase();
    if (plan_.asks && !phase().bounded) {
      retire();
      co_await ask(Topic::kMeet, Clock{phase().plan.generation} << 32,
                   encode(table::Meeting::kEnd));
    }
    clock_ = phase().end;  // where workers share iterations: the mean of all
    if (phase_ + 1 == plan_.phases.size()) break;
    co_await begin_next_phase();
  }
  if (plan_.asks) tell(Topic::kDone, clock_, {});
  if (!plan_.asks || phase().bounded) retire();
  ended_at_ = now();
  close();
}

Coroutine DryWorker::begin_next_phase() {
  using Do = table::TableSession::Do;
  const DryPhase& next = plan_.phases[phase_ + 1];
  if (const Status status = session_.begin(next.plan, worker_, false); !status.ok())
    throw std::runtime_error(status.error().message);
  for (;;) {
    table::TableSession::Step step = session_.next();
    if (step.what == Do::kDone) break;
    if (step.what == Do::kAsk) co_await ask(step.ask.topic, step.ask.clock, step.ask.body);
    if (step.what == Do::kTell) tell(step.ask.topic, step.ask.clock, step.ask.body);
    if (step.what == Do::kInstall) plan_.install(job_, next);
  }
  ++phase_;  // run_phase() opens it
}

Coroutine DryWorker::run_phase() {
  open(phase().plan, [this](RowId row, table::Part) { return plan_.row(phase(), row); });
  exchange_ = 0;
  start_ = {};
  if (task().is_planned()) co_await measure_exchange();
  get(phase().all);
  while (clock_ != phase().end || task().shared) {
    if (task().paced) co_await wait_to_begin();
    if (start_.over) break;
    co_await run_task();
  }
  co_await rows(phase().all);
}

// Reads the sample while no other worker does.
Coroutine DryWorker::measure_exchange() {
  for (int worker = 0; worker < job_.workers(); ++worker) {
    if (worker == worker_) {
      const Instant since = now();
      get(phase().sample.rows);
      co_await rows(phase().sample.rows);
      exchange_ = to_seconds(now() - since) / phase().sample.share;
    }
    co_await ask(Topic::kBarrier, table::end_of_turn(phase().plan.generation, worker), "");
  }
}

Coroutine DryWorker::wait_to_begin() {
  if (!task().asks_early) co_await rows(phase().all);
  co_await ask(Topic::kBegin, clock_,
               encode(table::BeginBody{.last = report_, .until = task().shared ? phase().end : 0}));
  start_ = or_throw(table::decode_start(answer_));
  if (start_.over || !start_.reread || task().contribution == ContributionKind::kWeights) co_return;
  get(phase().learning);
  co_await rows(phase().learning);
}

Coroutine DryWorker::run_task() {
  if (task().pull_first) {
    co_await rows(phase().all);
    push(phase().learning, false);
  }
  report_ = {.exchange = exchange_};
  start_report();
  Verdict verdict = Verdict::kAnother;
  while (verdict == Verdict::kAnother) {
    co_await step();
    if (wanted() > report_.steps) continue;
    verdict = Verdict::kPush;
    if (!task().judged) continue;
    co_await ask(Topic::kJudge, clock_, encode(report_));
    verdict = or_throw(table::decode_verdict(answer_));
    start_report();
  }
  if (!task().pull_first) push(phase().rest, verdict == Verdict::kDrop);
  ++clock_;
}

void DryWorker::start_report() {
  reported_ = report_.steps;
  working_since_ = now();
  waited_before_ = waited_;
}

Coroutine DryWorker::step() {
  seconds_ = compute_.draw(drawn_++, random_);
  const bool reads = report_.steps == 0 && !task().pull_first;
  for (const ComputeSlice& slice : phase().slices) {
    if (reads) co_await rows(slice.needs);
    if (report_.steps + 1 == wanted()) push(slice.sends, false);
    if (slice.share > 0) co_await compute(slice.share);
  }
  ++iterations_;
  ++tally_.iterations;
  tally_.samples += plan_.items;
  ++report_.steps;
  report_.samples += plan_.items;
  const double waited = waited_ - waited_before_;
  report_.seconds =
      std::max(0.0, to_seconds(now() - working_since_) - waited) / (report_.steps - reported_);
  if (task().pull_first && report_.steps == 1) co_await rows(phase().learning);
}

}  // namespace shoal::simulate
