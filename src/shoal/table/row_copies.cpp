#include "shoal/table/row_copies.h"

#include "shoal/table/broken.h"

namespace shoal::table {

Status RowCopies::take(const Update& update, ShardRow& row, const std::function<void()>& follow,
                       Outbox& out) const {
  const auto wrong = broken_with("an update of row ", update.row, ", number ", update.number, ",");
  if (row.row.server == taken_over_) return {};  // no worker has seen what it would make
  if (leads(row)) return wrong(" comes to the server that makes them");
  const std::uint64_t last = row.uncopied.last();
  if (update.number > last + 1) return wrong(" comes after number ", last);
  if (update.number == last + 1) {
    if (update.merged.empty() || !row.row.learns) return wrong(" is of no push");
    for (const MergedPush& push : update.merged)
      if (push.worker >= plan_.workers) return wrong(" is of worker ", push.worker);
    if (!update.payload.bytes.empty()) {
      const auto numbers = decode_with(float32_codec(), update.payload, row.row.length);
      if (!numbers.ok()) return wrong(" ", numbers.error().message);
    }
    follow();
  }
  out.push_back({to_server(row.row.server), Copied{row.id, row.uncopied.last(), plan_.generation}});
  return {};
}

Status RowCopies::take(const Copied& copied, ShardRow& row, Outbox& out) const {
  if (!leads(row) || copied.number > row.uncopied.last())
    return broken("a server has a copy of update ", copied.number, " of row ", copied.row,
                  ", and there were ", row.uncopied.last());
  row.uncopied.copied(copied.number, out);
  return {};
}

}  // namespace shoal::table
