// How a worker's table begins: connections with the servers, a plan that all agree on, and rows
// with the chief's numbers.
#include <algorithm>
#include <future>
#include <sstream>
#include <utility>
#include <variant>

#include "shoal/base/bytes.h"
#include "shoal/base/log.h"
#include "shoal/base/sha256.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/link/table_over_tcp.h"
#include "shoal/table/scheme.h"

namespace shoal::table {
namespace {

// A plan line by line, so that a difference can be shown.
std::string describe(const Plan& plan) {
  std::string rows;
  std::size_t floats = 0;
  for (const Row& row : plan.rows) {
    floats += row.length;
    rows += str(row.length, ' ', row.priority, ' ', row.server, ' ', row.learns, ' ', row.lr_mult,
                ' ', row.decay_mult, '\n');
  }
  Sha256 hash;
  hash.update(rows);
  const optim::RuleOptions& rule = plan.rule;
  return str(
      "generation: ", plan.generation, "\nworkers: ", plan.workers, "\nservers: ", plan.servers,
      "\nstart: ", plan.start, "\nrule: ", optim::name_of(rule.rule), "\nmomentum: ", rule.momentum,
      "\nmomentum2: ", rule.momentum2, "\nrms_decay: ", rule.rms_decay, "\ndelta: ", rule.delta,
      "\nregularization: ", plan.regularization == optim::Regularization::kL1 ? "L1" : "L2",
      "\nweight_decay: ", plan.weight_decay, "\nclip: ", plan.clip, "\niter_size: ", plan.iter_size,
      "\nscheme: ", plan.scheme, "\nrows: ", plan.rows.size(), "\nnumbers: ", floats,
      "\nrows' digest: ", hash.finish(), "\n");
}

// The first lines that differ: "'clip: 1' where the chief has 'clip: 2'".
std::string difference_of(const std::string& mine, const std::string& chiefs) {
  std::istringstream a(mine), b(chiefs);
  std::string one, other;
  while (std::getline(a, one) && std::getline(b, other))
    if (one != other) return str("'", one, "' where worker 0 has '", other, "'");
  return "another number of lines";
}

}  // namespace

TableOverTcp::TableOverTcp(Job& job, IoThreads& threads, Envoy& envoy, Talks& talks,
                           ShardHost* shard)
    : job_(job), envoy_(envoy), shard_(shard), talks_(talks), strand_(threads) {
  worker_ = job.roster()->processes[job.options.rank].worker;
}

// Those of the roster, in its order. Connections that there are stay.
void TableOverTcp::take_servers() {
  std::vector<Server> next;
  own_server_ = roster().processes[job_.options.rank].server;
  for (const RosterBody::Process& process : roster().processes) {
    if (process.server < 0) continue;
    const auto known = std::ranges::find(servers_, process.rank, &Server::rank);
    if (known != servers_.end()) {
      next.push_back(std::move(*known));
      known->line.reset();
      continue;
    }
    const bool own = process.rank == job_.options.rank;
    auto line =
        own ? nullptr : std::make_unique<Line>(job_, strand_, Purpose::kRows, process.rank, *this);
    next.push_back({.rank = process.rank, .line = std::move(line), .up = own, .initial = {}});
  }
  MutexLock lock(job_.mutex);
  for (Server& server : servers_)
    if (server.line) former_.push_back(std::move(server.line));
  servers_ = std::move(next);
}

Status TableOverTcp::connect() {
  const auto done = std::make_shared<std::promise<void>>();
  strand_.post([this, done] {
    client_.reset();  // nothing of a generation before is waited for
    take_servers();
    for (const auto& line : former_) line->close(true);
    for (const Server& server : servers_) {
      if (server.up || !server.line) continue;
      std::string address = roster().processes[server.rank].address;
      if (server.rank == 0 && is_anywhere(split_address(address).host))
        address = job_.options.coordinator;
      server.line->open(address, job_.options.connect);
    }
    done->set_value();
  });
  constexpr std::chrono::seconds kLong{10};  // for a strand that nothing holds up
  if (done->get_future().wait_for(kLong) != std::future_status::ready)
    return Error{Code::kInternal, "the thread that moves rows does not answer"};
  const auto late = [this](double seconds) {
    LOG(WARNING) << "has tried to connect with all servers for " << seconds << " s";
  };
  const auto all_up = [this] {
    return std::all_of(servers_.begin(), servers_.end(), [](const Server& s) { return s.up; });
  };
  return job_.wait(kForever, job_.options.stall_warn, all_up, late);
}

Status TableOverTcp::create(const Plan& plan, const Source& initial,
                            const Destination& destination) {
  if (Status status = settle(); !status.ok()) return status;  // of the last generation
  if (Status status = agree(plan); !status.ok()) return status;
  requested_.assign(plan.rows.size(), 0);
  {
    MutexLock lock(job_.mutex);
    arrived_.assign(plan.rows.size(), 0);
    awaited_.assign(plan.rows.size(), 0);
    for (Server& server : servers_) server.ready = false;
  }
  pushed_ = plan.start_of(worker_);
  talks_.begin(pushed_);
  alone_ = plan.workers == 1;
  // before the last round below: so before anybody asks for a task
  if (worker_ == 0) tell(Topic::kScheme, plan.generation, plan.scheme);
  if (const auto scheme = make_scheme(plan.scheme); scheme.ok()) {
    talks_.follow(scheme.value()->task().paced, scheme.value()->bounded());
    waited_for_ = scheme.value()->waits_for_others();
  }
  auto first =
      worker_ == 0 ? initial_of(plan, initial) : std::vector<std::vector<Message>>(servers_.size());
  strand_.post([this, plan, destination, first = std::move(first)]() mutable {
    plan_ = std::move(plan);
    retired_ = -1;
    taken_.assign(plan_.rows.size(), 0);
    client_ = std::make_unique<Client>(
        ClientOptions{.worker = worker_, .order = job_.options.order}, plan_, destination);
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      servers_[s].initial = std::move(first[s]);
      if (static_cast<int>(s) == own_server_ && !servers_[s].initial.empty())
        std::get<PlanMessage>(servers_[s].initial[0]).in_place = [destination](RowId row) {
          return destination(row, Part::kWeights);
        };
      for (const Message& message : servers_[s].initial) say(static_cast<int>(s), message);
    }
    if (!std::exchange(ticks_, true)) tick();
  });
  if (worker_ == 0) {
    const auto ready = [this] {
      return std::all_of(servers_.begin(), servers_.end(), [](const Server& s) { return s.ready; });
    };
    const auto late = [](double seconds) {
      LOG(WARNING) << "has waited for the servers to take the first weights for " << seconds
                   << " s";
    };
    if (Status status = job_.wait(kForever, job_.options.stall_warn, ready, late); !status.ok())
      return status;
    strand_.post([this] {
      for (Server& server : servers_) server.initial.clear();
    });
  }
  const Result<std::string> all = talks_.ask(Topic::kBarrier, rows_exist(plan.generation), {});
  return all.ok() ? Status() : Status(all.error());
}

