#include "support/simulated_cluster.h"
#include "support/schemes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "shoal/base/random.h"
#include "shoal/table/placement.h"
#include "shoal/table/shard.h"
#include "support/simulated_worker.h"
#include "support/twice_codec.h"

namespace shoal::table {
namespace {

class Cluster {
 public:
  explicit Cluster(const ClusterCase& one);
  ClusterRun run();

 private:
  void connect();
  void create_rows(const std::vector<std::vector<float>>& numbers);
  std::vector<std::vector<float>> end();
  void begin_next();
  void connect_copies(std::uint64_t stream);
  void handle(int server, int worker, const Message& message);
  void hear_server(int server, int from, const Message& message);
  void dispatch(int server, const Outbox& out);
  void lose();
  void tell_shard(int server);
  bool is_dead(int server) const { return died_ && server == job_.loss->server; }
  // Returns the server that has the row now.
  Shard& owner_of(RowId row) {
    const int server = job_.plan.rows[row].server;
    return shard(is_dead(server) ? job_.plan.copy_of(server) : server);
  }
  void add(const Norm& norm);
  void check_queues();
  SimulatedWorker::Surroundings surroundings(int worker) {
    return {job_, time_, history_,
            [this, worker](int server) -> UnreliableLink& { return link(worker, server); }};
  }
  Shard& shard(int server) { return *shards_[static_cast<std::size_t>(server)]; }
  UnreliableLink& adder(int server) { return *adders_[static_cast<std::size_t>(server)]; }
  UnreliableLink& link(int worker, int server) {
    return *links_[static_cast<std::size_t>(worker) * job_.plan.servers +
                   static_cast<std::size_t>(server)];
  }

