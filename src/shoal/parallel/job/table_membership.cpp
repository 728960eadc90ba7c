// TableMembership is the JobMembership of a process with a table. In each generation it takes the
// worker's number, data share and team from the roster, has links measured, makes the updater, and
// asks for the next generation. It logs the scheme, the exchange and the traffic.
#include <algorithm>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/parallel/job/account.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/job/membership.h"
#include "shoal/parallel/job/plan.h"
#include "shoal/parallel/job/shares.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/tuning/link_times.h"
#include "shoal/parallel/tuning/speed_tuner.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "shoal/table/in_vain.h"
#include "shoal/table/placement.h"

namespace shoal::parallel {
namespace {

class TableMembership final : public JobMembership {
 public:
  TableMembership(const RunOptions& options, const JobSpec& spec, table::Table& table)
      : JobMembership(options, spec.name),
        spec_(spec),
        table_(table),
        shares_by_(shares_by(spec.solver, spec.name, !options.weights.empty())),
        tuner_(table, options.meter, files(), share_search(spec.solver, shares_by_)),
        generation_(table.roster().generation),
        is_new_(generation_ == 0),
        joined_(!is_new_) {
    take_roster();
    // A process keeps its part of the data, whatever its number becomes.
    if (share_.suffix.empty()) share_.suffix = std::to_string(share_.client);
  }

  std::vector<table::Clock> clocks() const override {
    return table_.roster().generation == generation_ && !is_new_ ? clocks_of(table_.roster())
                                                                 : std::vector<table::Clock>();
  }
  bool has_other_plans() const override { return generation_ > 0; }
  bool same_workers() const override { return ranks_of(table_.roster()) == trained_; }

  std::optional<table::SchemeSpec> joined() const override {
    return joined_ ? table_.roster().scheme : std::nullopt;
  }

  void check(const SolverParameter& solver, const std::vector<Phase>& phases) const override {
    if (options_.profile_only && !has_search(phases))
      throw ConfigError(Code::kUsage, name_,
                        ": --profile_only: no scheme of the run has group_by: SPEED");
    if (team_->chief()) or_throw(check_writable(files()));
    // In a job that goes on, the others have checked this, with other workers.
    for (const Phase& phase : phases)
      if (generation_ == 0 && !phase.search)
        check_fit(with_phase(solver, phase), name_, *or_throw(phase.scheme.make()), share_.clients);
  }

  // Measures links instead of training, in a generation whose roster says so.
  Result<bool> prepare(std::int64_t iteration, std::int64_t phase_end,
                       table::SchemeSpec& scheme) override {
    while (table_.roster().generation == generation_ && table_.roster().measures) {
      Result<std::vector<double>> found = measure_servers(table_, *team_, scheme);
      if (!found.ok()) return failed(found.error());
      const Result<bool> stays = regroup({.clock = iteration,
                                          .phase_end = phase_end,
                                          .weights = share_.weights,
                                          .bandwidths = std::move(found).value()});
      if (!stays.ok()) return failed(stays.error());
      if (!stays.value()) return stays;
      scheme = table_.roster().scheme.value_or(scheme);
      links_are_new_ = true;
    }
    rates_ = rates_of(spec_.solver);
    if (share_.clients < 2 || !(needs_rates(spec_.solver) || needs_codec_rates(spec_.solver)))
      return true;
    const Result<Rates> measured =
        measure_rates(table_, *team_, {.device = options_.device, .threads = options_.threads});
    if (!measured.ok()) return failed(measured.error());
    rates_ = rates_of(spec_.solver, measured.value());
    rates_.codecs = measured.value().codecs;
    return true;
  }

  std::unique_ptr<Updater> make_updater(const SolverParameter& solver,
                                        const table::SchemeSpec& scheme, std::int64_t phase_end,
                                        Net& net) override {
    const auto made = or_throw(scheme.make());
    check_fit(solver, name_, *made, share_.clients);
    codecs_ = choose_codecs(net, solver, name_, *made, share_.clients, rates_);
    choices_ = choose_exchanges(net, solver, name_, *made, job_size(), rates_, codecs_);
    const std::uint8_t copies = copies_of(solver, name_, table_.roster());
    copies_ = table_.can_copy() ? copies : 1;
    const WorkerOptions options{.name = name_,
                                .scheme = scheme,
                                .weight = contribution_weight(solver, name_, net.context().share()),
                                .until = phase_end,
                                .generation = generation_,
                                .servers = servers(),
                                .updates_beside = options_.updates_beside,
                                .copies = copies_,
                                .rates = rates_};
    return make_exchanges({solver, net, table_, options, *made, ways_of(net, choices_), codecs_});
  }

