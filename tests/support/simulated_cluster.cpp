#include "support/simulated_cluster.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "shoal/base/random.h"
#include "shoal/table/placement.h"
#include "shoal/table/shard.h"
#include "support/history_rules.h"
#include "support/norm_adder.h"
#include "support/simulated_losses.h"
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
  void break_off(const Loss& loss);
  void lose(const Loss& loss);
  void tell_server(int server, const Loss& news);
  void tell_worker(int number, int lost);
  void compare_copies();
  void add(int from, const Norm& norm);
  void say_totals();
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
  SimulatedLosses losses_;
  bool ended_ = false;  // as in ClusterRun
  NormAdder norms_;
  std::vector<std::size_t> own_bytes_;  // of weights, by server
};

Cluster::Cluster(const ClusterCase& one)
    : job_(one),
      history_(rules_of(one, {})),
      copies_keep_(one.plan.copies == 2 || (one.next && one.next->plan.copies == 2)),
      losses_(job_, time_,
              {.lose = [this](const Loss& loss) { lose(loss); },
               .tell_server = [this](int server, const Loss& news) { tell_server(server, news); },
               .tell_worker = [this](int worker, int lost) { tell_worker(worker, lost); }}),
      own_bytes_(one.plan.servers) {
  for (int server = 0; server < job_.plan.servers; ++server)
    shards_.push_back(std::make_unique<Shard>(server, &SchemeSpec::make, test::make_test_codec));
  for (int worker = 0; worker < job_.plan.workers; ++worker)
    workers_.push_back(std::make_unique<SimulatedWorker>(surroundings(worker), worker));
  const CodecSet codecs(job_.plan, test::make_test_codec);
  for (const Row& row : job_.plan.rows)
    own_bytes_[row.server] +=
        std::max(codecs.pushes(row).bound(row.length), codecs.answers(row).bound(row.length));
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
        if (owner() && !losses_.is_dead(server)) owner()->received(server, message);
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
          time_, job_.network, Random(job_.seed, ++stream), losses_.counted(std::move(client)),
          losses_.counted(std::move(shard))));
    }
  }
  for (int server = 0; server < job_.plan.servers; ++server) {
    UnreliableEnd shard{
        .received = [this, server](const Message& message) { handle(server, -1, message); }};
    UnreliableEnd adder{.received = [this, server](const Message& message) {
      add(server, std::get<Norm>(message));
    }};
    adders_.push_back(std::make_unique<UnreliableLink>(
        time_, job_.network, Random(job_.seed, ++stream), losses_.counted(std::move(shard)),
        losses_.counted(std::move(adder))));
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
              if (!losses_.is_dead(server)) shard(server).send_updates(out);
              dispatch(server, out);
            }};
    UnreliableEnd second{.received = [this, server, copy](const Message& message) {
      hear_server(copy, server, message);
    }};
    copies_.push_back(std::make_unique<UnreliableLink>(time_, options, Random(job_.seed, ++stream),
                                                       losses_.counted(std::move(first)),
                                                       losses_.counted(std::move(second))));
  }
}

