#include "support/local_cluster.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/mutex.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/shard.h"
#include "shoal/table/worker_talks.h"

namespace shoal::test {

using table::Clock;
using table::Message;
using table::RowId;
using table::Topic;
using table::Want;

namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

// Everything that the threads share, under one lock: a call carries each message to its end.
class LocalCluster::Hub {
 public:
  struct Worker {
    std::unique_ptr<table::Client> client;
    table::WorkerTalks talks;
    Clock pushed = 0;         // after its last push
    bool waited_for = false;  // others' pushes may wait for its own
    // the last that it came to create(), with nothing on its way
    std::optional<table::Epoch> creates;
  };

  Hub(int workers, int servers, table::SchemeMaker maker)
      : maker_(std::move(maker)),
        workers_(static_cast<std::size_t>(workers)),
        coordinator_({.processes = static_cast<std::uint32_t>(std::max(workers, servers))}) {
    for (int s = 0; s < servers; ++s) shards_.push_back(std::make_unique<table::Shard>(s, maker_));
    for (int r = 0; r < std::max(workers, servers); ++r) {
      const table::JoinBody join{static_cast<std::uint32_t>(r), r < workers, r < servers, "here",
                                 str("127.0.0.1:", 1000 + r),   ""};
      tell(static_cast<std::uint32_t>(r), table::Ask{Topic::kJoin, 0, encode(join)});
    }
    CHECK(coordinator_.roster() != nullptr) << "nobody is missing";
    roster_ = *coordinator_.roster();
  }

  const table::RosterBody& roster() const { return roster_; }

  Status create(int worker, const table::Plan& plan, const table::Table::Source& initial,
                const table::Table::Destination& destination) {
    const MutexLock lock(mutex_);
    Worker& me = workers_[static_cast<std::size_t>(worker)];
    if (Status status = wait([&] { return !me.client || me.client->waiting() == 0; }); !status.ok())
      return status;
    me.creates = plan.epoch;
    me.pushed = plan.start_of(worker);
    me.talks.begin(me.pushed);
    changed_.notify_all();
    const auto all_here = [&] {
      return std::ranges::all_of(workers_,
                                 [&](const Worker& each) { return each.creates >= plan.epoch; });
    };
    if (Status status = wait(all_here); !status.ok()) return status;
    if (worker == 0) plant(plan, initial);
    const auto ready = [&](const auto& shard) {
      return shard->ready() && shard->plan()->epoch == plan.epoch;
    };
    if (Status status = wait([&] { return std::ranges::all_of(shards_, ready); }); !status.ok())
      return status;
    CHECK(plan.rows == shards_[0]->plan()->rows) << "worker " << worker << " has another plan";
    CHECK(plan.start == shards_[0]->plan()->start) << "worker " << worker << " starts elsewhere";
    const auto scheme = maker_(plan.scheme);
    if (!scheme.ok()) return scheme.error();
    me.talks.follow(scheme.value()->task().paced, scheme.value()->bounded());
    me.pushed = plan.start_of(worker);
    me.waited_for = scheme.value()->waits_for_others();
    me.client =
        std::make_unique<table::Client>(table::ClientOptions{.worker = worker}, plan, destination);
    return {};
  }

  void push(int worker, const table::Push& push) {
    const MutexLock lock(mutex_);
    if (error_) return;
    workers_[static_cast<std::size_t>(worker)].client->push(push, {});
    workers_[static_cast<std::size_t>(worker)].pushed = push.clock + 1;
    carry();
  }

  void get(int worker, RowId row, Clock clock, table::Part part) {
    const MutexLock lock(mutex_);
    if (error_) return;
    workers_[static_cast<std::size_t>(worker)].client->get(row, clock, part, {});
    carry();
  }

  Status wait_rows(int worker, std::span<const RowId> rows) {
    const MutexLock lock(mutex_);
    Worker& me = workers_[static_cast<std::size_t>(worker)];
    return wait([&] {
      return std::ranges::all_of(rows, [&](RowId row) { return me.client->arrived(row); });
    });
  }

