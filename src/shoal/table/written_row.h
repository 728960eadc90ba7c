// A row with one writer, in its shard: keeps what the writer pushed, clock by clock, until all
// readers have read it: the other workers, or the one that the row names. Nothing is summed.
#pragma once

#include <map>

#include "shoal/table/outbox.h"

namespace shoal::table {

class WrittenRow {
 public:
  WrittenRow(RowId id, const Plan& plan);

  // Keeps the writer's push, whose numbers were checked.
  void push(const Push& push, Outbox& out);
  // Takes a read. The writer's own asks whether its push of clock - 1 arrived. False: the row is
  // not for this worker.
  bool get(int worker, Clock clock, Outbox& out);
  // Removes a worker that reads no more.
  void leave(int worker);
  std::size_t bytes() const;

 private:
  // A worker that reads the row: the clock that it reads or has asked for last, and whether it
  // waits for that.
  struct Reader {
    int worker = 0;
    Clock clock = 0;
    bool waits = false;
  };

  RowMessage answer(Clock clock, const Payload& payload) const {
    return {.row = id_,
            .clock = clock,
            .version = clock,
            .payload = payload,
            .generation = generation_};
  }
  void acknowledge(Clock clock, Outbox& out) const;
  Reader* find(int worker);
  void read(Reader& reader, Clock clock);

  const RowId id_;
  const int writer_;
  const Generation generation_;
  Clock next_;                     // of the writer's next push
  std::map<Clock, Payload> kept_;  // by the clock that reads it
  std::vector<Reader> readers_;    // by worker
  Clock least_;                    // of all readers
  std::size_t slow_ = 0;           // readers at it
};

}  // namespace shoal::table