  ClusterCase job_;
  VirtualTime time_;
  std::optional<History> history_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;  // by worker, those of the plan
  std::vector<std::unique_ptr<SimulatedWorker>> former_;   // of the generation before
  // The links of a worker to each server, one worker after the other; the servers' links to the
  // adder.
  std::vector<std::unique_ptr<UnreliableLink>> links_, adders_;
  std::vector<std::unique_ptr<UnreliableLink>> copies_;  // from each server to that with its copies
  const bool copies_keep_;                               // some rows have two copies
  bool died_ = false;                                    // as job_.loss says
  std::vector<bool> told_;                               // of it, by server
  Random losses_;
  std::map<std::pair<Generation, Clock>, std::vector<std::optional<double>>> norms_;
  std::vector<std::size_t> own_bytes_;  // of weights, by server
};

HistoryRules rules_of(const Segment& one, int lost, std::vector<std::vector<float>> base) {
  return {.workers = one.plan.workers,
          .start = one.plan.start,
          .stops = one.stops,
          .staleness = one.staleness,
          .skipped = one.skipped,
          .lockstep = one.staleness == 0,
          .exact = one.exact,
          .clocks = one.plan.clocks,
          .lost = lost,
          .base = std::move(base)};
}

Cluster::Cluster(const ClusterCase& one)
    : job_(one),
      history_(rules_of(one, one.loss ? one.loss->worker : -1, {})),
      copies_keep_(one.plan.copies == 2 || (one.next && one.next->plan.copies == 2)),
      told_(one.plan.servers),
      losses_(one.seed, 6),
      own_bytes_(one.plan.servers) {
  for (int server = 0; server < job_.plan.servers; ++server)
    shards_.push_back(std::make_unique<Shard>(server, &SchemeSpec::make, test::find_test_codec));
  for (int worker = 0; worker < job_.plan.workers; ++worker)
    workers_.push_back(std::make_unique<SimulatedWorker>(surroundings(worker), worker));
  for (const Row& row : job_.plan.rows)
    own_bytes_[row.server] += std::max(test::find_test_codec(row.push_codec)->bound(row.length),
                                       test::find_test_codec(row.pull_codec)->bound(row.length));
  connect();
}

void Cluster::connect() {
  std::uint64_t stream = 0;
  const std::size_t most =
      std::max<std::size_t>(job_.plan.workers, job_.next ? job_.next->plan.workers : 0);
  for (int worker = 0; worker < static_cast<int>(most); ++worker) {
    for (int server = 0; server < job_.plan.servers; ++server) {
      const auto owner = [this, worker] {
        return static_cast<std::size_t>(worker) < workers_.size()
                   ? workers_[static_cast<std::size_t>(worker)].get()
                   : nullptr;
      };
      const auto received = [this, owner, server](const Message& message) {
        if (owner() && !is_dead(server)) owner()->received(server, message);
      };
      const auto next = [owner, server] { return owner() ? owner()->next(server) : std::nullopt; };
      const auto up = [owner, server] {
        if (owner()) owner()->link_up(server);
      };
      UnreliableEnd client{received, next, up};
      UnreliableEnd shard{.received = [this, server, worker](const Message& message) {
        handle(server, worker, message);
      }};
      links_.push_back(std::make_unique<UnreliableLink>(
          time_, job_.network, Random(job_.seed, ++stream), std::move(client), std::move(shard)));
    }
  }
  for (int server = 0; server < job_.plan.servers; ++server) {
    UnreliableEnd shard{
        .received = [this, server](const Message& message) { handle(server, -1, message); }};
    UnreliableEnd adder{
        .received = [this](const Message& message) { add(std::get<Norm>(message)); }};
    adders_.push_back(std::make_unique<UnreliableLink>(
        time_, job_.network, Random(job_.seed, ++stream), std::move(shard), std::move(adder)));
  }
  connect_copies(stream);
}

// Servers know when a connection between them breaks, so that no message is lost while it is up.
void Cluster::connect_copies(std::uint64_t stream) {
  UnreliableLinkOptions options = job_.network;
  options.faults.lose = options.faults.reorder = 0;
  for (int server = 0; server < job_.plan.servers; ++server) {
    const int copy = job_.plan.copy_of(server);
    UnreliableEnd first{
        .received = [this, server,
                     copy](const Message& message) { hear_server(server, copy, message); },
        .up =
            [this, server] {
              Outbox out;
              if (!is_dead(server)) shard(server).send_updates(out);
              dispatch(server, out);
            }};
    UnreliableEnd second{.received = [this, server, copy](const Message& message) {
      hear_server(copy, server, message);
    }};
    copies_.push_back(std::make_unique<UnreliableLink>(time_, options, Random(job_.seed, ++stream),
                                                       std::move(first), std::move(second)));
  }
}

void Cluster::hear_server(int server, int from, const Message& message) {
  if (is_dead(server) || (is_dead(from) && told_[static_cast<std::size_t>(server)])) return;
  Outbox out;
  const Status handled = shard(server).hear_server(message, out);
  if (!handled.ok()) history_->say(handled.error().message);
  dispatch(server, out);
}

void Cluster::dispatch(int server, const Outbox& out) {
  for (const Outgoing& each : out) {
    if (is_to_server(each.to)) {
      const bool is_update = std::holds_alternative<Update>(each.message);
      copies_[static_cast<std::size_t>(is_update ? server : server_of(each.to))]->send(
          is_update ? 0 : 1, each.message);
    } else if (each.to != kCoordinator) {
      link(each.to, server).send(1, each.message);
    } else {
      adder(server).send(0, each.message);
    }
  }
}

// ---- a loss ----

void Cluster::lose() {
  died_ = true;
  const auto [at, lost, server] = *job_.loss;
  if (lost >= 0) workers_[static_cast<std::size_t>(lost)]->die();
  const auto soon = [this] { return std::chrono::microseconds(losses_.below(200'000)); };
  for (int other = 0; other < job_.plan.servers; ++other)
    time_.after(soon(), [this, other] { tell_shard(other); });
  if (server < 0) return;
  for (const auto& worker : workers_)
    time_.after(soon(), [&worker, server] {
      if (!worker->is_dead()) worker->fail_over(server);
    });
}

void Cluster::tell_shard(int server) {
  if (is_dead(server)) return;
  told_[static_cast<std::size_t>(server)] = true;
  Outbox out;
  if (job_.loss->server >= 0) shard(server).lose_server(job_.loss->server, out);
  shard(server).leave(job_.loss->worker, out);
  dispatch(server, out);
}

void Cluster::handle(int server, int worker, const Message& message) {
  const bool is_late =
      worker >= 0 && told_[static_cast<std::size_t>(server)] && worker == job_.loss->worker;
  if (is_dead(server) || is_late) return;
  Outbox out;
  const Status handled = shard(server).handle(worker, message, out);
  if (!handled.ok()) history_->say(handled.error().message);
  dispatch(server, out);
  // Weights and histories of its rows, twice where one is being sent, and of each worker at most
  // one push of each.
  const std::size_t parts = 1 + static_cast<std::size_t>(optim::histories(job_.plan.rule.rule));
  std::size_t own = own_bytes_[static_cast<std::size_t>(server)];
  if (copies_keep_) own = 2 * std::accumulate(own_bytes_.begin(), own_bytes_.end(), own);
  const std::size_t most = own * (2 * parts + job_.plan.workers);
  const std::size_t held = shard(server).bytes_held();
  if (held > most)
    history_->say(str("I8: server ", server, " holds ", held, " bytes, above ", most));
}

// Adds the norms in the order of servers, when all have sent theirs; again for a server that asks
// again.
void Cluster::add(const Norm& norm) {
  auto& squares = norms_[{norm.generation, norm.clock}];
  squares.resize(job_.plan.servers);
  const bool was_whole =
      std::ranges::all_of(squares, [](const auto& each) { return each.has_value(); });
  if (squares[norm.server] && *squares[norm.server] != norm.squares)
    history_->say(str("I5: server ", norm.server, " says two norms of clock ", norm.clock));
  squares[norm.server] = norm.squares;
  double total = 0;
  for (const auto& each : squares) {
    if (!each) return;
    total += *each;
  }
  for (int server = 0; server < job_.plan.servers; ++server)
    if (!was_whole || server == norm.server)
      adder(server).send(1, NormTotal{norm.clock, total, norm.generation});
}

// Creates the rows with worker 0's plan and first weights, over a link that works: another test
// covers the start.
void Cluster::create_rows(const std::vector<std::vector<float>>& numbers) {
  for (int server = 0; server < job_.plan.servers; ++server) {
    handle(server, 0, PlanMessage{job_.plan});
    for (RowId row = 0; row < job_.plan.rows.size(); ++row) {
      const int owner = job_.plan.rows[row].server;
      const bool is_copied = job_.plan.is_copied(owner) && job_.plan.copy_of(owner) == server;
      if (owner != server && !is_copied) continue;
      Outbox out;
      const Status made = shard(server).handle(
          0, Init{row, Part::kWeights, as_payload({numbers[row]}), job_.plan.generation}, out);
      if (!made.ok()) history_->say(made.error().message);
    }
    if (!shard(server).ready()) history_->say(str("server ", server, " is not ready"));
  }
}

// Checks the most that may wait on links: a link's window and one frame from a client, and its
// Retire; a few answers to each of a row's questions from a server.
void Cluster::check_queues() {
  for (int worker = 0; worker < job_.plan.workers; ++worker) {
    for (int server = 0; server < job_.plan.servers; ++server) {
      const std::size_t rows =
          own_bytes_[static_cast<std::size_t>(server)] + 64 * (job_.plan.rows.size() + 1);
      const std::array<std::size_t, 2> most{job_.network.link.window + rows,
                                            job_.network.link.window + 8 * rows};
      for (int from = 0; from < 2; ++from) {
        const std::size_t waited = link(worker, server).counters(from).most_waiting;
        if (waited <= most[static_cast<std::size_t>(from)]) continue;
        history_->say(str("I8: ", waited, " bytes waited between worker ", worker, " and server ",
                          server, ", direction ", from));
      }
    }
  }
}

// Checks the rows when all have stopped.
std::vector<std::vector<float>> Cluster::end() {
  std::vector<std::vector<float>> numbers(job_.plan.rows.size());
  for (RowId row = 0; row < job_.plan.rows.size() && history_->wrong().empty(); ++row) {
    Shard& owner = owner_of(row);
    Outbox out;
    for (int worker = 0; worker < job_.plan.workers && job_.retires; ++worker) {
      const Clock stop = job_.stops[static_cast<std::size_t>(worker)];
      if (died_ && worker == job_.loss->worker) continue;
      if (!owner.handle(worker, Retire{stop, job_.plan.generation}, out).ok())
        history_->say(str("worker ", worker, " cannot retire"));
    }
    out.clear();
    const Status asked =
        owner.handle(0, Get{row, job_.stops[0], Part::kWeights, job_.plan.generation}, out);
    const RowMessage* answer =
        asked.ok() && out.size() == 1 ? std::get_if<RowMessage>(&out[0].message) : nullptr;
    if (answer == nullptr) {
      history_->say(str("row ", row, " cannot be read at the end"));
      continue;
    }
    const Values values = numbers_of(answer->payload);
    history_->ended(row, answer->version, values.data);
    numbers[row].assign(values.data.begin(), values.data.end());
  }
  return numbers;
}

// Begins the next generation, over a link that works, as the first; links keep their messages.
void Cluster::begin_next() {
  const std::vector<std::vector<float>> numbers = end();
  if (!history_->wrong().empty()) return;
  static_cast<Segment&>(job_) = *std::exchange(job_.next, std::nullopt);
  history_.emplace(rules_of(job_, -1, numbers));
  for (const auto& worker : workers_) worker->forget();
  former_ = std::exchange(workers_, {});
  create_rows(numbers);
  for (int worker = 0; worker < job_.plan.workers; ++worker)
    workers_.push_back(std::make_unique<SimulatedWorker>(surroundings(worker), worker));
  for (const auto& worker : workers_) worker->read();
}

ClusterRun Cluster::run() {
  std::vector<std::vector<float>> zeros;
  for (const Row& row : job_.plan.rows) zeros.emplace_back(row.length);
  create_rows(zeros);
  for (const auto& worker : workers_) worker->read();
  if (job_.loss) time_.after(job_.loss->at, [this] { lose(); });
  ClusterRun result;
  while (history_->wrong().empty()) {
    const bool is_finished =
        std::ranges::all_of(workers_, [](const auto& worker) { return worker->done(); });
    if (is_finished && !job_.next) break;
    if (is_finished) {
      check_queues();
      result.reads = history_->reads();
      begin_next();
    } else if (!time_.step()) {
      history_->say("I6: nobody does anything any more");
    }
  }
  check_queues();
  result.took = time_.now();
  for (int server = 0; server < job_.plan.servers && died_; ++server)
    if (!told_[static_cast<std::size_t>(server)]) tell_shard(server);
  // Their last updates are copied soon.
  const Instant soon = time_.now() + std::chrono::seconds(5);
  while (died_ && time_.now() < soon && time_.step()) continue;
  if (history_->wrong().empty()) end();
  for (const auto& each : links_) {
    for (int from = 0; from < 2; ++from)
      result.frames += each->counters(from).frames, result.lost += each->counters(from).lost;
    result.resets += each->counters(0).resets;
  }
  for (const auto& shard : shards_)
    result.repeated += shard->counters().repeated, result.late += shard->counters().late;
  result.wrong = history_->wrong();
  result.losses = died_;
  (former_.empty() ? result.reads : result.next_reads) = history_->reads();
  return result;
}

}  // namespace

ClusterRun run_cluster(const ClusterCase& one) { return Cluster(one).run(); }

}  // namespace shoal::table