  Result<std::string> ask(int worker, Topic topic, Clock clock, std::string body) {
    const MutexLock lock(mutex_);
    const bool waited_for = workers_[static_cast<std::size_t>(worker)].waited_for;
    table::WorkerTalks& talks = workers_[static_cast<std::size_t>(worker)].talks;
    const std::uint32_t part = table::part_of(topic, body);
    // as TableOverTcp
    if (topic == Topic::kMeet && (waited_for || body == "\1" || body == "\2")) retire(worker);
    tell(static_cast<std::uint32_t>(worker), table::Ask{topic, clock, std::move(body)});
    std::optional<std::string> answer;
    if (Status status =
            wait([&] { return (answer = talks.take_answer(topic, clock, part)).has_value(); });
        !status.ok())
      return status.error();
    return *std::move(answer);
  }

  void say(int worker, Topic topic, Clock clock, std::string body) {
    const MutexLock lock(mutex_);
    tell(static_cast<std::uint32_t>(worker), table::Ask{topic, clock, std::move(body)});
  }

  std::vector<table::Answer> take_outputs(int worker) {
    const MutexLock lock(mutex_);
    return workers_[static_cast<std::size_t>(worker)].talks.take_outputs();
  }

  Result<Want> start(int worker, Clock clock) {
    const MutexLock lock(mutex_);
    table::WorkerTalks& talks = workers_[static_cast<std::size_t>(worker)].talks;
    std::optional<Want> want;
    if (Status status = wait([&] { return (want = talks.start(clock)).has_value(); }); !status.ok())
      return status.error();
    return *want;
  }

  Status finish(int worker, Clock clock) {
    {
      const MutexLock lock(mutex_);
      retire(worker);
      workers_[static_cast<std::size_t>(worker)].talks.end(clock);
    }
    const Result<std::string> done = ask(worker, Topic::kDone, clock, "");
    return done.ok() ? Status() : Status(done.error());
  }

  // From here on nobody's params are written to.
  void fail(const Error& error) {
    const MutexLock lock(mutex_);
    if (!error_) error_ = error;
    for (Worker& worker : workers_) worker.client.reset();
    changed_.notify_all();
  }

  void regroup(const std::string& why, const std::string& scheme, Clock from) {
    const MutexLock lock(mutex_);
    std::vector<table::Dispatch> out;
    coordinator_.regroup(why, scheme, from, out);
    for (const table::Dispatch& dispatch : out) from_coordinator(dispatch);
    changed_.notify_all();
  }

  std::vector<std::string> warnings() {
    const MutexLock lock(mutex_);
    return coordinator_.take_warnings();
  }

  std::uint64_t count(std::uint64_t table::ShardCounters::*counter) {
    const MutexLock lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& shard : shards_) sum += shard->counters().*counter;
    return sum;
  }

  std::size_t learning_rows() {
    const MutexLock lock(mutex_);
    const table::Plan* plan = shards_[0]->plan();
    return plan
               ? static_cast<std::size_t>(std::ranges::count(plan->rows, true, &table::Row::learns))
               : 0;
  }

  std::vector<std::vector<float>> rows() {
    const MutexLock lock(mutex_);
    std::vector<std::vector<float>> all;
    const table::Plan* plan = shards_[0]->plan();
    for (RowId row = 0; plan && row < plan->rows.size(); ++row) {
      if (!plan->rows[row].learns) continue;
      table::Shard& shard = *shards_[plan->rows[row].server];
      table::Outbox out;
      CHECK(shard
                .handle(0, table::Get{row, shard.clock_of(0), table::Part::kWeights, plan->epoch},
                        out)
                .ok() &&
            out.size() == 1)
          << "row " << row << " cannot be read";
      const auto numbers = std::get<table::RowMessage>(out[0].message).values.data;
      all.emplace_back(numbers.begin(), numbers.end());
    }
    return all;
  }

 private:
  template <class Done>
  Status wait(Done done) REQUIRES(mutex_) {
    const bool came =
        changed_.wait_for(mutex_, kPatience, [&]() REQUIRES(mutex_) { return error_ || done(); });
    if (error_) return *error_;
    return came ? Status() : Status(Error{Code::kTimeout, "a worker of the test waited too long"});
  }

