#include "shoal/parallel/recorder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/timer.h"
#include "shoal/report/net_outputs.h"
#include "shoal/solver/solver.h"

namespace shoal::parallel {
namespace {

template <class Counts>
Histogram difference(const Counts& now, const Counts& before) {
  Histogram grown;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] > before[i]) {
      grown.resize(i + 1);
      grown[i] = now[i] - before[i];
    }
  return grown;
}

void add(Histogram& sum, const Histogram& more) {
  if (sum.size() < more.size()) sum.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

// Returns "mean 1.3, at most 4", or "none".
std::string words_of(const Histogram& counts) {
  double sum = 0, number = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += static_cast<double>(i) * static_cast<double>(counts[i]);
    number += static_cast<double>(counts[i]);
  }
  if (number == 0) return "none";
  return str("mean ", std::round(100 * sum / number) / 100, ", at most ", counts.size() - 1);
}

double seconds_since_1970() {
  return to_seconds(std::chrono::system_clock::now().time_since_epoch());
}

double megabytes(std::uint64_t bytes) { return std::round(static_cast<double>(bytes) / 1e4) / 100; }

}  // namespace

std::vector<std::string> output_columns(const Net& net) {
  std::vector<std::string> columns;
  for (const Blob* output : net.outputs_of_one_size())
    for (std::string& name : column_names(output->name, output->data.count()))
      columns.push_back(std::move(name));
  return columns;
}

Recorder::Recorder(const RecorderOptions& options, const table::Table* table, Observer* next)
    : options_(options), table_(table), next_(next), scheme_(options.run.scheme) {}

table::Instant Recorder::now() const {
  return table_ ? table_->now() : std::chrono::steady_clock::now().time_since_epoch();
}
double Recorder::since_start(Instant at) const { return to_seconds(at - started_); }
Recorder::Counts Recorder::counts() const {
  return table_ ? Counts{table_->traffic(), table_->staleness()} : Counts{};
}

void Recorder::open(Solver& solver) {
  columns_ = {output_columns(solver.net())};
  for (const auto& net : solver.test_nets()) columns_.push_back(output_columns(*net));
  samples_ = solver.own_items();
  RunMetrics run = options_.run;
  run.name = solver.net().name();
  run.scheme = scheme_;
  if (!options_.metrics.empty())
    writer_ = or_throw(MetricsWriter::open(metrics_path(options_.metrics, run.worker), run,
                                           solver.iteration(), options_.metrics_limit));
  if (!options_.tensorboard.empty())
    events_ = or_throw(EventWriter::open(event_directory(options_.tensorboard, run), run,
                                         solver.iteration(), seconds_since_1970()));
  if (options_.began) options_.began(run);
  // The lines before may be of another scheme.
  if (solver.iteration() > 0) write(PhaseMetrics{solver.iteration(), 0, scheme_});
  if (!options_.esync_logs.empty())
    esync_ = or_throw(EsyncLog::open(str(options_.esync_logs, "/worker", run.worker),
                                     options_.local_steps, solver.iteration()));
}

void Recorder::phase(const std::string& scheme, std::int64_t iteration) {
  if (std::exchange(scheme_, scheme) == scheme || columns_.empty()) return;
  write(PhaseMetrics{iteration, since_start(now()), scheme});
}

Status Recorder::close() {
  flush_round(std::nullopt);
  const auto account = table_ ? table_->account() : std::nullopt;
  if (account && account->ended) {
    write_faults(*account, clock_.clock + 1);
    write(UsefulMetrics{.clock = clock_.clock + 1,
                        .time = account->seconds,
                        .in_params = account->in_params,
                        .computed = account->computed,
                        .possible = account->possible,
                        .losses = account->losses});
  }
  if (events_) note("tensorboard", events_->flush());
  return failure_;
}

// ---- the clock ----

void Recorder::start(std::int64_t iteration, const Net& net) {
  net_ = &net;
  ended_ = now();
  if (!std::exchange(begun_, true)) started_ = ended_;
  before_ = counts();
  rows_before_.reset();
  shown_ = {};
  shown_at_ = iteration;
}

