#include "shoal/simulate/dry_worker.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace shoal::simulate {

using table::Clock;
using table::Payload;
using table::RowId;
using table::Topic;
using table::Verdict;

void plant(SimulatedJob& job, Script& script, const DryPhase& phase) {
  job.plant(phase.plan, [&](RowId row, table::Part part) {
    return part == table::Part::kWeights ? std::span<const float>(script.row(phase, row))
                                         : std::span<const float>();
  });
}

WorkerFigures DryWorker::figures() const {
  return {.iterations = iterations_,
          .samples = static_cast<double>(iterations_) * script_.items,
          .seconds = to_seconds(ended_at_),
          .compute = computed_,
          .rows = waited_,
          .others = waited_for_others_,
          .traffic = job_.traffic(worker_)};
}

// ---- waits ----

void DryWorker::go_on(Then then, double& account) {
  account += to_seconds(now() - since_);
  (this->*then)();
}

void DryWorker::await_rows(std::span<const RowId> rows, Then then) {
  then_ = then;
  since_ = now();
  if (!await(rows)) go_on(then, waited_);
}

void DryWorker::all_arrived() { go_on(then_, waited_); }

// What others have changed since.
void DryWorker::read(Then then) {
  for (const RowId row : phase().learning) get_row(row, clock_, table::Part::kWeights);
  await_rows(phase().learning, then);
}

void DryWorker::ask(Topic topic, Clock clock, std::string body, Then then) {
  then_ = then;
  since_ = now();
  asked_ = {topic, clock, table::part_of(topic, body)};
  job_.ask(worker_, table::Ask{.topic = topic, .clock = clock, .body = std::move(body)});
}

void DryWorker::heard(const table::Message& message) {
  const auto* answer = std::get_if<table::Answer>(&message);
  if (answer == nullptr) return;
  talks_.answer(*answer);
  if (!asked_) return;
  std::optional<std::string> mine =
      std::apply([this](auto... question) { return talks_.take_answer(question...); }, *asked_);
  if (!mine) return;
  asked_.reset();
  answer_ = *std::move(mine);
  go_on(then_, waited_for_others_);
}

void DryWorker::compute(double share, Then then) {
  const Instant until = compute_.done(now(), seconds_ * share);
  computed_ += to_seconds(until - now());
  job_.time().at(until, [this, then] { (this->*then)(); });
}

// ---- a task ----

void DryWorker::begin_task() {
  if (clock_ == phase().end && !task().shared) return end_phase();
  if (!task().paced)
    first_step();
  else if (task().asks_early)
    ask_leave();
  else
    await_rows(phase().all, &DryWorker::ask_leave);
}

void DryWorker::ask_leave() {
  ask(Topic::kBegin, clock_,
      encode(table::BeginBody{.last = report_, .until = task().shared ? phase().end : 0}),
      &DryWorker::take_leave);
}

void DryWorker::take_leave() {
  const Result<table::Start> start = table::decode_start(answer_);
  if (!start.ok()) return job_.fail(start.error());
  start_ = start.value();
  if (start_.over)
    end_phase();
  else if (start_.reread && task().payload != Payload::kWeights)
    read(&DryWorker::first_step);
  else
    first_step();
}

void DryWorker::first_step() {
  if (task().pull_first)
    await_rows(phase().all, &DryWorker::pull);
  else
    passes();
}

void DryWorker::pull() {
  push(phase().learning, false);
  passes();
}

void DryWorker::passes() {
  report_ = {.exchange = exchange_};
  note_told();
  step();
}

void DryWorker::step() {
  seconds_ = compute_.draw(drawn_++, random_);
  at_ = 0;
  stretch();
}

void DryWorker::stretch() {
  if (at_ == phase().stretches.size()) return step_done();
  const bool reads = report_.steps == 0 && !task().pull_first;
  await_rows(
      reads ? std::span<const RowId>(phase().stretches[at_].needs) : std::span<const RowId>(),
      &DryWorker::computes_stretch);
}

void DryWorker::computes_stretch() {
  const Stretch& stretch = phase().stretches[at_];
  if (report_.steps + 1 == wanted()) push(stretch.sends, false);
  if (stretch.share == 0)
    next_stretch();
  else
    compute(stretch.share, &DryWorker::next_stretch);
}

void DryWorker::next_stretch() {
  ++at_;
  stretch();
}

