#include "support/simulated_cluster.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "shoal/base/random.h"
#include "shoal/table/client.h"
#include "shoal/table/placement.h"
#include "shoal/table/shard.h"
#include "support/twice_codec.h"

namespace shoal::table {
namespace {

using namespace std::chrono_literals;

constexpr Instant kRetireAgain = 500ms;

class Cluster;

// A worker's loop: reads the rows from the front of the net to its back, computes, pushes from the
// back to the front.
class SimulatedWorker {
 public:
  SimulatedWorker(Cluster& cluster, int id);
  void read();  // asks for all rows
  void received(int server, const Message& message);
  std::optional<Message> next(int server) { return client_.next(server); }
  void link_up(int server);
  bool done() const { return done_; }
  // another has its place; its Retire is still repeated
  void forget() { forgotten_ = true; }

 private:
  const ClusterCase& job() const;
  Instant now() const;
  void forward();
  void backward(RowId behind);
  void push(RowId row);
  void retire();
  void keep_time();
  void on_time();

  Cluster& cluster_;
  const int id_;
  const Plan plan_;
  std::vector<std::vector<float>> weights_, gradients_, histories_;
  Client client_;
  Random random_;
  Clock clock_;
  RowId reading_ = 0;
  bool computing_ = false, done_ = false, has_read_twice_ = false, forgotten_ = false;
  Instant alarm_ = Instant::max();  // when on_time() is called next
};

class Cluster {
 public:
  explicit Cluster(const ClusterCase& one);
  ClusterRun run();

 private:
  friend class SimulatedWorker;
  void connect();
  void create_rows(const std::vector<std::vector<float>>& numbers);
  std::vector<std::vector<float>> end();
  void begin_next();
  void handle(int server, int worker, const Message& message);
  void add(const Norm& norm);
  void check_queues();
  bool finished() const;
  SimulatedLink& link(int worker, int server) {
    return *links_[static_cast<std::size_t>(worker) * job_.plan.servers +
                   static_cast<std::size_t>(server)];
  }

