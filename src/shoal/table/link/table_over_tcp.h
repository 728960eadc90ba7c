// The Table of a worker in a job over TCP: a Client on a strand, connected with every server. It
// reaches the server in its own process without a connection.
#pragma once

#include "shoal/table/client.h"
#include "shoal/table/link/shard_host.h"
#include "shoal/table/table_session.h"

namespace shoal::table {

class TableOverTcp final : public TableSession, public PeerOwner {
 public:
  // `shard` is that of this process, and starts when this is a server.
  TableOverTcp(ProcessState& process, IoThreads& threads, CoordinatorClient& coordinator,
               ShardHost& shard);

  // Connects with all servers, `anew` where there is a connection; returns when that is done.
  Status connect(bool anew = false);
  // Goes on without a process that is counted out. On any thread.
  void lose(Rank rank);
  void deliver(std::vector<Message> messages);  // of this process's shard; on any thread
  void close(bool with_bye) {
    strand_.post([this, with_bye] { peers_.close(with_bye); });
  }

  int worker() const override { return worker_; }
  const RosterBody& roster() const override { return *process_.roster(); }
  bool can_copy() const override { return true; }
  bool is_gone(Rank rank) const override { return process_.is_gone(rank); }
  Status create(const Plan& plan, const Source& initial, const Destinations& destinations) override;
  Result<bool> regroup(const SegmentBody& end) override;
  Result<bool> leave(Clock clock, std::string state) override;
  std::shared_ptr<float[]> memory(std::size_t floats) override;
  Status status() const override { return process_.status(); }
  void share_out(ParallelFor parallel_for) override { parallel_for_ = std::move(parallel_for); }
  void push(std::span<const Push> together) override;
  void get(RowId row, Clock clock, Part part) override;
  // Hurries the servers behind the pushes, which may not have left yet.
  void hurry(std::span<const RowId> rows) override {
    strand_.post([this, all = std::vector<RowId>(rows.begin(), rows.end())] {
      drain();
      if (!client_) return;
      for (const RowId row : all) client_->hurry(row);
      for (int server = 0; server < static_cast<int>(servers_.size()); ++server) pump(server);
    });
  }
  Status wait(std::span<const RowId> rows) override;
  bool has(std::span<const RowId> rows) override;
  Version version(RowId row) override {
    MutexLock lock(process_.mutex);
    return pending_[row].version;
  }
  std::vector<Answer> take_outputs() override { return coordinator_.take_outputs(); }
  std::optional<AccountBody> account() const override { return coordinator_.account(); }
  Result<Want> start(Clock clock) override {
    process_.clock = clock;
    return TableSession::start(clock);
  }
  void abort(const Error& error) override { coordinator_.abort(error); }
  void release() override;
  Traffic traffic() const override { return process_.traffic->sum(); }
  Instant now() const override { return table::now(); }
  StalenessCounts staleness() const override {
    const Staleness reads = shard_.reads();
    MutexLock lock(process_.mutex);
    return {.pushes = staleness_.pushes, .reads = reads, .drops = staleness_.drops};
  }

 private:
  // A push or a get on its way to the strand.
  struct Request {
    Push push;
    bool only_get = false;
    Part part = Part::kWeights;
  };

  // A row that was asked for and has not arrived; wait() waits for it if it is awaited.
  struct Pending {
    bool is_asked = false, is_awaited = false;
    Version version = 0;  // that arrived last
  };

