#include "shoal/data/item_source.h"

#include "shoal/base/log.h"

namespace shoal {
namespace {

// A crop or another size changes no channels.
std::string cure_of_misfit(const ImageSize& size, const ImageSize& wanted) {
  std::string cure;
  if (size.channels != wanted.channels)
    cure =
        str("grey pictures stand among coloured ones: force_color or force_gray of "
            "transform_param gives encoded records one number of channels; records of pixels "
            "have to be converted anew");
  if (size.height != wanted.height || size.width != wanted.width)
    cure += str(cure.empty() ? "" : "; and ", "resize them or set crop_size");
  return cure;
}

}  // namespace

void ItemSource::make_numbers(const Sample&, std::span<float>) const {
  CHECK(false) << path() << " makes no bytes";
}

Error bad_record(const ItemSource& source, const Item& item, const Error& why) {
  return Error{why.code, str("the record ", item.name, " of ", source.path(), " ", why.message)};
}

Error misfit(const ImageSize& size, const ImageSize& wanted) {
  return Error{Code::kData, str("is ", to_string(size), " where ", to_string(wanted),
                                " is wanted, the size of its batch: all records of a batch must "
                                "agree; ",
                                cure_of_misfit(size, wanted))};
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