  ClusterCase job_;
  VirtualTime time_;
  std::optional<History> history_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;  // by worker, those of the plan
  std::vector<std::unique_ptr<SimulatedWorker>> former_;   // of the generation before
  // a worker's to each server, one after the other; the servers' to the adder
  std::vector<std::unique_ptr<SimulatedLink>> links_, adders_;
  std::map<std::pair<Generation, Clock>, std::vector<std::optional<double>>> norms_;
  std::vector<std::size_t> own_bytes_;  // of weights, by server
};

// Of a payload that the client took.
Values numbers_of(const Payload& payload) {
  const Codec& codec = *test::find_test_codec(payload.codec);
  return codec.decode(payload, payload.bytes.size() / codec.bound(1)).value();
}

// ---- a worker ----

SimulatedWorker::SimulatedWorker(Cluster& cluster, int id)
    : cluster_(cluster),
      id_(id),
      plan_(job().plan),
      client_({.worker = id,
               .order = job().order,
               .retry = job().retry,
               .codecs = test::find_test_codec},
              plan_,
              [this](RowId row, Part part) {
                return std::span<float>(part == Part::kWeights ? weights_[row] : histories_[row]);
              }),
      random_(job().seed, 1000 + static_cast<std::uint64_t>(id)),
      clock_(plan_.start_of(id)) {
  for (const Row& row : plan_.rows) {
    weights_.emplace_back(row.length);
    gradients_.emplace_back(row.length);
    histories_.emplace_back(row.length);
  }
}

const ClusterCase& SimulatedWorker::job() const { return cluster_.job_; }
Instant SimulatedWorker::now() const { return cluster_.time_.now(); }

void SimulatedWorker::read() {
  reading_ = 0;
  for (RowId row = 0; row < weights_.size(); ++row) {
    client_.get(row, clock_, Part::kWeights, now());
    if (has_read_twice_) client_.get(row, clock_, Part::kHistory, now());
  }
  for (int server = 0; server < plan_.servers; ++server) cluster_.link(id_, server).wake(0);
  keep_time();
}

void SimulatedWorker::forward() {
  if (computing_ || done_) return;
  for (; reading_ < weights_.size() && client_.arrived(reading_); ++reading_)
    cluster_.history_->read(id_, reading_, clock_, weights_[reading_]);
  if (reading_ < weights_.size()) return;
  if (clock_ == job().stops[static_cast<std::size_t>(id_)]) {
    done_ = true;
    return job().retires ? retire() : void();
  }
  if (!std::exchange(has_read_twice_, true) && job().reads_twice.contains({id_, clock_}))
    return read();
  computing_ = true;
  backward(reading_);
}

// The gradients of the rows before `behind` are still to come.
void SimulatedWorker::backward(RowId behind) {
  const Instant takes(static_cast<std::int64_t>(
      random_.below(static_cast<std::uint64_t>(job().compute.count()) + 1)));
  cluster_.time_.after(takes, [this, behind] {
    push(behind - 1);
    if (behind > 1) return backward(behind - 1);
    ++clock_;
    reading_ = 0;
    computing_ = has_read_twice_ = false;
    forward();
  });
}

void SimulatedWorker::push(RowId row) {
  std::vector<float>& gradient = gradients_[row];
  make_gradient(job().seed, id_, clock_, row, plan_.start, gradient);
  cluster_.history_->pushed(id_, row, clock_);
  const bool skips = job().skipped.contains({id_, clock_});
  client_.push({.row = row,
                .clock = clock_,
                .weight = skips ? 0.f : 1.f,
                .rate = 1,
                .payload = as_payload({skips ? std::span<float>() : gradient, nullptr})},
               now());
  cluster_.link(id_, plan_.rows[row].server).wake(0);
  keep_time();
}

void SimulatedWorker::retire() {
  for (int server = 0; server < plan_.servers; ++server)
    cluster_.link(id_, server).send(0, Retire{clock_, plan_.generation});
  cluster_.time_.after(kRetireAgain, [this] { retire(); });
}

void SimulatedWorker::received(int server, const Message& message) {
  const auto* row = std::get_if<RowMessage>(&message);
  if (row != nullptr && row->part == Part::kWeights && row->generation == plan_.generation)
    cluster_.history_->answered(row->row, row->version, numbers_of(row->payload).data);
  RowMessage placed = row == nullptr ? RowMessage() : *row;
  const bool is_placed =
      row != nullptr && !client_.place(placed, row->payload.bytes.size()).empty();
  const Result<bool> taken = client_.take(server, message);
  if (!taken.ok()) return cluster_.history_->say(taken.error().message);
  if (taken.value() != is_placed) cluster_.history_->say("place() and take() do not agree");
  cluster_.link(id_, server).wake(0);
  keep_time();
  forward();
}

void SimulatedWorker::link_up(int server) {
  client_.link_up(server, now());
  if (done_ && job().retires) cluster_.link(id_, server).send(0, Retire{clock_, plan_.generation});
  keep_time();
}

void SimulatedWorker::on_time() {
  const auto overdue = client_.overdue();
  if (overdue && now() - overdue->since > job().limit) {
    cluster_.history_->say(str("I6: worker ", id_, " waits since ",
                               overdue->since.count() / 1'000'000, " ms for row ", overdue->row,
                               " at clock ", overdue->clock));
  }
  keep_time();
}

// Lets the client ask again what is silent, and be called when it wants to.
void SimulatedWorker::keep_time() {
  const Instant due = client_.on_time(now());
  for (int server = 0; server < plan_.servers; ++server) cluster_.link(id_, server).wake(0);
  if (due >= alarm_) return;
  alarm_ = due;
  cluster_.time_.at(due, [this, due] {
    if (due != alarm_ || forgotten_) return;  // an earlier one was set meanwhile
    alarm_ = Instant::max();
    on_time();
  });
}

// ---- the cluster ----

HistoryRules rules_of(const Segment& one, std::vector<std::vector<float>> base) {
  return {.workers = one.plan.workers,
          .start = one.plan.start,
          .stops = one.stops,
          .staleness = one.staleness,
          .skipped = one.skipped,
          .lockstep = one.staleness == 0,
          .exact = one.exact,
          .clocks = one.plan.clocks,
          .base = std::move(base)};
}

Cluster::Cluster(const ClusterCase& one)
    : job_(one), history_(rules_of(one, {})), own_bytes_(one.plan.servers) {
  for (int server = 0; server < job_.plan.servers; ++server)
    shards_.push_back(std::make_unique<Shard>(server, make_scheme, test::find_test_codec));
  for (int worker = 0; worker < job_.plan.workers; ++worker)
    workers_.push_back(std::make_unique<SimulatedWorker>(*this, worker));
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
      SimulatedEnd client{
          .received =
              [owner, server](const Message& message) {
                if (owner()) owner()->received(server, message);
              },
          .next = [owner, server] { return owner() ? owner()->next(server) : std::nullopt; },
          .up =
              [owner, server] {
                if (owner()) owner()->link_up(server);
              }};
      SimulatedEnd shard{.received = [this, server, worker](const Message& message) {
        handle(server, worker, message);
      }};
      links_.push_back(std::make_unique<SimulatedLink>(
          time_, job_.network, Random(job_.seed, ++stream), std::move(client), std::move(shard)));
    }
  }
  for (int server = 0; server < job_.plan.servers; ++server) {
    SimulatedEnd shard{
        .received = [this, server](const Message& message) { handle(server, -1, message); }};
    SimulatedEnd adder{
        .received = [this](const Message& message) { add(std::get<Norm>(message)); }};
    adders_.push_back(std::make_unique<SimulatedLink>(
        time_, job_.network, Random(job_.seed, ++stream), std::move(shard), std::move(adder)));
  }
}