  Meter* meter() override { return &tuner_.meter(); }

  void report(Solver& solver, const table::SchemeSpec& scheme, bool is_first) override {
    const auto made = or_throw(scheme.make());
    if (std::exchange(links_are_new_, false) && team_->chief())
      LOG(INFO) << "Iteration " << solver.iteration() << ": the servers' links were measured"
                << (servers().speeds.empty() ? " and are alike: " : ": ") << placement(solver);
    if (team_->chief()) report_exchange(solver);
    if (team_->chief() && share_.clients > 1) report_losses();
    forecast_ = forecast_of(solver.net(), choices_, job_size(), rates_,
                            spec_.solver.iter_size() * std::max(1, made->task.steps),
                            clips_all(spec_.solver, name_, *made));
    if (!is_first) return;
    if (team_->chief()) {
      LOG(INFO) << "Scheme " << scheme.words() << "; " << placement(solver);
      const std::string caution = made->caution(share_.clients);
      if (!caution.empty()) LOG(WARNING) << "Scheme " << scheme.words() << ": " << caution;
    }
    if (std::exchange(joined_, false))
      LOG(WARNING) << "Iteration " << solver.iteration() << ": has joined the job, as worker "
                   << share_.client << " of " << share_.clients;
  }

  void begin(const Solver& solver, const Phase& phase, std::int64_t phase_end) override {
    if (!team_->chief()) return;
    const double records = options_.records ? static_cast<double>(options_.records(share_)) : 0;
    tuner_.begin(phase, share_,
                 {.records = records,
                  .items = solver.own_items(),
                  .iterations = phase_end - solver.iteration()});
  }

  // Returns whether the chief needs the speeds of links, or is to measure the groups again.
  bool wants_regroup() override {
    const bool measure = measures() && generation_ == 0 && servers_of(table_.roster()) > 1 &&
                         !std::exchange(asked_to_measure_, true);
    return measure || tuner_.due();
  }

  // Returns whether this worker has become the chief, and the job's snapshots are elsewhere: on the
  // disk of a chief that is gone.
  bool wants_snapshot() override {
    if (!std::exchange(leads_anew_, false) || spec_.solver.snapshot() <= 0 || has_snapshot())
      return false;
    LOG(WARNING) << "This worker leads the job now, and there is no snapshot under "
                 << spec_.solver.snapshot_prefix() << " on its machine: it writes one";
    return true;
  }

  Result<SegmentStart> next(const SegmentEnd& end) override {
    trained_ = ranks_of(table_.roster());
    is_new_ = false;
    const int workers = share_.clients;
    auto searched =
        tuner_.find({*team_, table_.roster(), end.scheme, share_.weights, end.iteration, end.items},
                    end.phase, end.next);
    TRY(searched);
    SegmentStart start;
    table::SegmentBody body{.clock = end.iteration};
    if (end.next || end.within) body.phase_end = end.phase_end;
    if (end.next && !end.within) body.next_scheme = end.next->scheme;
    if (shares_by_ != SolverParameter::EQUAL) body.weights = share_.weights;
    if (const auto& found = searched.value()) body.weights = found->weights;
    if (searched.value() && searched.value()->scheme) {
      start.found = searched.value()->scheme;
      body.scheme = start.found;
      start.ending = options_.profile_only ? Ending::kDone : Ending::kContinues;
    }
    if (start.ending == Ending::kDone) return start;
    if (generation_ == 0) body.bandwidths = options_.bandwidths;
    const Result<bool> stays = regroup(std::move(body));
    TRY(stays);
    if (!stays.value()) start.ending = Ending::kLeft;
    const table::RosterBody& roster = table_.roster();
    if (roster.generation != generation_) return start;
    start.scheme = roster.scheme;
    if (!roster.why.empty()) report_members(end.iteration, workers);
    return start;
  }

