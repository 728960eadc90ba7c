// The Table of a simulated worker: its calls wait in virtual time, on a SimThread.
#pragma once

#include "shoal/simulate/sim_thread.h"
#include "shoal/simulate/simulated_job.h"
#include "shoal/simulate/simulation.h"
#include "shoal/table/client.h"
#include "shoal/table/table_session.h"

namespace shoal::simulate {

class SimulatedTable final : public table::TableSession {
 public:
  // `rank`: of the process, a worker of the job's first generation or one that is to join().
  SimulatedTable(SimulatedJob& job, Rank rank, SimThread& thread)
      : TableSession(false, job.options().maker),
        job_(job),
        rank_(rank),
        thread_(thread),
        worker_(job.number_of(rank)) {
    job.attach(rank, *this);
  }

  // ---- the thread's side ----
  // Joins the job that trains: returns when a generation begins in which this process is a worker.
  // False: the job is done, and takes no one any more.
  Result<bool> join();
  // The worker's; the table adds the seconds.
  WorkerFigures figures{};
  // Returns the figures now, which may be in the middle of computing or of a wait for rows.
  WorkerFigures figures_now() const;
  // Counts that the worker computes from now until then.
  void computes(Instant until);
  // Counts a wait for rows, from the first call until the second.
  void waits_for_rows() { waits_since_ = job_.time().now(); }
  void has_rows();
  // The thread computes until this time. Its next call of the table returns to virtual time. Does
  // nothing if the job has failed.
  void compute(Instant until);
  void enter() override { thread_.enter(); }
  // Waits until done() or a failure of the job, and adds the seconds to `account`. Whatever makes
  // done() true calls wake().
  Status wait_until(const std::function<bool()>& done, double& account);
  // Calls `then` when these rows have arrived: at once if they have already.
  void when_arrived(std::span<const RowId> rows, std::function<void()> then);
  // Calls `arrived` from here on for each row that arrives, before whatever waits for it goes on.
  void on_arrival(std::function<void(RowId)> arrived) { arrived_ = std::move(arrived); }
  // Tells all servers that this worker pushes nothing more.
  void retire(const table::Retire& retire) override {
    if (!client_) return;  // no server has heard of this worker
    for (int server = 0; server < job_.servers(); ++server)
      job_.link(rank_, server).send(0, retire);
  }
  // Counts a task of this worker, and those that were made again after a loss.
  void task_ends() {
    ++tasks_;
    job_.task_ends(rank_);
  }
  std::int64_t made_again() const { return made_again_; }

  int worker() const override { return worker_; }
  const table::RosterBody& roster() const override { return job_.roster(); }
  Status create(const Plan& plan, const Source& initial, const Destinations& destinations) override;
  Result<bool> regroup(const table::SegmentBody& end) override;
  bool is_gone(Rank rank) const override { return gone_.contains(rank); }
  Status status() const override {
    return is_lost_ ? Error{Code::kPeer, "this process is lost"} : job_.status();
  }
  Result<bool> leave(Clock, std::string) override { return false; }  // its workers stay
  std::shared_ptr<float[]> memory(std::size_t floats) override {
    return std::make_shared_for_overwrite<float[]>(floats);
  }
  void share_out(table::ParallelFor) override {}
  void push(std::span<const table::Push> together) override;
  void get(RowId row, Clock clock, table::Part part) override;
  void hurry(std::span<const RowId> rows) override;
  Status wait(std::span<const RowId> rows) override;
  bool has(std::span<const RowId> rows) override {
    enter();
    return !client_ || std::ranges::all_of(rows, [this](RowId row) { return is_there(row); });
  }
  table::Version version(RowId row) override {
    enter();
    return client_->version(row);
  }
  std::vector<table::Answer> take_outputs() override {
    enter();
    return answers_.take_outputs();
  }
  void abort(const Error& error) override {
    enter();
    if (!is_lost_) job_.fail(error);
  }
  // Releases: from here on nothing writes to the solver's params or reads its pushes.
  void release() override {
    enter();
    client_.reset();
  }
  table::Traffic traffic() const override {
    thread_.enter();
    return job_.traffic(rank_);
  }
  // Returns the time. While the thread computes, this is the time at which it began to.
  Instant now() const override { return thread_.acts() ? job_.time().now() : left_at_; }
  table::StalenessCounts staleness() const override {
    thread_.enter();
    return job_.staleness(rank_);
  }

  // ---- the job's side ----
  void received(int server, Message&& message);
  std::optional<Message> next(int server) {
    return client_ && !is_lost_ ? client_->next(server) : std::nullopt;
  }
  // Ends this worker's part at once: each of its calls fails.
  void be_lost() {
    figures = figures_now();
    computes_until_ = {};
    is_lost_ = true;
    thread_.resume();
  }
  bool is_lost() const { return is_lost_; }
  // Goes on without the process of this rank, which the coordinator has counted out.
  void lose(table::Rank rank);
  // Handles a message of the coordinator.
  void heard(const Message& message);
  // Lets the thread look again whether it has to wait.
  void wake() {
    if (suspended_) thread_.resume();
  }

 private:
  void open(const Plan& plan, const Destinations& destinations) override;
  Status install(const Plan& plan, const Source& initial, const Destinations&) override {
    job_.install_plan(plan, initial);
    return {};
  }
  void say(table::Ask question) override {
    if (status().ok()) job_.ask(rank_, std::move(question));
  }
  Status wait_to_hear(const Heard& done, const char*, const char*) override {
    return wait_until([&] { return done(answers_); }, figures.others);
  }
  void know(table::RosterBody) override {}  // the job does
  void forget_waits() override {
    awaited_.assign(awaited_.size(), false);
    missing_ = 0;
    then_ = nullptr;
  }
  void ask_server(RowId row);
  bool is_there(RowId row) const { return client_->arrived(row) && !never_.contains(row); }
  void fail_over(table::Rank rank);
  void arrived(RowId row);
  void count_losses() {
    set_losses(static_cast<std::size_t>(
        std::ranges::count_if(needed_, [this](table::Rank rank) { return gone_.contains(rank); })));
  }
  void pump(int server) { job_.link(rank_, server).wake(0); }

  SimulatedJob& job_;
  const Rank rank_;
  SimThread& thread_;
  int worker_;  // its number in this generation; -1: it has not joined yet
  std::unique_ptr<table::Client> client_;
  std::vector<bool> awaited_;   // by row
  std::size_t missing_ = 0;     // rows that are awaited
  std::function<void()> then_;  // when they have arrived
  std::function<void(RowId)> arrived_;
  table::PendingAnswers answers_;
  Instant left_at_{};         // when the thread last began to compute
  Instant computes_until_{};  // the end of the last computation
  std::optional<Instant> waits_since_;
  bool suspended_ = false;
  std::atomic<bool> is_lost_ = false;
  bool is_refused_ = false;                  // it cannot join
  std::int64_t tasks_ = 0, made_again_ = 0;  // of this generation; of all, those made again
  std::set<table::Rank> gone_;
  std::set<RowId> never_;  // rows of one writer that were lost with their server
  std::vector<table::Rank> workers_, servers_;  // of this generation
  std::set<table::Rank> needed_;  // whose loss interrupts this worker, in this generation
};

}  // namespace shoal::simulate
