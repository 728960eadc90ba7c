// The Table of a worker: a Client on a strand of its own, with a connection to each server but the
// one in its own process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/link/envoy.h"
#include "shoal/table/link/line.h"
#include "shoal/table/link/shard_host.h"
#include "shoal/table/link/talks.h"

namespace shoal::table {

class TableOverTcp final : public Table, public LineOwner {
 public:
  // `shard` is that of this process, or null.
  TableOverTcp(Job& job, IoThreads& threads, Envoy& envoy, Talks& talks, ShardHost* shard);

  // Connects with the servers, and returns when that is done.
  Status connect();
  void take(std::vector<Message> messages);  // of this process's shard; on any thread
  void close(bool with_bye);

  int worker() const override { return worker_; }
  const RosterBody& roster() const override { return *job_.roster(); }
  Status create(const Plan& plan, const Source& initial, const Destination& destination) override;
  Result<bool> regroup(const SegmentBody& end) override;
  Result<bool> leave(Clock clock, std::string state) override;
  Status status() const override { return job_.status(); }
  void share_out(ParallelFor parallel_for) override { parallel_for_ = std::move(parallel_for); }
  void push(std::span<const Push> together) override;
  void get(RowId row, Clock clock, Part part) override;
  Status wait(std::span<const RowId> rows) override;
  Result<std::string> ask(Topic topic, Clock clock, std::string body) override;
  void tell(Topic topic, Clock clock, std::string body) override;
  std::vector<Answer> take_outputs() override { return talks_.take_outputs(); }
  Result<Want> start(Clock clock) override { return talks_.start(clock); }
  Status finish(Clock clock) override;
  void abort(const Error& error) override { envoy_.abort(error); }
  void release() override;
  Traffic traffic() const override { return job_.traffic(); }
  StalenessCounts staleness() const override;

 private:
  // A push or a get on its way to the strand.
  struct Request {
    Push push;
    bool only_get = false;
    Part part = Part::kWeights;
  };
  struct Server {
    std::uint32_t rank = 0;
    std::unique_ptr<Line> line;  // null for this process's own
    bool up = false;             // guarded by the job's mutex
    // its rows of the generation exist; guarded likewise
    bool ready = false;
    std::vector<Message> initial;  // the chief's, until then; on the strand
  };

  // On the strand:
  std::span<std::byte> place(Line& line, Message& message, std::size_t bytes) override;
  Status received(Line& line, Message&& message) override;
  std::optional<Message> next(Line& line) override;
  void up(Line& line, bool again) override;
  void lost(Line& line, const Error& error) override;
  Status handle(int server, const Message& message);
  void drain();
  void pump(int server);
  void say(int server, const Message& message);
  void tick();
  void arrived(RowId row);
  void warn(double seconds);
  int server_of(const Line& line) const;
  // On the solver's thread:
  template <class Make>
  bool add(std::size_t count, const Make& request);
  Status settle();  // all that was asked for has arrived
  void take_servers();
  void retire(Clock clock);
  void push(Push push);
  Status agree(const Plan& plan);
  std::vector<std::vector<Message>> initial_of(const Plan& plan, const Source& initial) const;

  Job& job_;
  Envoy& envoy_;
  ShardHost* const shard_;
  Talks& talks_;
  const Strand strand_;
  int worker_ = -1, own_server_ = -1;
  // changes on the strand with the job's mutex held, while the solver's thread waits for it
  std::vector<Server> servers_;
  std::vector<std::unique_ptr<Line>> former_;  // closed; on the strand

  // On the strand:
  std::unique_ptr<Client> client_;
  Plan plan_;
  // requests by row that the client knows of
  std::vector<std::uint64_t> taken_;
  Clock retired_ = -1;
  bool ticks_ = false;
  // by the solver's thread, which then does what there is for this process's shard
  bool visited_ = false;

  // On the solver's thread:
  std::vector<std::uint64_t> requested_;  // by row
  Clock pushed_ = 0;                      // after the last push
  bool alone_ = false;                    // no other worker pushes
  // others' pushes may wait for this worker's
  bool waited_for_ = false;
  ParallelFor parallel_for_;

  // not taken to the strand yet; it comes for them if there are any
  std::vector<Request> requests_ GUARDED_BY(job_.mutex);
  // requests by row that have been answered
  std::vector<std::uint64_t> arrived_ GUARDED_BY(job_.mutex);
  // by row: the request that wait() waits for; 0: none
  std::vector<std::uint64_t> awaited_ GUARDED_BY(job_.mutex);
  std::size_t missing_ GUARDED_BY(job_.mutex) = 0;    // rows that wait() waits for
  StalenessCounts staleness_ GUARDED_BY(job_.mutex);  // the client's
};

}  // namespace shoal::table