Result<bool> TableOverTcp::regroup(const SegmentBody& end) {
  if (Status status = settle(); !status.ok()) return status.error();
  const Result<std::string> answer =
      talks_.ask(Topic::kRegroup, roster().generation + 1, encode(end));
  if (!answer.ok()) return answer.error();
  Result<RosterBody> next = decode_roster(answer.value());
  if (!next.ok()) return next.error();
  job_.know(std::move(next).value());
  worker_ = roster().processes[job_.options.rank].worker;
  if (worker_ < 0) {
    job_.leave();
    return false;
  }
  if (Status status = connect(); !status.ok()) return status.error();
  return true;
}

// Whoever waits for this worker's pushes is to go on at once.
Result<bool> TableOverTcp::leave(Clock clock, std::string state) {
  if (Status status = settle(); !status.ok()) return status.error();
  talks_.end(clock);
  retire(pushed_);
  const Result<std::string> answer =
      talks_.ask(Topic::kLeave, clock, encode(LeaveBody{true, std::move(state)}));
  if (!answer.ok()) return answer.error();
  if (answer.value() != "\1") return false;
  job_.leave();
  return true;
}

// That the plan is good, and all workers' the same; who comes here has no push on its way.
Status TableOverTcp::agree(const Plan& plan) {
  std::string wrong = validate(plan);
  if (wrong.empty() && plan.servers != servers_.size())
    wrong = str("the plan is for ", plan.servers, " servers, and the job has ", servers_.size());
  const std::string mine = describe(plan);
  if (wrong.empty()) {
    const Result<std::string> chiefs =
        talks_.ask(Topic::kBarrier, all_drained(plan.generation), worker_ == 0 ? mine : "");
    if (!chiefs.ok()) return chiefs.error();
    if (chiefs.value() != mine)
      wrong = str("worker ", worker_, " plans with ", difference_of(mine, chiefs.value()));
  }
  if (wrong.empty()) return {};
  const Error error{
      Code::kConfig,
      str(wrong, ": do all processes train the same net, with the same solver and flags?")};
  abort(error);
  return error;
}

// What the chief tells each server: the plan, then of each of its rows the histories, then the
// weights, which complete it.
std::vector<std::vector<Message>> TableOverTcp::initial_of(const Plan& plan,
                                                           const Source& initial) const {
  std::vector<std::vector<Message>> messages(servers_.size(), {PlanMessage{plan}});
  constexpr Part kParts[] = {Part::kHistory, Part::kHistory2};
  for (RowId row = 0; row < plan.rows.size(); ++row) {
    std::vector<Message>& to = messages[plan.rows[row].server];
    for (int part = 0; part < optim::histories(plan.rule.rule); ++part) {
      const std::span<const float> numbers = initial(row, kParts[part]);
      if (!numbers.empty())
        to.push_back(Init{.row = row,
                          .part = kParts[part],
                          .payload = as_payload({numbers}),
                          .generation = plan.generation});
    }
    to.push_back(Init{.row = row,
                      .part = Part::kWeights,
                      .payload = as_payload({initial(row, Part::kWeights)}),
                      .generation = plan.generation});
  }
  return messages;
}

}  // namespace shoal::table