  // On the strand:
  std::span<std::byte> place(Message& message, std::size_t bytes) override {
    RowMessage* const row = std::get_if<RowMessage>(&message);
    return client_ && row ? client_->place(*row, bytes) : std::span<std::byte>();
  }
  bool keeps(const Message& message) override {
    const RowMessage* const row = std::get_if<RowMessage>(&message);
    return client_ && row && client_->keeps(*row);
  }
  Status received(Peer& peer, Message&& message) override {
    return handle(number_of(peer.rank()), message);
  }
  std::optional<Message> next(Peer& peer) override {
    return client_ ? client_->next(number_of(peer.rank())) : std::nullopt;
  }
  void up(Peer& peer, bool again) override;
  void lost(Peer& peer, const Error& error) override {
    coordinator_.report_lost(peer.rank(), peer.heard_clock(), error);
  }
  // Returns the number of a server, or one past the last if the rank is none.
  int number_of(Rank rank) const {
    return static_cast<int>(std::ranges::find(servers_, rank) - servers_.begin());
  }
  bool is_own(int server) const { return servers_[server] == process_.options.rank; }
  // Starts this process's shard, once it is a server: from the beginning, or since none is left.
  void start_shard() {
    if (serves_ || roster().processes[process_.options.rank].server < 0) return;
    serves_ = true;
    shard_.start(roster(), [this](std::vector<Message> messages) { deliver(std::move(messages)); });
  }
  void dial_servers(bool anew);
  void fail_over(int server);
  Status handle(int server, const Message& message);
  void drain();
  void count_local(const Message& message) {
    if (const Payload* payload = payload_of(message))
      process_.traffic->local_bytes += payload->bytes.size();
  }
  void pump(int server);
  void send(int server, const Message& message);
  void tick();
  void arrived(RowId row);
  void warn(double seconds);
  // On the solver's thread:
  bool add(std::span<const Push> pushes, bool only_get = false, Part part = Part::kWeights);
  template <class Done>
  Status wait_until(Done done, const char* late);
  void open(const Plan& plan, const Destinations& destinations) override;
  Status install(const Plan& plan, const Source& initial,
                 const Destinations& destinations) override;
  void retire(const Retire& retire) override {
    strand_.post([this, retire] {
      if (!client_) return;  // no server has heard of this worker
      retired_ = retire;
      for (std::size_t server = 0; server < servers_.size(); ++server)
        send(static_cast<int>(server), retire);
    });
  }
  void say(Ask question) override { coordinator_.send(std::move(question)); }
  Status wait_to_hear(const Heard& done, const char* whom, const char* why) override {
    return coordinator_.wait_to_hear(done, whom, why);
  }
  void know(RosterBody roster) override {
    process_.know(std::move(roster));
    coordinator_.regrouped();
    MutexLock lock(process_.mutex);
    needed_.clear();
    lost_.clear();
  }
  void forget_waits() override {
    MutexLock lock(process_.mutex);
    missing_ = 0;
    for (Pending& pending : pending_) pending.is_awaited = false;
  }
  void end(Clock clock) override { coordinator_.end(clock); }

  ProcessState& process_;
  CoordinatorClient& coordinator_;
  ShardHost& shard_;
  const Strand strand_;

  // On the strand:
  Peers peers_;                // servers in other processes; those that have left are closed
  std::vector<Rank> servers_;  // by number; changes while the solver's thread waits
  // The chief's plan and numbers, by server, until all are ready.
  std::vector<std::vector<Message>> initial_;
  std::unique_ptr<Client> client_;
  Plan plan_;
  std::optional<Retire> retired_;  // the last, if no push has followed
  bool ticks_ = false;
  bool visited_ = false;  // by the solver's thread, which then works for this process's shard

  // On the solver's thread:
  int worker_ = -1;
  bool serves_ = false;  // the shard has started
  bool alone_ = false;   // no other worker pushes
  ParallelFor parallel_for_;

  // Requests not taken to the strand yet; if there are any, the strand comes for them.
  std::vector<Request> requests_ GUARDED_BY(process_.mutex);
  std::vector<Pending> pending_ GUARDED_BY(process_.mutex);  // by row
  std::size_t missing_ GUARDED_BY(process_.mutex) = 0;       // rows that wait() waits for
  // Processes of the plan whose loss interrupts the worker; those of them that are lost.
  std::set<Rank> needed_ GUARDED_BY(process_.mutex), lost_ GUARDED_BY(process_.mutex);
  StalenessCounts staleness_ GUARDED_BY(process_.mutex);  // the client's
  std::set<int> ready_ GUARDED_BY(process_.mutex);  // servers that have this generation's rows
};

}  // namespace shoal::table
