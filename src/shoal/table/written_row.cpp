#include "shoal/table/written_row.h"

#include <algorithm>
#include <utility>

namespace shoal::table {

WrittenRow::WrittenRow(RowId id, const Plan& plan)
    : id_(id),
      writer_(plan.rows[id].writer),
      generation_(plan.generation),
      next_(plan.start_of(writer_)),
      least_(plan.start) {
  const int only = plan.rows[id].reader;
  for (int worker = 0; worker < plan.workers; ++worker)
    if (worker != writer_ && (only == kEveryWorker || only == worker))
      readers_.push_back({.worker = worker, .clock = plan.start});
  slow_ = readers_.size();
}

void WrittenRow::push(const Push& push, Outbox& out) {
  if (push.clock >= next_) {
    next_ = push.clock + 1;
    const Payload& kept = kept_[next_] = owned(push.payload);
    for (Reader& reader : readers_) {
      if (!reader.waits || reader.clock != next_) continue;
      reader.waits = false;
      out.push_back({reader.worker, answer(next_, kept)});
    }
  }
  acknowledge(push.clock + 1, out);
}

bool WrittenRow::get(int worker, Clock clock, Outbox& out) {
  if (worker == writer_) {
    acknowledge(clock, out);
    return true;
  }
  Reader* const reader = find(worker);
  if (reader == nullptr) return false;
  if (clock < reader->clock) return true;  // a late message: the worker has read further
  read(*reader, clock);
  const auto kept = kept_.find(clock);
  reader->waits = kept == kept_.end();
  if (!reader->waits) out.push_back({worker, answer(clock, kept->second)});
  return true;
}

// Answers the writer's question whether its push of clock - 1 arrived.
void WrittenRow::acknowledge(Clock clock, Outbox& out) const {
  if (clock > next_)
    out.push_back({writer_, NeedPush{id_, next_, generation_}});
  else if (clock == next_)  // else the writer has pushed again since: it knows
    out.push_back({writer_, answer(clock, {})});
}

void WrittenRow::leave(int worker) {
  if (Reader* const reader = find(worker)) read(*reader, kUnbounded);
}

WrittenRow::Reader* WrittenRow::find(int worker) {
  const auto found = std::ranges::lower_bound(readers_, worker, {}, &Reader::worker);
  return found == readers_.end() || found->worker != worker ? nullptr : &*found;
}

// Moves a reader on. Searches all readers only when the last of those at the least clock moves.
void WrittenRow::read(Reader& reader, Clock clock) {
  const bool is_slow = reader.clock == least_;
  if (clock == std::exchange(reader.clock, clock) || !is_slow || --slow_ > 0) return;
  least_ = std::ranges::min(readers_, {}, &Reader::clock).clock;
  slow_ = static_cast<std::size_t>(std::ranges::count(readers_, least_, &Reader::clock));
  kept_.erase(kept_.begin(), kept_.lower_bound(least_));
}

std::size_t WrittenRow::bytes() const {
  std::size_t bytes = 0;
  for (const auto& [clock, payload] : kept_) bytes += payload.bytes.size();
  return bytes;
}

}  // namespace shoal::table
