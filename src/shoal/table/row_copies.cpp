#include "shoal/table/row_copies.h"

#include "shoal/table/broken.h"

namespace shoal::table {

Status RowCopies::take(const Update& update, ShardRow& row, const Codec& codec,
                       const std::function<void()>& follow, Outbox& out) const {
  const auto wrong = broken_with("an update of row ", update.row, ", number ", update.number, ",");
  if (row.row.server == taken_over_) return {};  // no worker has seen what it would make
  if (leads(row)) return wrong(" came to the server that makes this row's updates");
  const std::uint64_t last = row.uncopied.last();
  if (update.number > last + 1) return wrong(" comes after number ", last);
  if (update.number == last + 1) {
    if (update.merged.empty() || !row.row.learns) return wrong(" holds no push");
    for (const MergedPush& push : update.merged)
      if (push.worker >= plan_.workers)
        return wrong(" holds a push of worker ", push.worker, ", but there are ", plan_.workers,
                     " workers");
    if (!update.payload.bytes.empty()) {
      const auto numbers = decode_with(codec, update.payload, row.row.length);
      if (!numbers.ok()) return wrong(" ", numbers.error().message);
    }
    follow();
  }
  out.push_back({to_server(row.row.server), Copied{row.id, row.uncopied.last(), plan_.generation}});
  return {};
}

Status RowCopies::take(const Copied& copied, ShardRow& row, Outbox& out) const {
  if (!leads(row) || copied.number > row.uncopied.last())
    return broken("a server confirms a copy of update ", copied.number, " of row ", copied.row,
                  ", but only ", row.uncopied.last(), " were made");
  row.uncopied.copied(copied.number, out);
  return {};
}

}  // namespace shoal::table
