#include "shoal/table/written_row.h"

#include <algorithm>

namespace shoal::table {

WrittenRow::WrittenRow(RowId id, const Plan& plan)
    : id_(id),
      writer_(plan.rows[id].writer),
      generation_(plan.generation),
      next_(plan.start_of(writer_)),
      reads_(plan.workers, plan.start),
      waits_(plan.workers) {
  reads_[static_cast<std::size_t>(writer_)] = kUnbounded;
}

void WrittenRow::push(const Push& push, Outbox& out) {
  if (push.clock == next_) {
    const Payload& kept = kept_[++next_] = owned(push.payload);
    for (std::size_t reader = 0; reader < reads_.size(); ++reader) {
      if (!waits_[reader] || reads_[reader] != next_) continue;
      waits_[reader] = false;
      out.push_back({static_cast<int>(reader), answer(next_, kept)});
    }
  }
  get(writer_, push.clock + 1, out);
}

void WrittenRow::get(int worker, Clock clock, Outbox& out) {
  if (worker == writer_) {
    if (clock > next_)
      out.push_back({worker, NeedPush{id_, next_, generation_}});
    else if (clock == next_)  // else the writer has pushed again since: it knows
      out.push_back({worker, answer(clock, {})});
    return;
  }
  const auto reader = static_cast<std::size_t>(worker);
  if (clock < reads_[reader]) return;  // a late message: the worker has read further
  read(worker, clock);
  const auto kept = kept_.find(clock);
  waits_[reader] = kept == kept_.end();
  if (!waits_[reader]) out.push_back({worker, answer(clock, kept->second)});
}

void WrittenRow::read(int worker, Clock clock) {
  reads_[static_cast<std::size_t>(worker)] = clock;
  kept_.erase(kept_.begin(), kept_.lower_bound(std::ranges::min(reads_)));
}

std::size_t WrittenRow::bytes() const {
  std::size_t bytes = 0;
  for (const auto& [clock, payload] : kept_) bytes += payload.bytes.size();
  return bytes;
}

}  // namespace shoal::table