void Recorder::mark(Mark mark, std::int64_t iteration, double data_waited, double rows_waited) {
  // Data take no virtual time.
  const Point here{now(), options_.run.simulated ? 0 : data_waited, rows_waited};
  switch (mark) {
    case Mark::kBegin:
      clock_ = {.worker = options_.run.worker, .clock = iteration, .local_steps = 0};
      // The worker may have waited for a barrier or an assignment since the last iteration.
      waited_before_ = clock_.row_wait = here.rows - rows_before_.value_or(here.rows);
      clock_.other = std::max(0.0, to_seconds(here.at - ended_) - clock_.row_wait);
      begin_ = step_ = passed_ = here;
      break;
    case Mark::kStep:
      // Waiting for permission to begin, and for the rows of the first pass.
      if (clock_.steps.empty()) clock_.row_wait += to_seconds(here.at - begin_.at);
      step_ = passed_ = here;
      clock_.steps.push_back({});
      break;
    case Mark::kPassed:
      write_histograms(iteration);
      passed_ = here;
      break;
    case Mark::kUpdated: {
      StepMetrics& step = clock_.steps.back();
      const double rows = passed_.rows - step_.rows, rows_updating = here.rows - passed_.rows;
      step.data_wait = here.data - step_.data;
      step.compute = std::max(0.0, to_seconds(passed_.at - step_.at) - step.data_wait - rows);
      step.update = std::max(0.0, to_seconds(here.at - passed_.at) - rows_updating);
      clock_.row_wait += rows + rows_updating;
      ++clock_.local_steps;
      break;
    }
    case Mark::kEnd:
      end_clock(iteration);
      rows_before_ = here.rows;
      break;
  }
}

void Recorder::end_clock(std::int64_t iteration) {
  ended_ = now();
  clock_.time = since_start(ended_);
  clock_.samples = samples_ * static_cast<double>(clock_.steps.size());
  for (const StepMetrics& step : clock_.steps) {
    clock_.compute += step.compute;
    clock_.data_wait += step.data_wait;
    clock_.update += step.update;
  }
  // The time that an iteration spent before it was left out.
  const double known = clock_.compute + clock_.data_wait + clock_.update + clock_.row_wait;
  clock_.other += std::max(0.0, to_seconds(ended_ - begin_.at) + waited_before_ - known);
  count(counts());
  write(clock_);
  flush_round(std::nullopt);
  if (esync_) round_ = clock_;
  log_shares(iteration);
  if (options_.tick && ended_ - ticked_ >= std::chrono::milliseconds(500)) {
    ticked_ = ended_;
    options_.tick();
  }
}

void Recorder::count(const Counts& now) {
  const table::Traffic& traffic = now.traffic;
  clock_.bytes_sent = traffic.bytes_sent - before_.traffic.bytes_sent;
  clock_.bytes_received = traffic.bytes_received - before_.traffic.bytes_received;
  clock_.shared_bytes = traffic.shared_bytes - before_.traffic.shared_bytes;
  clock_.pushes = difference(now.staleness.pushes, before_.staleness.pushes);
  clock_.reads = difference(now.staleness.reads, before_.staleness.reads);
  clock_.drops = now.staleness.drops - before_.staleness.drops;
  clock_.send = to_seconds(traffic.sending - before_.traffic.sending);
  clock_.receive = to_seconds(traffic.receiving - before_.traffic.receiving);
  before_ = now;
}

// ---- what is written ----

void Recorder::flush_round(const std::optional<Evaluation>& evaluation) {
  if (esync_ && round_) note("esync_log_dir", esync_->add(*round_, evaluation));
  round_.reset();
}

void Recorder::record(const ScoreMetrics& score) { write(score); }

void Recorder::write(const MetricsRecord& record) {
  if (writer_) note("metrics", writer_->add(record));
  if (events_) note("tensorboard", events_->add(record));
  for (MetricsSink* const sink : options_.sinks) (void)sink->add(record);
}

// Writes how the params and their gradients are distributed, where it is their turn.
void Recorder::write_histograms(std::int64_t iteration) {
  if (!events_ || options_.histograms_every <= 0 || iteration % options_.histograms_every != 0)
    return;
  const double time = since_start(now());
  for (const NetParam& param : net_->params()) {
    const std::string name =
        str(net_->layers()[static_cast<std::size_t>(param.layer)]->name(), "/", param.index);
    for (const auto& [kind, tensor] :
         {std::pair{"params/", &param.blob->data}, std::pair{"gradients/", &param.blob->grad}})
      if (events_)
        note("tensorboard", events_->add_histogram(kind + name, iteration, time, tensor->host()));
  }
}

