#include "shoal/parallel/row_map.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal::parallel {

RowMap::RowMap(Net& net, const table::Servers& servers, const RowExtras& extra)
    : net_(net), owned_(net.layers().size()), needed_(net.layers().size()) {
  const auto params = net.params();
  const auto layer_of = [&](std::size_t p) { return static_cast<std::size_t>(params[p].layer); };
  const auto is_replicated = [&](std::size_t p) {
    return !extra.replicated.empty() && extra.replicated[layer_of(p)];
  };
  // The params, then the histories, each with its param.
  std::vector<std::pair<std::size_t, Tensor*>> all;
  for (std::size_t p = 0; p < params.size(); ++p) all.emplace_back(p, nullptr);
  for (std::size_t h = 0; h < extra.histories.size(); ++h)
    if (extra.histories[h]) all.emplace_back(h % params.size(), extra.histories[h]);
  std::size_t total = 0;
  for (const auto& [p, history] : all)
    if (!is_replicated(p))
      total += static_cast<std::size_t>((history ? *history : params[p].blob->data).count());
  const std::size_t allowed = extra.stays ? table::kMaxRowFloats : table::longest_row(total);
  // Rows that do not learn, of which there may be no others, are as long as allowed.
  const std::size_t wanted = extra.pieces > 1 && total > 0 ? total / extra.pieces : allowed;
  const auto longest = static_cast<std::uint32_t>(std::clamp<std::size_t>(wanted, 1, allowed));
  for (const auto& [p, history] : all) {
    const NetParam& param = params[p];
    if (history && param.lr_mult == 0) continue;
    const bool is_sum = net.layers()[layer_of(p)]->default_lr_mult(param.index) == 0;
    const bool learns = param.lr_mult != 0 || (extra.running_sums && is_sum);
    cut(p, history, learns && !is_replicated(p), total, servers, longest);
  }
  table::place(rows_, servers);
  find_needs();
}

// Cuts a param into rows. Rows that do not learn are read once: they need not be balanced over the
// servers.
void RowMap::cut(std::size_t p, Tensor* history, bool learns, std::size_t total,
                 const table::Servers& servers, std::uint32_t longest) {
  const NetParam& param = net_.params()[p];
  const auto count = static_cast<std::size_t>(param.blob->data.count());
  std::size_t offset = 0;
  for (const std::uint32_t length : table::cut_for(count, total, learns ? servers : 1, longest)) {
    owned_[param.layer].push_back(static_cast<table::RowId>(rows_.size()));
    rows_.push_back({.length = length,
                     .priority = static_cast<std::uint32_t>(param.layer),
                     .learns = learns,
                     .lr_mult = param.lr_mult,
                     .decay_mult = param.decay_mult});
    pieces_.push_back({p, offset});
    tensors_.push_back(history);
    offset += length;
  }
  CHECK(offset == count) << offset << " numbers in the rows of param " << p;
}

// Finds the rows that each layer needs. A layer that shares a param by name needs its owner's rows.
void RowMap::find_needs() {
  for (std::size_t layer = 0; layer < needed_.size(); ++layer)
    for (const auto& blob : net_.layers()[layer]->params())
      for (table::RowId row = 0; row < rows_.size(); ++row)
        if (net_.params()[pieces_[row].param].blob->data.shares_with(blob->data))
          needed_[layer].push_back(row);
}

std::vector<table::RowId> RowMap::learning() const {
  std::vector<table::RowId> rows;
  for (table::RowId row = 0; row < rows_.size(); ++row)
    if (rows_[row].learns) rows.push_back(row);
  return rows;
}

Tensor& RowMap::tensor(table::RowId row) const {
  return tensors_[row] ? *tensors_[row] : net_.params()[pieces_[row].param].blob->data;
}

std::span<float> RowMap::weights(table::RowId row) const {
  return tensor(row).host_mut().subspan(pieces_[row].offset, rows_[row].length);
}

void RowMap::finish_copies(table::RowId row) const { tensor(row).storage()->finish_copies(); }

std::span<float> RowMap::gradient(table::RowId row) const {
  const Piece at = pieces_[row];
  return net_.params()[at.param].blob->grad.host_mut().subspan(at.offset, rows_[row].length);
}

}  // namespace shoal::parallel
