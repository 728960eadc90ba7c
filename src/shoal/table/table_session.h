// The steps that the tables of all workers go through alike: the begin and end of a generation, and
// questions to the coordinator. The table over TCP and the simulator's implement the rows and the
// waits.
#pragma once

#include <atomic>

#include "shoal/table/pending_answers.h"
#include "shoal/table/scheme.h"
#include "shoal/table/table.h"

namespace shoal::table {

class TableSession : public Table {
 public:
  Status create(const Plan& plan, const Source& initial, const Destinations& destinations) override;
  void hold_states(CodecStates states) override { states_ = std::move(states); }
  Result<bool> regroup(const SegmentBody& end) override;
  Result<std::string> ask(Topic topic, Clock clock, std::string body) override;
  void tell(Topic topic, Clock clock, std::string body) override {
    enter();
    say({.topic = topic, .clock = clock, .body = std::move(body)});
  }
  Result<Want> start(Clock clock) override;
  Status finish(Clock clock) override;
  Status interruption() const override;
  Result<Reunion> reunite(std::string mine) override;
  Result<Want> end_of_generation() override;

 protected:
  // `compares`: the workers make sure that they all have the chief's plan.
  explicit TableSession(bool compares, SchemeMaker maker = &SchemeSpec::make)
      : compares_(compares), maker_(std::move(maker)) {}

  // Called before anything else in each call.
  virtual void enter() {}
  // Begins with the plan: from here on rows of it may come.
  virtual void open(const Plan& plan, const Destinations& destinations) = 0;
  // Gives the servers the plan and the first numbers, and waits until they have them.
  virtual Status install(const Plan& plan, const Source& initial,
                         const Destinations& destinations) = 0;
  // Tells all servers.
  virtual void retire(const Retire& retire) = 0;
  virtual void say(Ask question) = 0;  // to the coordinator
  // Waits until done(), which reads the coordinator's messages, is true. After a while a warning
  // says that the worker "has waited `whom` 5 s `why`".
  using Heard = std::function<bool(PendingAnswers&)>;
  virtual Status wait_to_hear(const Heard& done, const char* whom, const char* why) = 0;
  virtual void know(RosterBody roster) = 0;  // of the next generation
  virtual void end(Clock) {}                 // no iteration follows `clock` of them

  // Begins the generation of this plan where nothing has to be done or agreed on. An error is an
  // error of the plan.
  Status begin(const Plan& plan);
  void open_rows(const Plan& plan, const Destinations& destinations) {
    rows_ = plan.rows.size();
    open(plan, destinations);
  }
  // Waits until all rows that were asked for have arrived.
  Status settle();
  // Notes that the worker has pushed its row at this clock.
  void pushed(Clock clock) { retire_->clock = clock + 1; }
  const GenerationStart& generation_start() const { return start_; }
  const CodecStates& states() const { return states_; }
  // Sets how many processes of the plan are lost whose loss interrupts the workers. Where a worker
  // waits it is to be woken.
  void set_losses(std::size_t losses) { losses_ = static_cast<std::uint32_t>(losses); }
  // Notes that a process is lost. If it was to give the servers the params of this generation, and
  // has not, the generation began in vain. On any thread; where a worker waits it is to be woken.
  void note_lost(Rank rank) {
    if (rank == chief_) is_chief_lost_ = true;
  }
  // Forgets which rows are waited for: some may never come.
  virtual void forget_waits() {}
  // Returns whether the process of this rank may go on with rows of this generation that it has not
  // read: it is the chief, whose params they are, or a worker before it speaks for all. `workers`:
  // their ranks, in order.
  bool needs_no_rows(std::span<const Rank> workers, Rank rank) const {
    const auto before = std::ranges::lower_bound(workers, rank);
    return before == workers.begin() ||
           std::any_of(workers.begin(), before, [this](Rank one) { return !is_gone(one); });
  }
  bool was_interrupted() const { return known_losses_ > 0; }  // in this generation

 private:
  void look_for_chief();
  bool is_in_vain() const { return !rows_exist_ && is_chief_lost_; }

  const bool compares_;
  const SchemeMaker maker_;
  // The Retire for servers when this worker pushes nothing more; none before the first plan.
  std::optional<Retire> retire_;
  CodecStates states_;
  std::size_t rows_ = 0;  // that are open
  GenerationStart start_;
  bool waited_for_ = false;  // pushes of other workers may wait for this one's
  // Lost processes of the plan; of those the ones that the worker knew of when it last reunited.
  std::atomic<std::uint32_t> losses_{0}, known_losses_{0};
  // The chief of the generation that this worker has last seen begin, and what became of it.
  std::optional<Generation> known_;
  std::atomic<Rank> chief_{kNoRank};
  std::atomic<bool> is_chief_lost_{false}, rows_exist_{false};
};

// Returns the messages of the chief to each server: the plan, then of each of its rows the
// histories, then what answers left out, then the weights, which complete it.
std::vector<std::vector<Message>> initial_of(const Plan& plan, const Table::Source& initial);

}  // namespace shoal::table
