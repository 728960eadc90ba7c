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
  SimulatedTable(SimulatedJob& job, int worker, SimThread& thread)
      : TableSession(false, job.options().maker), job_(job), worker_(worker), thread_(thread) {
    job.attach(worker, *this);
  }

  // ---- the thread's side ----
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
      job_.link(worker_, server).send(0, retire);
  }

  int worker() const override { return worker_; }
  const table::RosterBody& roster() const override { return job_.roster(); }
  Status create(const Plan& plan, const Source& initial, const Destinations& destinations) override;
  Status status() const override { return job_.status(); }
  Result<bool> leave(Clock, std::string) override { return false; }  // its workers stay
  std::shared_ptr<float[]> memory(std::size_t floats) override {
    return std::make_shared_for_overwrite<float[]>(floats);
  }
  void share_out(table::ParallelFor) override {}
  void push(std::span<const table::Push> together) override;
  void get(RowId row, Clock clock, table::Part part) override;
  Status wait(std::span<const RowId> rows) override;
  bool has(std::span<const RowId> rows) override {
    enter();
    return !client_ ||
           std::ranges::all_of(rows, [this](RowId row) { return client_->arrived(row); });
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
    job_.fail(error);
  }
  // Releases: from here on nothing writes to the solver's params or reads its pushes.
  void release() override {
    enter();
    client_.reset();
  }
  table::Traffic traffic() const override {
    thread_.enter();
    return job_.traffic(worker_);
  }
  // Returns the time. While the thread computes, this is the time at which it began to.
  Instant now() const override { return thread_.acts() ? job_.time().now() : left_at_; }
  table::StalenessCounts staleness() const override {
    thread_.enter();
    return job_.staleness(worker_);
  }

  // ---- the job's side ----
  void received(int server, Message&& message);
  std::optional<Message> next(int server) { return client_ ? client_->next(server) : std::nullopt; }
  // Handles a message of the coordinator.
  void heard(const Message& message) {
    if (std::optional<table::Ask> reply = answers_.hear(message)) job_.ask(worker_, *reply);
    if (!std::holds_alternative<table::NormTotal>(message)) wake();
  }
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
    if (status().ok()) job_.ask(worker_, std::move(question));
  }
  Status wait_to_hear(const Heard& done, const char*, const char*) override {
    return wait_until([&] { return done(answers_); }, figures.others);
  }
  void know(table::RosterBody) override {}  // the job does
  void pump(int server) { job_.link(worker_, server).wake(0); }

  SimulatedJob& job_;
  const int worker_;
  SimThread& thread_;
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
};

}  // namespace shoal::simulate