// Writes the faults that are new, once the others have gone on or the job has ended; at the end
// also those again for which another process has come.
void Recorder::write_faults(const table::AccountBody& account, std::int64_t iteration) {
  const auto known = [](double seconds) {
    return seconds < 0 ? std::nullopt : std::optional(seconds);
  };
  for (const table::AccountBody::Fault& fault : account.faults) {
    if (fault.number <= faults_ && !(account.ended && fault.back >= 0)) continue;
    if (fault.stopped < 0 && !account.ended) return;
    faults_ = std::max(faults_, fault.number);
    write(FaultMetrics{.clock = iteration,
                       .time = fault.since,
                       .number = fault.number,
                       .rank = fault.rank,
                       .host = fault.host,
                       .why = fault.why,
                       .stopped = known(fault.stopped),
                       .back = known(fault.back),
                       .steps = fault.steps});
  }
}

void Recorder::displayed(const Measured& row) {
  ScoreMetrics score{.kind = ScoreMetrics::Kind::kDisplay,
                     .clock = row.iteration,
                     .time = row.seconds,
                     .loss = row.loss,
                     .rate = row.rate};
  for (std::size_t i = 0; i < row.outputs.size() && i < columns_.at(0).size(); ++i)
    score.outputs.emplace_back(columns_[0][i], row.outputs[i]);
  const auto account = table_ ? table_->account() : std::nullopt;
  if (account) score.presence = {account->alive, account->taking_part, account->in_params};
  record(score);
  if (account) write_faults(*account, row.iteration);
  if (next_) next_->displayed(row);
}

void Recorder::tested(int net, const Measured& row) {
  const std::vector<std::string>& names = columns_.at(static_cast<std::size_t>(net) + 1);
  ScoreMetrics score{.kind = ScoreMetrics::Kind::kTest,
                     .clock = row.iteration,
                     .time = row.seconds,
                     .net = net,
                     .loss = row.loss};
  std::optional<double> accuracy;
  for (std::size_t i = 0; i < row.outputs.size() && i < names.size(); ++i) {
    score.outputs.emplace_back(names[i], row.outputs[i]);
    if (!accuracy && names[i].find("accuracy") != std::string::npos) accuracy = row.outputs[i];
  }
  record(score);
  if (net == 0 && round_)
    flush_round(Evaluation{to_seconds(now() - ended_), since_start(now()), accuracy});
  if (next_) next_->tested(net, row);
}

// ---- the log ----

// Logs the chief's own shares of time: the others' lines are in their own files.
void Recorder::log_shares(std::int64_t iteration) {
  if (options_.display == 0 || options_.run.worker != 0) return;
  for (double ClockMetrics::*part :
       {&ClockMetrics::compute, &ClockMetrics::data_wait, &ClockMetrics::row_wait,
        &ClockMetrics::update, &ClockMetrics::other})
    shown_.*part += clock_.*part;
  shown_.bytes_sent += clock_.bytes_sent;
  shown_.bytes_received += clock_.bytes_received;
  shown_.drops += clock_.drops;
  add(shown_.pushes, clock_.pushes);
  if ((iteration + 1) % options_.display != 0) return;
  const double whole = std::max(
      1e-9, shown_.compute + shown_.data_wait + shown_.row_wait + shown_.update + shown_.other);
  const auto share = [&](double part) { return str(std::lround(100 * part / whole), "%"); };
  LOG(INFO) << "    Worker 0, iterations " << shown_at_ << " to " << iteration << ": compute "
            << share(shown_.compute) << ", data wait " << share(shown_.data_wait) << ", row wait "
            << share(shown_.row_wait) << ", update " << share(shown_.update)
            << ", tests and the like " << share(shown_.other) << "; "
            << megabytes(shown_.bytes_sent) << " MB sent, " << megabytes(shown_.bytes_received)
            << " MB received; staleness of pushes " << words_of(shown_.pushes)
            << (shown_.drops > 0 ? str("; ", shown_.drops, " rows dropped") : "");
  shown_ = {};
  shown_at_ = iteration + 1;
}

void Recorder::note(const char* flag, const Status& status) {
  if (status.ok() || !failure_.ok()) return;
  failure_ = Error{status.error().code, str("--", flag, ": ", status.error().message)};
  LOG(WARNING) << failure_.error().message << "; training goes on without these measurements";
  writer_.reset();
  events_.reset();
  esync_.reset();
}

}  // namespace shoal::parallel
