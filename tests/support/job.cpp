#include "support/job.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "shoal/parallel/worker.h"
#include "shoal/simulate/sim_thread.h"
#include "shoal/simulate/simulated_job.h"
#include "shoal/simulate/simulated_table.h"
#include "support/forwarding_table.h"

namespace shoal::test {

using namespace std::chrono_literals;
using simulate::Instant;
using simulate::SimulatedJob;

namespace {

simulate::Cluster cluster_of(int workers, int servers) {
  simulate::Cluster cluster;
  for (int r = 0; r < std::max(workers, servers); ++r)
    cluster.processes.push_back({.worker = r < workers, .server = r < servers, .compute = {}});
  return cluster;
}

}  // namespace

struct Job::State {
  State(int workers, int servers, table::SchemeMaker maker)
      : job(cluster_of(workers, servers), {.scheme = {}, .maker = std::move(maker)}),
        slots(workers) {}
  SimulatedJob job;
  simulate::ComputeSlots slots;
  std::vector<std::unique_ptr<Worker>> workers;
};

struct Job::Worker {
  // Lets a push take a little virtual time, so that tasks have a duration.
  struct SlowTable final : ForwardingTable {
    explicit SlowTable(Worker& worker) : ForwardingTable(worker.simulated), owner(worker) {}
    void push(std::span<const table::Push> together) override {
      ForwardingTable::push(together);
      owner.pass(10us);
    }
    Worker& owner;
  };

  Worker(SimulatedJob& job, simulate::ComputeSlots& slots, int number)
      : job(job), thread(slots), simulated(job, number, thread), table(*this) {}
  void pass(Instant time) {
    thread.enter();
    job.time().after(time, [this] { thread.resume(); });
    thread.suspend();
  }

  SimulatedJob& job;
  simulate::SimThread thread;
  simulate::SimulatedTable simulated;
  SlowTable table;
  Status outcome;
  static thread_local Worker* current;  // the worker of the current thread
};
thread_local Job::Worker* Job::Worker::current = nullptr;

Job::Job(int workers, int servers, table::SchemeMaker maker)
    : state_(std::make_unique<State>(workers, servers, std::move(maker))) {
  for (int number = 0; number < workers; ++number)
    state_->workers.push_back(std::make_unique<Worker>(state_->job, state_->slots, number));
}

Job::~Job() = default;

std::vector<Status> Job::run(const std::function<Status(int worker, table::Table& table)>& body) {
  SimulatedJob& job = state_->job;
  for (const auto& worker : state_->workers) {
    Worker* const me = worker.get();
    job.time().at({}, [me] { me->thread.resume(); });
    me->thread.start([me, &job, &body] {
      Worker::current = me;
      me->simulated.enter();
      me->outcome = body(me->table.worker(), me->table);
      me->simulated.release();
      if (!me->outcome.ok()) job.fail(me->outcome.error());
    });
  }
  const auto ended = [](const auto& worker) { return worker->thread.ended(); };
  while (!std::ranges::all_of(state_->workers, ended))
    if (!job.time().step()) job.fail({Code::kTimeout, "the workers wait for each other"});
  std::vector<Status> outcomes;
  for (const auto& worker : state_->workers) outcomes.push_back(worker->outcome);
  return outcomes;
}

std::uint64_t Job::merges() const { return state_->job.counters().merges; }

std::uint64_t Job::contributions() const { return state_->job.counters().contributions; }

std::size_t Job::learning_rows() const { return rows().size(); }

std::vector<std::vector<float>> Job::rows() const {
  SimulatedJob& job = state_->job;
  std::vector<std::vector<float>> all;
  const table::Plan* plan = job.shard(0).plan();
  for (table::RowId row = 0; plan && row < plan->rows.size(); ++row) {
    if (!plan->rows[row].learns) continue;
    const auto now = job.shard(plan->rows[row].server).look(row);
    all.emplace_back(now->payload.floats().begin(), now->payload.floats().end());
  }
  return all;
}

std::vector<std::string> Job::warnings() { return state_->job.take_warnings(); }

void Job::pass(table::Instant time) { Worker::current->pass(time); }

std::vector<std::string> run_team(int size, const std::function<void(Team&)>& body) {
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  Job(size).run([&](int worker, table::Table& table) -> Status {
    try {
      body(*parallel::make_table_team(table));
    } catch (const ConfigError& error) {
      thrown[static_cast<std::size_t>(worker)] = error.what();
      return error.error();
    }
    return {};
  });
  return thrown;
}

void Gate::reach(int at) { at_ = std::max(at_, at); }

bool Gate::wait(int at) {
  for (int i = 0; i < 100'000 && at_ < at; ++i) Job::pass(10us);
  return at_ >= at;
}

}  // namespace shoal::test