  void retire(int worker) REQUIRES(mutex_) {
    const Worker& me = workers_[static_cast<std::size_t>(worker)];
    for (std::size_t s = 0; s < shards_.size(); ++s)
      to_shard(s, worker, table::Retire{me.pushed, me.creates.value_or(0)});
  }

  // The chief's plan and numbers, to every server.
  void plant(const table::Plan& plan, const table::Table::Source& initial) REQUIRES(mutex_) {
    std::vector<table::Dispatch> out;
    if (const auto scheme = maker_(plan.scheme); scheme.ok())
      coordinator_.pace(scheme.value()->make_pacer(), {}, out);
    for (std::size_t s = 0; s < shards_.size(); ++s) to_shard(s, 0, table::PlanMessage{plan});
    for (RowId row = 0; row < plan.rows.size(); ++row)
      for (const table::Part part :
           {table::Part::kHistory, table::Part::kHistory2, table::Part::kWeights}) {
        const std::span<const float> numbers = initial(row, part);
        if (!numbers.empty())
          to_shard(plan.rows[row].server, 0, table::Init{row, part, {numbers}, plan.epoch});
      }
  }

  void check(const Status& status) REQUIRES(mutex_) {
    if (status.ok() || error_) return;
    error_ = status.error();
    changed_.notify_all();
  }

  void carry() REQUIRES(mutex_) {
    for (bool moved = true; moved && !error_;) {
      moved = false;
      for (std::size_t w = 0; w < workers_.size(); ++w)
        for (std::size_t s = 0; workers_[w].client && s < shards_.size(); ++s)
          while (const std::optional<Message> message =
                     workers_[w].client->next(static_cast<int>(s))) {
            to_shard(s, static_cast<int>(w), *message);
            moved = true;
          }
    }
    changed_.notify_all();
  }

  void to_shard(std::size_t server, int worker, const Message& message) REQUIRES(mutex_) {
    table::Outbox out;
    check(shards_[server]->handle(worker, message, out));
    for (const table::Outgoing& outgoing : out) from_shard(server, outgoing);
    changed_.notify_all();
  }

  void from_shard(std::size_t server, const table::Outgoing& outgoing) REQUIRES(mutex_) {
    if (outgoing.to.kind == table::Address::Kind::kCoordinator)
      return tell(static_cast<std::uint32_t>(server), outgoing.message);
    CHECK(outgoing.to.kind == table::Address::Kind::kWorker) << "servers do not talk to each other";
    Worker& worker = workers_[static_cast<std::size_t>(outgoing.to.id)];
    if (std::holds_alternative<table::Ready>(outgoing.message) || !worker.client) return;
    const Result<bool> taken = worker.client->take(static_cast<int>(server), outgoing.message, {});
    check(taken.ok() ? Status() : Status(taken.error()));
  }

  void tell(std::uint32_t rank, const Message& message) REQUIRES(mutex_) {
    std::vector<table::Dispatch> out;
    check(coordinator_.handle(rank, message, std::chrono::steady_clock::now().time_since_epoch(),
                              out));
    for (const table::Dispatch& dispatch : out) from_coordinator(dispatch);
    changed_.notify_all();
  }

  void from_coordinator(const table::Dispatch& dispatch) REQUIRES(mutex_) {
    if (const auto* answer = std::get_if<table::Answer>(&dispatch.message)) {
      if (dispatch.rank >= workers_.size()) return;
      workers_[dispatch.rank].talks.answer(*answer);
    } else if (const auto* directive = std::get_if<table::Directive>(&dispatch.message)) {
      follow(dispatch.rank, *directive);
    } else {
      to_shard(dispatch.rank, 0, dispatch.message);
    }
  }

  void follow(std::uint32_t rank, const table::Directive& directive) REQUIRES(mutex_) {
    if (directive.kind == table::DirectiveKind::kAbort)
      return check(Error{directive.code, directive.text});
    if (rank >= workers_.size()) return;
    Worker& worker = workers_[rank];
    if (directive.kind == table::DirectiveKind::kPause)
      tell(rank, worker.talks.pause());
    else if (directive.kind == table::DirectiveKind::kAgreed)
      worker.talks.agreed(directive.clock, directive.want);
  }