void Cluster::handle(int server, int worker, const Message& message) {
  Outbox out;
  const Status handled = shards_[static_cast<std::size_t>(server)]->handle(worker, message, out);
  if (!handled.ok()) history_->say(handled.error().message);
  for (const Outgoing& each : out) {
    if (each.to != kCoordinator)
      link(each.to, server).send(1, each.message);
    else
      adders_[static_cast<std::size_t>(server)]->send(0, each.message);
  }
  // Weights and histories of its rows, twice where one is being sent, and of each worker at most
  // one push of each.
  const std::size_t parts = 1 + static_cast<std::size_t>(optim::histories(job_.plan.rule.rule));
  const std::size_t most =
      own_bytes_[static_cast<std::size_t>(server)] * (2 * parts + job_.plan.workers);
  const std::size_t held = shards_[static_cast<std::size_t>(server)]->bytes_held();
  if (held > most)
    history_->say(str("I8: server ", server, " holds ", held, " bytes, above ", most));
}

// In the order of servers, when all have spoken; again for a server that asks again.
void Cluster::add(const Norm& norm) {
  auto& squares = norms_[{norm.generation, norm.clock}];
  squares.resize(job_.plan.servers);
  const bool was_whole = std::all_of(squares.begin(), squares.end(),
                                     [](const auto& each) { return each.has_value(); });
  if (squares[norm.server] && *squares[norm.server] != norm.squares)
    history_->say(str("I5: server ", norm.server, " says two norms of clock ", norm.clock));
  squares[norm.server] = norm.squares;
  double total = 0;
  for (const auto& each : squares) {
    if (!each) return;
    total += *each;
  }
  for (int server = 0; server < job_.plan.servers; ++server) {
    if (!was_whole || server == norm.server)
      adders_[static_cast<std::size_t>(server)]->send(
          1, NormTotal{norm.clock, total, norm.generation});
  }
}

// Worker 0 says the plan and the first weights over a link that works: the start is another test's.
void Cluster::create_rows(const std::vector<std::vector<float>>& numbers) {
  for (int server = 0; server < job_.plan.servers; ++server) {
    handle(server, 0, PlanMessage{job_.plan});
    for (RowId row = 0; row < job_.plan.rows.size(); ++row) {
      if (job_.plan.rows[row].server != server) continue;
      Outbox out;
      const Status made = shards_[static_cast<std::size_t>(server)]->handle(
          0, Init{row, Part::kWeights, as_payload({numbers[row]}), job_.plan.generation}, out);
      if (!made.ok()) history_->say(made.error().message);
    }
    if (!shards_[static_cast<std::size_t>(server)]->ready())
      history_->say(str("server ", server, " is not ready"));
  }
}

