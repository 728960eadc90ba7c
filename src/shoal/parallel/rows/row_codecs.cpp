#include "shoal/parallel/rows/row_codecs.h"

#include <algorithm>

#include "shoal/net/net.h"

namespace shoal::parallel {

RowCodecs::RowCodecs(const Net& net, const RowMap& map, const std::vector<LayerCodecs>& layers,
                     std::int64_t least)
    : rows_(map.rows().size()) {
  for (table::RowId row = 0; row < rows_.size(); ++row) {
    const NetParam& param = net.params()[map.piece(row).param];
    if (!map.is_param(row) || param.blob->data.count() < least) continue;
    const LayerCodecs& codecs = layers[static_cast<std::size_t>(param.layer)];
    rows_[row] = {number_of(codecs.push), number_of(codecs.pull)};
  }
}

std::uint8_t RowCodecs::number_of(const table::CodecSpec& spec) {
  if (spec == table::CodecSpec()) return 0;
  const auto known = std::ranges::find(codecs_, spec);
  const auto number = known - codecs_.begin() + 1;
  if (known == codecs_.end()) codecs_.push_back(spec);
  return static_cast<std::uint8_t>(number);
}

void RowCodecs::put(table::Plan& plan) const {
  plan.codecs = codecs_;
  for (std::size_t row = 0; !codecs_.empty() && row < rows_.size(); ++row) {
    plan.rows.edit()[row].push_codec = rows_[row].push;
    plan.rows.edit()[row].pull_codec = rows_[row].pull;
  }
}

}  // namespace shoal::parallel
