#include "shoal/data/item_source.h"

#include "shoal/base/log.h"

namespace shoal {

void ItemSource::make_numbers(const Sample&, std::span<float>) const {
  CHECK(false) << path() << " makes no bytes";
}

Error bad_record(const ItemSource& source, const Item& item, const Error& why) {
  return Error{why.code, str("the record ", item.name, " of ", source.path(), " ", why.message)};
}

Result<ItemKind> probe(ItemSource& source, std::uint64_t n, OnBadRecord on_bad) {
  Item item;
  for (item.n = n;; ++item.n) {
    if (Status read = source.read(item); !read.ok()) return read.error();
    Result<ItemKind> kind = source.kind(item);
    if (kind.ok()) return kind;
    if (on_bad == OnBadRecord::kStop || item.n - n == kBadInARow)
      return bad_record(source, item, kind.error());
  }
}

}  // namespace shoal