// The most that may wait on links: a link's window and one frame from a client, and its Retire; a
// few answers to each of a row's questions from a server.
void Cluster::check_queues() {
  for (int worker = 0; worker < job_.plan.workers; ++worker) {
    for (int server = 0; server < job_.plan.servers; ++server) {
      const std::size_t rows =
          own_bytes_[static_cast<std::size_t>(server)] + 64 * (job_.plan.rows.size() + 1);
      const std::array<std::size_t, 2> most{job_.network.window + rows,
                                            job_.network.window + 8 * rows};
      for (int from = 0; from < 2; ++from) {
        const std::size_t waited = link(worker, server).counters(from).most_waiting;
        if (waited <= most[static_cast<std::size_t>(from)]) continue;
        history_->say(str("I8: ", waited, " bytes waited between worker ", worker, " and server ",
                          server, ", direction ", from));
      }
    }
  }
}

bool Cluster::finished() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->done(); });
}

// Checks the rows when all have stopped.
std::vector<std::vector<float>> Cluster::end() {
  std::vector<std::vector<float>> numbers(job_.plan.rows.size());
  for (RowId row = 0; row < job_.plan.rows.size() && history_->wrong().empty(); ++row) {
    Shard& shard = *shards_[job_.plan.rows[row].server];
    Outbox out;
    for (int worker = 0; worker < job_.plan.workers && job_.retires; ++worker) {
      if (!shard
               .handle(worker,
                       Retire{job_.stops[static_cast<std::size_t>(worker)], job_.plan.generation},
                       out)
               .ok())
        history_->say(str("worker ", worker, " cannot retire"));
    }
    out.clear();
    const Status asked =
        shard.handle(0, Get{row, job_.stops[0], Part::kWeights, job_.plan.generation}, out);
    const RowMessage* answer =
        asked.ok() && out.size() == 1 ? std::get_if<RowMessage>(&out[0].message) : nullptr;
    if (answer == nullptr)
      history_->say(str("row ", row, " cannot be read at the end"));
    else
      history_->ended(row, answer->version, numbers_of(answer->payload).data);
    if (answer != nullptr) {
      const Values values = numbers_of(answer->payload);
      numbers[row].assign(values.data.begin(), values.data.end());
    }
  }
  return numbers;
}

// The plan of the next generation, over a link that works, as the first; links hold what they held.
void Cluster::begin_next() {
  const std::vector<std::vector<float>> numbers = end();
  if (!history_->wrong().empty()) return;
  static_cast<Segment&>(job_) = *std::exchange(job_.next, std::nullopt);
  history_.emplace(rules_of(job_, numbers));
  for (const auto& worker : workers_) worker->forget();
  former_ = std::exchange(workers_, {});
  create_rows(numbers);
  for (int worker = 0; worker < job_.plan.workers; ++worker)
    workers_.push_back(std::make_unique<SimulatedWorker>(*this, worker));
  for (const auto& worker : workers_) worker->read();
}

ClusterRun Cluster::run() {
  std::vector<std::vector<float>> zeros;
  for (const Row& row : job_.plan.rows) zeros.emplace_back(row.length);
  create_rows(zeros);
  for (const auto& worker : workers_) worker->read();
  ClusterRun result;
  while (history_->wrong().empty()) {
    if (finished() && !job_.next) break;
    if (finished()) {
      check_queues();
      result.reads = history_->reads();
      begin_next();
    } else if (!time_.step()) {
      history_->say("I6: nobody does anything any more");
    }
  }
  check_queues();
  result.took = time_.now();
  if (history_->wrong().empty()) end();
  for (const auto& each : links_) {
    for (int from = 0; from < 2; ++from)
      result.frames += each->counters(from).frames, result.lost += each->counters(from).lost;
    result.resets += each->counters(0).resets;
  }
  for (const auto& shard : shards_)
    result.repeated += shard->counters().repeated, result.late += shard->counters().late;
  result.wrong = history_->wrong();
  (former_.empty() ? result.reads : result.next_reads) = history_->reads();
  return result;
}

}  // namespace

ClusterRun run_cluster(const ClusterCase& one) { return Cluster(one).run(); }

}  // namespace shoal::table