void Cluster::hear_server(int server, int from, const Message& message) {
  if (losses_.is_dead(server) || losses_.has_heard(server, from)) return;
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

// Breaks the connections of a process that is gone with what it had sent.
void Cluster::break_off(const Loss& loss) {
  for (int worker = 0; worker < job_.plan.workers; ++worker)
    for (int server = 0; server < job_.plan.servers; ++server)
      if (worker == loss.worker || server == loss.server) link(worker, server).cut();
  for (int server = 0; server < job_.plan.servers; ++server)
    if (server == loss.server || job_.plan.copy_of(server) == loss.server)
      copies_[static_cast<std::size_t>(server)]->cut();
}

void Cluster::lose(const Loss& loss) {
  if (loss.breaks) break_off(loss);
  if (loss.worker >= 0) {
    history_->lose(loss.worker);
    const auto& worker = workers_[static_cast<std::size_t>(loss.worker)];
    loss.lives ? worker->be_lost() : worker->die();
  }
  for (RowId row = 0; row < job_.plan.rows.size(); ++row)
    if (losses_.owner_of(row) == Client::kNoServer) history_->lose_row(row);
  say_totals();
}

void Cluster::tell_worker(int number, int lost) {
  const auto heir_of = [&](int of) { return of == lost ? losses_.heir_of(of) : Client::kNoServer; };
  SimulatedWorker& worker = *workers_[static_cast<std::size_t>(number)];
  if (!worker.is_lost() && !ended_) ended_ = !worker.fail_over(lost, heir_of).ok();
}

// Notes which pushes of lost workers the server's rows may have from now on: those before the clock
// at which a worker leaves, and what is in a row already.
void Cluster::tell_server(int server, const Loss& news) {
  Outbox out;
  Shard& told = shard(server);
  if (news.server >= 0) told.lose_server(news.server, out);
  for (const int worker : losses_.gone(server))
    for (RowId row = 0; row < job_.plan.rows.size(); ++row)
      if (losses_.leads(server, row))
        history_->cut(worker, row, worker == news.worker ? told.clock_of(worker) : job_.plan.start,
                      told.look(row)->payload.floats());
  if (news.worker >= 0) told.leave(news.worker, out);
  dispatch(server, out);
}

// Checks that both servers of a row have the same bits, when nothing is on its way between them.
void Cluster::compare_copies() {
  for (RowId row = 0; row < job_.plan.rows.size(); ++row) {
    const int server = job_.plan.rows[row].server, copy = job_.plan.copy_of(server);
    if (!job_.plan.is_copied(server) || losses_.is_dead(server) || losses_.is_dead(copy)) continue;
    const RowMessage one = *shard(server).look(row), other = *shard(copy).look(row);
    if (one.version != other.version || !std::ranges::equal(one.payload.bytes, other.payload.bytes))
      history_->say(str("I5: row ", row, ", version ", one.version, ", and its copy, version ",
                        other.version, ", differ"));
  }
}

void Cluster::handle(int server, int worker, const Message& message) {
  if (losses_.is_dead(server)) return;
  Outbox out;
  if (losses_.gone(server).contains(worker)) {
    // A host hands on nothing of a lost worker. Its shard refuses it too.
    if (shard(server).handle(worker, message, out).ok())
      history_->say(str("server ", server, " takes a ", name_of(message), " of worker ", worker,
                        ", which it has lost"));
    return;
  }
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

// A server that has lost a worker may count fewer than before.
void Cluster::add(int from, const Norm& norm) {
  if (!norms_.is_right(norm) && losses_.gone(from).empty())
    history_->say(str("I5: server ", norm.server, " says two norms of clock ", norm.clock));
  if (const auto total = norms_.add(norm)) adder(from).send(1, *total);
  say_totals();
}

void Cluster::say_totals() {
  const auto is_said = [this](int server) { return losses_.is_served(server); };
  for (const NormTotal& total : norms_.take_totals(job_.plan.servers, is_said))
    for (int server = 0; server < job_.plan.servers; ++server) adder(server).send(1, total);
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
    if (losses_.owner_of(row) == Client::kNoServer) continue;
    Shard& owner = shard(losses_.owner_of(row));
    Outbox out;
    for (int worker = 0; worker < job_.plan.workers && job_.retires; ++worker) {
      const Clock stop = job_.stops[static_cast<std::size_t>(worker)];
      if (workers_[static_cast<std::size_t>(worker)]->is_lost()) continue;
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
  history_.emplace(rules_of(job_, numbers));
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
  losses_.begin();
  ClusterRun result;
  while (history_->wrong().empty() && !ended_) {
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
  result.messages = losses_.messages();
  losses_.end();
  // Their last updates are copied soon.
  const Instant soon = time_.now() + std::chrono::seconds(5);
  while (copies_keep_ && !ended_ && time_.now() < soon && time_.step()) continue;
  if (!ended_) compare_copies();
  if (history_->wrong().empty() && !ended_) end();
  for (const auto& each : links_) {
    for (int from = 0; from < 2; ++from)
      result.frames += each->counters(from).frames, result.lost += each->counters(from).lost;
    result.resets += each->counters(0).resets;
  }
  for (const auto& shard : shards_)
    result.repeated += shard->counters().repeated, result.late += shard->counters().late;
  result.wrong = history_->wrong();
  result.losses = losses_.happened();
  result.ended = ended_;
  (former_.empty() ? result.reads : result.next_reads) = history_->reads();
  return result;
}

}  // namespace

ClusterRun run_cluster(const ClusterCase& one) { return Cluster(one).run(); }

}  // namespace shoal::table