void DryWorker::note_told() {
  told_ = report_.steps;
  working_since_ = now();
  waited_then_ = waited_;
}

void DryWorker::step_done() {
  ++iterations_;
  ++tally_.iterations;
  tally_.samples += script_.items;
  ++report_.steps;
  report_.samples += script_.items;
  report_.seconds = std::max(0.0, to_seconds(now() - working_since_) - (waited_ - waited_then_)) /
                    (report_.steps - told_);
  if (task().pull_first && report_.steps == 1)
    await_rows(phase().learning, &DryWorker::after_step);
  else
    after_step();
}

void DryWorker::after_step() {
  if (wanted() > report_.steps)
    step();
  else if (task().judged)
    ask(Topic::kJudge, clock_, encode(report_), &DryWorker::judged);
  else
    hand_in(Verdict::kPush);
}

void DryWorker::judged() {
  const Result<Verdict> verdict = table::decode_verdict(answer_);
  if (!verdict.ok()) return job_.fail(verdict.error());
  note_told();
  if (verdict.value() == Verdict::kAnother)
    step();
  else
    hand_in(verdict.value());
}

void DryWorker::hand_in(Verdict verdict) {
  if (!task().pull_first) push(phase().rest, verdict == Verdict::kDrop);
  ++clock_;
  begin_task();
}

void DryWorker::push(std::span<const RowId> rows, bool empty) {
  for (const RowId row : rows)
    push_row({.row = row,
              .clock = clock_,
              .payload = task().payload,
              .weight = empty ? 0.0f : 1.0f,
              .rate = 1,
              .values = {empty ? std::span<const float>()
                               : std::span<const float>(script_.row(phase(), row)),
                         nullptr}});
}

// ---- a phase ----

void DryWorker::begin_phase() {
  open(phase().plan, [this](RowId row, table::Part) { return script_.row(phase(), row); });
  exchange_ = 0;
  if (task().is_planned())
    take_turn(0);
  else
    read_all();
}

void DryWorker::read_all() {
  for (const RowId row : phase().all) get_row(row, clock_, table::Part::kWeights);
  begin_task();
}

// As measure_exchange().
void DryWorker::take_turn(int worker) {
  turn_ = worker;
  if (worker == job_.workers()) return read_all();
  if (worker != worker_) return end_turn();
  for (const RowId row : phase().sample.rows) get_row(row, clock_, table::Part::kWeights);
  await_rows(phase().sample.rows, &DryWorker::end_turn);
}

void DryWorker::end_turn() {
  if (turn_ == worker_) exchange_ = to_seconds(now() - since_) / phase().sample.share;
  ask(Topic::kBarrier, table::end_of_turn(phase().plan.epoch, turn_), "", &DryWorker::next_turn);
}

void DryWorker::next_turn() { take_turn(turn_ + 1); }

void DryWorker::end_phase() { await_rows(phase().all, &DryWorker::leave_phase); }

// Where nothing holds workers together they come here one after the other, and those who go on are
// not to wait for this one.
void DryWorker::leave_phase() {
  if (!script_.asks) return end();
  if (phase().bounded) return phase_over();
  retire();
  ask(Topic::kMeet, Clock{phase().plan.epoch} << 32, "\1", &DryWorker::phase_over);
}

void DryWorker::phase_over() {
  // where workers share iterations, that of all on average
  clock_ = phase().end;
  if (phase_ + 1 < script_.phases.size())
    return ask(Topic::kBarrier, table::all_drained(phase().plan.epoch + 1), "",
               &DryWorker::drained);
  job_.ask(worker_, table::Ask{.topic = Topic::kDone, .clock = clock_, .body = {}});
  end();
}

void DryWorker::drained() {
  ++phase_;
  if (worker_ == 0) {
    job_.ask(worker_, table::Ask{.topic = Topic::kScheme,
                                 .clock = phase().plan.epoch,
                                 .body = phase().plan.scheme});
    plant(job_, script_, phase());
  }
  ask(Topic::kBarrier, table::rows_exist(phase().plan.epoch), "", &DryWorker::begin_phase);
}

void DryWorker::retire() {
  for (int server = 0; server < job_.servers(); ++server)
    job_.send(worker_, server, table::Retire{.clock = clock_, .epoch = phase().plan.epoch});
}

void DryWorker::end() {
  if (!script_.asks || phase().bounded) retire();
  ended_ = true;
  ended_at_ = now();
  close();
}

}  // namespace shoal::simulate
