// Connects workers' begin and judge requests to the scheme's Pacer; removes repeats. The Pacer
// knows neither bytes nor the number of the job's tasks.
#pragma once

#include <map>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Pacing {
 public:
  explicit Pacing(Members& members) : members_(members) {}

  // Sets the pacer; null: every task may start, and counts. Active workers take part in it.
  void use(std::unique_ptr<Pacer> pacer) {
    pacer_ = std::move(pacer);
    pool_.reset();
    for (auto& [rank, worker] : workers_) {
      worker.takes_part = worker.over = false;
      worker.begun.reset(), worker.judged.reset();  // clocks may begin anew
    }
    for (const Rank rank : members_.active()) {
      if (!pacer_) continue;
      workers_[rank].takes_part = true;
      pacer_->join(number_of(rank), members_.now);
    }
    for (const Rank rank : members_.active())
      if (pacer_ && workers_[rank].waits)
        pacer_->ready(number_of(rank), *workers_[rank].waits, {}, members_.now);
    release();
  }
  // Continues with the same pacer in another generation, the first one too, with the workers that
  // have joined and without those that have left.
  void go_on() {
    for (Rank rank = 0; rank < members_.size(); ++rank)
      if (!members_[rank].active()) leave(rank);
    for (const Rank rank : members_.active()) {
      if (pacer_ && !std::exchange(workers_[rank].takes_part, true))
        pacer_->join(number_of(rank), members_.now);
      // The worker asks again: there may be a task.
      if (std::exchange(workers_[rank].over, false))
        workers_[rank].begun.reset(), workers_[rank].judged.reset();
    }
  }
  Status begin(Rank rank, const Ask& ask) {
    const Result<BeginBody> body = decode<BeginBody>(ask.body);
    if (!body.ok()) return members_.broken(rank, " sends ", body.error().message);
    Worker& worker = workers_[rank];
    if (worker.begun && ask.clock == *worker.begun) {
      members_.say(rank, Answer{Topic::kBegin, ask.clock, worker.start});
      return {};
    }
    worker.aside = false;
    if ((worker.begun && ask.clock < *worker.begun) || worker.waits == ask.clock) return {};
    if (worker.waits)
      return members_.broken(rank, " asks for begin ", ask.clock, " while it waits in begin ",
                             *worker.waits, "; a worker begins one task at a time");
    if (body.value().until > 0) join_pool(worker, ask.clock, body.value().until);
    worker.waits = ask.clock;
    if (worker.takes_part)
      pacer_->ready(number_of(rank), ask.clock, body.value().last, members_.now);
    release();
    return {};
  }
  Status judge(Rank rank, const Ask& ask) {
    const Result<TaskReport> report = decode<TaskReport>(ask.body);
    if (!report.ok()) return members_.broken(rank, " sends ", report.error().message);
    Worker& worker = workers_[rank];
    const std::pair question(ask.clock, report.value().steps);
    if (worker.judged && question < *worker.judged) return {};
    if (!worker.judged || question != *worker.judged) {
      Verdict verdict = Verdict::kPush;
      if (worker.takes_part) {
        verdict = pacer_->judge(number_of(rank), ask.clock, report.value(), members_.now);
        for (const std::string& words : pacer_->take_remarks())
          members_.warn(str(members_.name(rank), ' ', words));
      }
      if (pool_ && verdict == Verdict::kDrop) ++pool_->left;
      worker.judged = question;
      worker.verdict = encode(VerdictBody{report.value().steps, verdict});
    }
    members_.say(rank, Answer{Topic::kJudge, ask.clock, worker.verdict});
    release();
    return {};
  }
  // The worker leaves after `done` tasks; a task it was granted but did not start returns to the
  // pool.
  void leave_undone(Rank rank, Clock done) {
    Worker& worker = workers_[rank];
    worker.waits.reset();
    if (pool_ && worker.begun == done && !worker.over) ++pool_->left;
  }
  // The worker is lost: the task that it had begun returns to the pool.
  void lose(Rank rank) {
    if (const std::optional<Clock> begun = workers_[rank].begun) leave_undone(rank, *begun);
    workers_[rank].waits.reset();
  }
  // Notes that the worker goes to a meeting: if it waits for a start, it will ask again, unless it
  // has ended its tasks.
  void stop_asking(Rank rank, bool ended) {
    workers_[rank].aside = true;
    if (ended) leave(rank);
  }
  // Takes out a worker that is done.
  void leave(Rank rank) {
    if (std::exchange(workers_[rank].takes_part, false))
      pacer_->leave(number_of(rank), members_.now);
    release();
  }

  // Returns the task for whose start the worker waits.
  std::optional<Clock> waits_for(Rank rank) {
    return waits(rank) ? workers_[rank].waits : std::nullopt;
  }
  bool waits(Rank rank) { return workers_[rank].waits && !workers_[rank].aside; }
  // Adds "rank 2 (host b) in begin 7", a line for each that waits for its start.
  void places(Lines& lines) {
    for (const Rank rank : members_.active())
      if (waits(rank))
        lines.push_back(str(members_.name(rank), " in begin ", *workers_[rank].waits));
  }
  // Adds "begin 7: waiting for rank 2 (host b)", if a worker waits for a start.
  void waiting_for(Lines& lines) {
    std::optional<Clock> first;
    std::vector<Rank> others;
    for (const Rank rank : members_.active()) {
      if (!waits(rank))
        others.push_back(rank);
      else if (!first || *workers_[rank].waits < *first)
        first = workers_[rank].waits;
    }
    if (first)
      lines.push_back(str("begin ", *first, ": waiting for ",
                          others.empty() ? "nobody" : members_.names(others)));
  }

  std::string take_round() { return pacer_ ? pacer_->take_round() : ""; }

  void state(StateWriter& io) {
    io(workers_, pool_);
    if (pacer_) pacer_->save(io), pacer_->state_not_taken(io);
  }
  // Takes the state that was saved with a pacer of the same scheme, or with none.
  void state(StateReader& io, std::unique_ptr<Pacer> pacer) {
    pacer_ = std::move(pacer);
    io(workers_, pool_);
    if (pacer_) pacer_->load(io), pacer_->state_not_taken(io);
  }

 private:
  struct Worker {
    bool takes_part = false;     // in the pacer
    std::optional<Clock> waits;  // for the start of this task
    // Waits, but is in a meeting, or has not asked again since.
    bool aside = false;
    // The last task for which it had an answer, and the answer.
    std::optional<Clock> begun;
    std::string start;
    bool over = false;                                      // that there is none for it
    std::optional<std::pair<Clock, std::uint32_t>> judged;  // the last question, and the answer
    std::string verdict;
    // It has reported how many of the shared tasks it has done, or came when they were counted.
    bool is_counted = true;
    void state(auto& io) {
      io(takes_part, waits, aside, begun, start, over, judged, verdict, is_counted);
    }
  };
  // The tasks of a phase, where workers share them: those of each worker that is there at the first
  // request. The number left is known when these have reported how many they have done. A worker
  // that joins later takes some of them, and one that leaves has left its own to the others.
  struct Pool {
    Clock until = 0;                     // of each; of another phase it is another
    std::int64_t workers = 0, left = 0;  // of these; tasks that are not begun
    void state(auto& io) { io(until, workers, left); }
  };
  void join_pool(Worker& worker, Clock done, Clock until) {
    if (!pool_ || pool_->until != until) {
      pool_ = Pool{.until = until};
      for (auto& [rank, each] : workers_) each.is_counted = true;
      for (const Rank rank : members_.active()) workers_[rank].is_counted = false;
    }
    if (std::exchange(worker.is_counted, true)) return;
    pool_->left += until - done;
    ++pool_->workers;
  }
  void release() {
    const std::vector<Rank> active = members_.active();
    if (pool_ && !std::ranges::all_of(active, [&](Rank rank) { return workers_[rank].is_counted; }))
      return;
    for (const Rank rank : active)
      if (workers_[rank].waits && !workers_[rank].takes_part) answer(rank, {});
    if (!pacer_) return;
    for (const Start& start : pacer_->take_starts(members_.now))
      answer(static_cast<Rank>(start.worker), start);
  }
  void answer(Rank rank, Start start) {
    Worker& worker = workers_[rank];
    if (pool_) {
      start.over = pool_->left <= 0;
      const std::int64_t workers = std::max<std::int64_t>(1, pool_->workers);
      start.at = std::max<Clock>(0, pool_->until - (pool_->left + workers - 1) / workers);
      if (!start.over) --pool_->left;
    }
    worker.over = start.over;
    worker.begun = *std::exchange(worker.waits, std::nullopt);
    worker.start = encode(start);
    members_.say(rank, Answer{Topic::kBegin, *worker.begun, worker.start});
  }

  // Returns the worker's number in the pacer, which outlives generations: its process's rank, which
  // is never given again.
  static int number_of(Rank rank) { return static_cast<int>(rank); }

  Members& members_;
  std::unique_ptr<Pacer> pacer_;
  std::map<Rank, Worker> workers_;  // by rank
  std::optional<Pool> pool_;
};

}  // namespace shoal::table
