// A row with one writer, in its shard: keeps what the writer pushed, clock by clock, until all
// other workers have read it. Nothing is summed.
#pragma once

#include <map>

#include "shoal/table/shard.h"

namespace shoal::table {

class WrittenRow {
 public:
  WrittenRow(RowId id, const Plan& plan);

  // The writer's push; its numbers were checked.
  void push(const Push& push, Outbox& out);
  // A read, of the writer too: its question whether the push of clock - 1 arrived.
  void get(int worker, Clock clock, Outbox& out);
  // The worker reads no more.
  void leave(int worker) { read(worker, kUnbounded); }
  std::size_t bytes() const;

 private:
  RowMessage answer(Clock clock, const Payload& payload) const {
    return {.row = id_,
            .clock = clock,
            .version = clock,
            .payload = payload,
            .generation = generation_};
  }
  void read(int worker, Clock clock);

  const RowId id_;
  const int writer_;
  const Generation generation_;
  Clock next_;                     // of the writer's next push
  std::map<Clock, Payload> kept_;  // by the clock that reads it
  // by worker: the clock that it reads or has asked for last, and whether it waits for that
  std::vector<Clock> reads_;
  std::vector<bool> waits_;
};

}  // namespace shoal::table
