// Between workers that ask about their tasks and the scheme's pacer, which knows nothing of
// repeats, of bytes, or of the tasks of the job.
#pragma once

#include <map>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Pacing {
 public:
  explicit Pacing(Members& members) : members_(members) {}

  // This pacer decides from now on; null: every task may start, and counts. Workers that are active
  // take part in it.
  void use(std::unique_ptr<Pacer> pacer);
  // The same goes on in another generation, the first one too: with who has come, and without who
  // has left.
  void go_on();
  Status begin(Rank rank, const Ask& ask);
  Status judge(Rank rank, const Ask& ask);
  // It leaves the job, after `done` tasks: one more that it was told to begin is another's.
  void leave_undone(Rank rank, Clock done);
  // It goes to a meeting: if it waits for a start, it will ask again, unless it has ended its
  // tasks.
  void stop_asking(Rank rank, bool ended);
  // It is done.
  void leave(Rank rank);

  // For the start of which task.
  std::optional<Clock> waits_for(Rank rank) {
    return waits(rank) ? workers_[rank].waits : std::nullopt;
  }
  bool waits(Rank rank) { return workers_[rank].waits && !workers_[rank].aside; }
  // "rank 2 (host b) in begin 7", a line for each that waits for its start.
  std::vector<std::string> places();
  // "begin 7: waiting for rank 2 (host b)", or "" if nobody waits for a start.
  std::string waiting_for();
  std::vector<std::string> take_remarks();

 private:
  struct Worker {
    bool takes_part = false;     // in the pacer
    std::optional<Clock> waits;  // for the start of this task
    // but is in a meeting, or has not asked again since
    bool aside = false;
    // the last task that it was answered about, and how
    std::optional<Clock> begun;
    std::string start;
    bool over = false;                                      // that there is none for it
    std::optional<std::pair<Clock, std::uint32_t>> judged;  // the last question, and the answer
    std::string verdict;
    // has said how many tasks it has done of those that are shared, or came when they were counted
    bool is_counted = true;
  };
  // The tasks of a phase, where workers share them: of each that is there when the first asks. How
  // many are left is known when these have said how many they have done. Who joins later takes of
  // them, and who leaves has left its own to the others.
  struct Pool {
    Clock until = 0;                     // of each; of another phase it is another
    std::int64_t workers = 0, left = 0;  // of these; tasks that nobody has begun
  };
  void join_pool(Worker& worker, Clock done, Clock until);
  void release();
  void answer(Rank rank, Start start);

  Members& members_;
  std::unique_ptr<Pacer> pacer_;
  std::map<Rank, Worker> workers_;  // by rank
  std::optional<Pool> pool_;
};

}  // namespace shoal::table
