#include "shoal/simulate/simulated_table.h"
#include "shoal/base/try.h"

namespace shoal::simulate {

WorkerFigures SimulatedTable::figures_now() const {
  WorkerFigures now = figures;
  const Instant time = job_.time().now();
  if (computes_until_ > time) now.compute -= to_seconds(computes_until_ - time);
  if (waits_since_) now.rows += to_seconds(time - *waits_since_);
  return now;
}

void SimulatedTable::computes(Instant until) {
  figures.compute += to_seconds(until - job_.time().now());
  computes_until_ = until;
}

void SimulatedTable::has_rows() {
  figures.rows += to_seconds(job_.time().now() - *waits_since_);
  waits_since_.reset();
}

void SimulatedTable::compute(Instant until) {
  enter();
  if (!status().ok() || until <= now()) return;
  computes(until);
  left_at_ = now();
  job_.time().at(until, [this] { thread_.resume(); });
  thread_.leave();
}

Status SimulatedTable::wait_until(const std::function<bool()>& done, double& account) {
  const Instant since = now();
  while (status().ok() && !done()) {
    suspended_ = true;
    thread_.suspend();
    suspended_ = false;
  }
  account += to_seconds(now() - since);
  return status();
}

Status SimulatedTable::create(const Plan& plan, const Source& initial,
                              const Destinations& destinations) {
  enter();
  if (!job_.options().dry || plan.generation > 0)
    return TableSession::create(plan, initial, destinations);
  // In a simulation without numbers the first rows exist before there are workers.
  if (worker_ == 0) job_.install_plan(plan, initial);
  TRY(this->status());
  TRY(begin(plan));
  open_rows(plan, destinations);
  return {};
}

void SimulatedTable::open(const Plan& plan, const Destinations& destinations) {
  answers_.begin(generation_start());
  client_ = std::make_unique<table::Client>(
      table::ClientOptions{.worker = worker_, .states = states()}, plan, destinations);
  awaited_.assign(plan.rows.size(), false);
  missing_ = 0;
  never_.clear();
  workers_ = plan.ranks;
  servers_ = plan.server_ranks;
  needed_.clear();
  if (table::has_messages(plan)) {
    needed_.insert(plan.ranks.begin(), plan.ranks.end());
    needed_.insert(plan.server_ranks.begin(), plan.server_ranks.end());
  }
  count_losses();
  for (const table::Rank server : servers_)
    if (is_gone(server)) fail_over(server);
}

void SimulatedTable::lose(table::Rank rank) {
  gone_.insert(rank);
  note_lost(rank);
  count_losses();
  if (client_) fail_over(rank);
  wake();
}

// Goes on without a process. If it is a server nobody else has its rows.
void SimulatedTable::fail_over(table::Rank rank) {
  const auto server = std::ranges::find(servers_, rank);
  if (server == servers_.end()) return;
  const auto none = [](int) { return table::Client::kNoServer; };
  const auto lost = client_->lose_server(static_cast<int>(server - servers_.begin()), none,
                                         needs_no_rows(workers_, rank_));
  if (!lost.ok()) return job_.fail(lost.error());
  for (const RowId row : lost.value()) arrived(row);
}

// Forgets, after a loss, rows that are on their way: their memory is about to go.
Result<bool> SimulatedTable::regroup(const table::SegmentBody& end) {
  const Result<bool> stays = TableSession::regroup(end);
  TRY(stays);
  needed_.clear();
  if (was_interrupted()) {
    made_again_ += std::max<std::int64_t>(0, generation_start().first + tasks_ - end.clock);
    client_.reset();
    for (int server = 0; server < job_.servers(); ++server)
      job_.shard(server).forget_pushes(worker_);
  }
  tasks_ = 0;
  worker_ = job_.number_of(rank_);
  return stays;
}

Result<bool> SimulatedTable::join() {
  enter();
  TRY(this->status());
  const table::JoinBody body{rank_, true, false, str("simulated ", rank_), "", ""};
  job_.ask(rank_, table::Ask{table::Topic::kJoin, 0, encode(body)});
  TRY(wait_until([this] { return worker_ >= 0 || is_refused_; }, figures.others));
  return worker_ >= 0;
}

void SimulatedTable::heard(const Message& message) {
  if (is_lost_) return;
  const auto* const answer = std::get_if<table::Answer>(&message);
  if (std::holds_alternative<table::Refuse>(message))
    is_refused_ = true;
  else if (answer && answer->topic == table::Topic::kJoin)
    worker_ = job_.number_of(rank_);
  else if (std::optional<table::Ask> reply = answers_.hear(message))
    job_.ask(rank_, *reply);
  if (!std::holds_alternative<table::NormTotal>(message)) wake();
}

void SimulatedTable::push(std::span<const table::Push> together) {
  enter();
  if (!status().ok()) return;
  for (const table::Push& push : together) {
    pushed(push.clock);
    client_->push(push, now());
    ask_server(push.row);
  }
}

void SimulatedTable::get(RowId row, Clock clock, table::Part part) {
  enter();
  if (!status().ok()) return;
  client_->get(row, clock, part, now());
  ask_server(row);
}

void SimulatedTable::hurry(std::span<const RowId> rows) {
  enter();
  if (!status().ok() || !client_) return;
  for (const RowId row : rows) {
    client_->hurry(row);
    if (const int server = client_->server_of(row); server != table::Client::kNoServer)
      pump(server);
  }
}

// Lets the row's server hear what there is to say. A row that no server has any more is there.
void SimulatedTable::ask_server(RowId row) {
  if (const int server = client_->server_of(row); server != table::Client::kNoServer)
    pump(server);
  else if (client_->is_written(row))
    never_.insert(row);
  else
    arrived(row);
}

void SimulatedTable::when_arrived(std::span<const RowId> rows, std::function<void()> then) {
  for (const RowId row : rows)
    if (!awaited_[row] && !is_there(row)) {
      awaited_[row] = true;
      ++missing_;
    }
  if (missing_ == 0) return then();
  then_ = std::move(then);
}

Status SimulatedTable::wait(std::span<const RowId> rows) {
  if (rows.empty()) return status();
  enter();
  TRY(this->status());
  when_arrived(rows, [this] { wake(); });
  TRY(wait_until([this] { return missing_ == 0 || !interruption().ok(); }, figures.rows));
  return missing_ == 0 ? Status() : interruption();
}

void SimulatedTable::received(int server, Message&& message) {
  if (!client_ || is_lost_ || std::holds_alternative<table::Ready>(message)) return;
  if (is_gone(servers_.at(static_cast<std::size_t>(server)))) return;
  auto* const row = std::get_if<table::RowMessage>(&message);
  // Without numbers a payload of float32 has a size alone.
  if (row != nullptr && job_.options().dry && row->payload.codec == table::CodecId::kFloat32 &&
      !row->payload.bytes.empty()) {
    row->payload.bytes = client_->place(*row, row->payload.bytes.size());
    if (row->payload.bytes.empty()) return;
  }
  const Result<bool> taken = client_->take(server, message);
  if (!taken.ok()) return job_.fail(taken.error());
  pump(server);
  if (row != nullptr && taken.value()) arrived(row->row);
}

void SimulatedTable::arrived(RowId row) {
  if (!client_->arrived(row)) return;
  if (arrived_) arrived_(row);
  if (!awaited_[row]) return;
  awaited_[row] = false;
  if (--missing_ == 0) std::exchange(then_, nullptr)();
}

}  // namespace shoal::simulate
