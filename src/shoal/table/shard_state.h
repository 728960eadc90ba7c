// The state of a shard and its message handlers. Plans and initial rows: shard.cpp. Pushes, reads,
// merges and membership: shard_pushes.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/shard.h"
#include "shoal/table/shard_row.h"

namespace shoal::table {

template <class... Args>
Error broken(const Args&... args) {
  return {Code::kPeer, str(args...)};
}

inline Address to_worker(int worker) { return {Address::Kind::kWorker, worker}; }

struct Shard::State {
  State(int server, SchemeMaker maker, CodecFinder codecs)
      : server(server), maker(std::move(maker)), codecs(codecs) {
    counters.staleness.resize(kStalenessClasses);
  }

  Status handle(int worker, const Message& message, Outbox& out);
  Status handle_plan(const PlanMessage& message, Outbox& out);
  Status check_next(const Plan& said) const;
  void begin(const Plan& said, std::unique_ptr<Scheme> made, const InPlace& in_place);
  bool is_late(Generation said);
  Status handle_init(const Init& init, Outbox& out);
  Status handle_push(int worker, const Push& push, Outbox& out);
  Status handle_get(int worker, const Get& get, Outbox& out);
  Status handle_retire(int worker, const Retire& retire, Outbox& out);
  void come_back(int worker, Clock clock);
  Status handle_total(const NormTotal& total, Outbox& out);
  Status check_push(int worker, const Push& push) const;
  Result<Values> numbers_of(int worker, const Push& push) const;
  ShardRow* find(RowId row) const;
  Error not_here(RowId row, const std::string& what) const;

  void be_ready(Outbox& out);
  void say_ready(Outbox& out) const;
  void leave(int worker, Outbox& out);
  void advance(ShardRow& row, Outbox& out);
  bool merge(ShardRow& row);
  void answer_readers(ShardRow& row, Outbox& out);
  void answer_reader(ShardRow& row, int worker, std::optional<Clock>& least, Outbox& out);
  void ask_again(ShardRow& row, int worker, Clock clock, Outbox& out);
  void park(ShardRow& row, Merge merge);
  void count(const ShardRow& row, const Merge& merge);
  void apply(ShardRow& row, const Merge& merge, double clip);
  void send_norm(Outbox& out) const;
  void send_norm_if_complete(Outbox& out);
  Clock clock_of(int worker) const;

  int server;
  const SchemeMaker maker;
  const CodecFinder codecs;
  std::optional<Plan> plan;
  std::unique_ptr<Scheme> scheme;
  std::vector<std::unique_ptr<ShardRow>> rows;  // of the plan; null where another server's
  std::vector<ShardRow*> learning;              // own rows that learn, by id
  std::size_t without_weights = 0;              // own rows
  std::vector<Clock> ends;                      // by worker: no push from there on
  std::vector<bool> gone;                       // by worker
  Spares spares;
  ParallelFor parallel_for;
  ShardCounters counters;
  std::vector<PushCounts> counts;  // by worker
  bool counts_only = false;
  // A clip of the norm: each learning row's merge of norm_clock waits until all have theirs, and
  // the coordinator has added up all servers'.
  Clock norm_clock = 0;
  std::size_t complete = 0;  // rows with a merge that waits
  bool norm_sent = false;
};

}  // namespace shoal::table