  Result<bool> begin_anew(std::int64_t iteration, std::int64_t phase_end,
                          table::SchemeSpec& scheme) override {
    // Its end was agreed on, unless it passes by itself.
    const Result<table::Want> want =
        table_.roster().measures ? table::Want::kRegroup : table_.end_of_generation();
    TRY(want);
    table::SegmentBody body{.clock = iteration, .phase_end = phase_end};
    if (shares_by_ != SolverParameter::EQUAL) body.weights = share_.weights;
    if (generation_ == 0) body.bandwidths = options_.bandwidths;
    const int workers = share_.clients;
    const Result<bool> stays = regroup(std::move(body));
    if (!stays.ok() || !stays.value()) return stays;
    if (want.value() != table::Want::kRegroup)
      table_.tell(table::Topic::kPause, iteration, encode(want.value()));
    scheme = table_.roster().scheme.value_or(scheme);
    report_members(iteration, workers);
    return true;
  }

  Status finish(std::int64_t iteration, std::int64_t iterations,
                const table::SchemeSpec& scheme) override {
    TRY(table_.finish(iteration));
    LOG(INFO) << "Iteration " << iteration << ": scheme " << scheme.words() << " ends";
    // The traffic of this process, as worker and as server, includes all that is not params: tests,
    // snapshots, heartbeats.
    const table::Traffic all = table_.traffic();
    const auto each = [&](std::uint64_t bytes) {
      return static_cast<double>(bytes) /
             static_cast<double>(std::max<std::int64_t>(1, iterations));
    };
    LOG(INFO) << "Traffic: " << each(all.bytes_sent) << " bytes sent and "
              << each(all.bytes_received) << " received an iteration, " << each(all.shared_bytes)
              << " of those sent through shared memory, " << each(all.local_bytes)
              << " within this process";
    if (team_->chief()) compare_forecast();
    if (const auto account = table_.account(); account && account->ended)
      for (const std::string& line : lines_of(*account)) LOG(INFO) << line;
    return {};
  }
  void abort(const Error& error) override { table_.abort(error); }
  void release() override { table_.release(); }

 private:
  ProfileFiles files() const { return {options_.groups_out, options_.data_sharding_out}; }
  bool has_snapshot() const {
    try {
      return !newest_snapshot(spec_.solver.snapshot_prefix()).empty();
    } catch (const ConfigError&) {
      return false;  // there are some, and none is whole
    }
  }
  bool measures() const { return options_.measure_servers && team_->chief(); }

  void report_members(std::int64_t iteration, int before) const {
    const auto& [why, scheme] = std::tie(table_.roster().why, table_.roster().scheme);
    LOG(INFO) << "Iteration " << iteration << ": continuing with " << share_.clients
              << " workers (was " << before << "), scheme "
              << (scheme ? scheme->words() : "as before") << ": " << why;
  }
  Error failed(const Error& error) {
    if (!table::is_in_vain(error)) table_.abort(error);
    return error;
  }

  // Returns false if this process is not in the next generation.
  Result<bool> regroup(table::SegmentBody end) {
    end.measures = measures();
    Result<bool> stays = table_.regroup(end);
    if (!stays.ok() || !stays.value()) return stays;
    ++generation_;
    const bool led = share_.client == 0;
    take_roster();
    if (team_->chief() && !led) leads_anew_ = true;
    if (options_.leads) options_.leads(team_->chief());
    return stays;
  }

  // Takes this process's number and team in the generation.
  void take_roster() {
    share_.client = table_.worker();
    share_.clients = workers_of(table_.roster());
    share_.in_parts = share_.in_parts || share_.clients > 1;
    share_.weights.clear();
    for (const auto& process : table_.roster().processes)
      if (process.worker >= 0 && process.weight > 0) share_.weights.push_back(process.weight);
    if (generation_ == 0 && shares_by_ == SolverParameter::WEIGHT) share_.weights = given_weights();
    team_ = make_table_team(table_, generation_);
  }

  const std::vector<double>& given_weights() const {
    const auto workers = static_cast<std::size_t>(share_.clients);
    if (options_.weights.empty())
      throw ConfigError(Code::kConfig, name_,
                        ": shares by WEIGHT, and no worker has a weight: give weight= in the "
                        "machinefile, or --data_sharding");
    if (options_.weights.size() != workers)
      throw ConfigError(Code::kConfig, name_, ": ", options_.weights.size(),
                        " weights are given for the shares of ", workers, " workers");
    return options_.weights;
  }

  table::Servers servers() const {
    if (options_.servers) return *options_.servers;
    return servers_of(table_.roster(), table_.roster().generation > 0
                                           ? bandwidths_of(table_.roster())
                                           : options_.bandwidths);
  }

  JobSize job_size() const { return job_size_of(table_.roster(), share_.replicas); }