  const table::SchemeMaker maker_;
  Mutex mutex_;
  Condition changed_;
  std::vector<Worker> workers_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<table::Shard>> shards_ GUARDED_BY(mutex_);
  table::Coordinator coordinator_ GUARDED_BY(mutex_);
  std::optional<Error> error_ GUARDED_BY(mutex_);  // that ended the job
  table::RosterBody roster_;
};

class LocalCluster::Seat final : public table::Table {
 public:
  Seat(Hub& hub, int worker) : hub_(hub), worker_(worker), rosters_{hub.roster()} {}
  int worker() const override { return worker_; }
  const table::RosterBody& roster() const override { return rosters_.back(); }
  Status create(const table::Plan& plan, const Source& initial,
                const Destination& destination) override {
    return hub_.create(worker_, plan, initial, destination);
  }
  Result<bool> regroup(const table::SegmentBody& end) override {
    const Result<std::string> answer =
        hub_.ask(worker_, Topic::kRegroup, roster().epoch + 1, encode(end));
    if (!answer.ok()) return answer.error();
    rosters_.push_back(or_throw(table::decode_roster(answer.value())));
    return true;
  }
  Status status() const override { return {}; }
  void push(std::span<const table::Push> together) override {
    for (const table::Push& push : together) hub_.push(worker_, push);
  }
  void get(RowId row, Clock clock, table::Part part) override {
    hub_.get(worker_, row, clock, part);
  }
  Status wait(std::span<const RowId> rows) override { return hub_.wait_rows(worker_, rows); }
  Result<std::string> ask(Topic topic, Clock clock, std::string body) override {
    return hub_.ask(worker_, topic, clock, std::move(body));
  }
  void tell(Topic topic, Clock clock, std::string body) override {
    hub_.say(worker_, topic, clock, std::move(body));
  }
  std::vector<table::Answer> take_outputs() override { return hub_.take_outputs(worker_); }
  Result<Want> start(Clock clock) override { return hub_.start(worker_, clock); }
  Status finish(Clock clock) override { return hub_.finish(worker_, clock); }
  void abort(const Error& error) override { hub_.fail(error); }
  table::Traffic traffic() const override { return {}; }

 private:
  Hub& hub_;
  const int worker_;
  std::deque<table::RosterBody> rosters_;  // by epoch
};

LocalCluster::LocalCluster(int workers, int servers, table::SchemeMaker maker)
    : hub_(std::make_unique<Hub>(workers, servers, std::move(maker))) {
  for (int w = 0; w < workers; ++w) seats_.push_back(std::make_unique<Seat>(*hub_, w));
}

LocalCluster::~LocalCluster() = default;

table::Table& LocalCluster::table(int worker) { return *seats_[static_cast<std::size_t>(worker)]; }

std::vector<Status> LocalCluster::run(
    const std::function<Status(int worker, table::Table& table)>& body) {
  std::vector<Status> outcomes(seats_.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t w = 0; w < seats_.size(); ++w)
      threads.emplace_back([&, w] {
        outcomes[w] = body(static_cast<int>(w), *seats_[w]);
        if (!outcomes[w].ok()) hub_->fail(outcomes[w].error());
      });
  }
  return outcomes;
}

void LocalCluster::regroup(const std::string& why, const std::string& scheme, table::Clock from) {
  hub_->regroup(why, scheme, from);
}

std::vector<std::string> LocalCluster::warnings() { return hub_->warnings(); }

std::uint64_t LocalCluster::merges() const { return hub_->count(&table::ShardCounters::merges); }

std::uint64_t LocalCluster::contributions() const {
  return hub_->count(&table::ShardCounters::contributions);
}

std::size_t LocalCluster::learning_rows() const { return hub_->learning_rows(); }

std::vector<std::vector<float>> LocalCluster::rows() const { return hub_->rows(); }

}  // namespace shoal::test