  // Logs the ways by which the gradients of layers travel, in each generation.
  void report_exchange(Solver& solver) const {
    if (options_.explain_exchange)
      LOG(INFO) << "Exchange: " << table_of(solver.net(), choices_, rates_);
    if (const std::string words = summary_of(solver.net(), choices_); !words.empty())
      LOG(INFO) << "Exchange: " << words;
    if (options_.explain_exchange)
      LOG(INFO) << "Exchange: " << table_of(solver.net(), codecs_, spec_.solver);
    if (const std::string words = summary_of(solver.net(), codecs_, spec_.solver); !words.empty())
      LOG(INFO) << "Codecs: " << words;
  }

  // Logs which processes the job can lose, where that is new.
  void report_losses() {
    const auto goes_by = [this](auto is_such) {
      return std::ranges::any_of(choices_,
                                 [&](const LayerExchange& one) { return is_such(one.way); });
    };
    const bool by_servers = goes_by([](Way way) { return way == Way::kTable; });
    std::string words;
    if (spec_.solver.on_lost() == OnLost::STOP)
      words = "a process that is lost ends the job (on_lost: STOP)";
    else if (goes_by(is_of_library))
      words =
          "a process that is lost ends the job, since MPI and NCCL sum with all processes or none; "
          "the other exchanges go on without it";
    else if (servers_of(table_.roster()) < 2 && by_servers)
      words =
          "the job goes on without a process that is lost; with the only server its params' last "
          "updates and histories are lost, and a worker becomes one";
    else if (copies_ < 2 && by_servers)
      words =
          "the job goes on without a process that is lost; with a lost server its params' last "
          "updates and histories are lost (copies: 2 keeps them)";
    else
      words = "the job goes on without a process that is lost";
    if (words != losses_) LOG(INFO) << "Losses: " << words;
    losses_ = words;
  }

  // Logs the predicted and the measured time of the last segment.
  void compare_forecast() const {
    const Speedometer& measured = tuner_.speedometer();
    if (rates_.bandwidth <= 0 || !forecast_ || measured.iterations() == 0) return;
    LOG(INFO) << "Exchange: an iteration took " << measured.seconds() * 1e3 << " ms, with "
              << measured.busy() * 1e3 << " ms of this worker's own work; predicted: "
              << forecast_->seconds_of_busy(measured.busy()) * 1e3 << " ms";
  }

  // Returns "7 rows of params on 2 servers, with 40000, 8000 bytes, by the bandwidths of their
  // links: 1e+08, 2e+07 bytes/s".
  std::string placement(Solver& solver) const {
    const table::Servers on = servers();
    const RowMap map(solver.net(), on,
                     {.stays = is_alone(table_.roster()),
                      .replicated = replicated_by(ways_of(solver.net(), choices_))});
    std::vector<std::string> bytes, bandwidths;
    for (const std::size_t each : table::bytes_per_server(map.rows(), on.count))
      bytes.push_back(str(each));
    for (const table::ServerSpeed& server : on.speeds)
      bandwidths.push_back(str(static_cast<float>(server.bandwidth)));
    return str(map.rows().size(), " rows of params on ", on.count,
               on.count == 1 ? " server" : " servers", ", with ", join(bytes), " bytes",
               bandwidths.empty()
                   ? ""
                   : str(", by the bandwidths of their links: ", join(bandwidths), " bytes/s"));
  }

  const JobSpec& spec_;
  table::Table& table_;
  const SolverParameter::ShareBy shares_by_;
  SpeedTuner tuner_;
  table::Generation generation_;        // of the plan
  std::vector<std::uint32_t> trained_;  // the ranks of the workers of the last segment
  bool is_new_;                         // the job has not trained yet
  bool joined_;                         // a job that was training, and has not begun itself
  bool links_are_new_ = false;          // the links were measured since the last segment
  bool leads_anew_ = false;             // since the last segment
  bool asked_to_measure_ = false;
  Rates rates_;                         // of this generation
  std::vector<LayerExchange> choices_;  // of this segment
  std::vector<LayerCodecs> codecs_;     // likewise, by layer of the net
  std::uint8_t copies_ = 1;             // of rows, likewise
  std::optional<Forecast> forecast_;    // likewise
  std::string losses_;                  // what the log says of them
};

}  // namespace

std::unique_ptr<JobMembership> make_table_membership(const RunOptions& options, const JobSpec& spec,
                                                     table::Table& table) {
  return std::make_unique<TableMembership>(options, spec, table);
}

}  // namespace shoal::parallel
