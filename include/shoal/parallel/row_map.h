// Maps the rows of a table to the numbers of a net's params.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/table/placement.h"
#include "shoal/table/types.h"

namespace shoal::parallel {

// The numbers that are exchanged besides the params that learn.
struct RowExtras {
  // Values that forward passes change: running means and the like.
  bool running_sums = false;
  // The rule's first history of every param, then its second, in the order of net.params().
  std::vector<Tensor*> histories{};
  // No row leaves this process. Then no row waits behind another, and rows are as long as allowed.
  bool stays = false;
  // Rows are so short that there are about so many of equal length, or more.
  std::size_t pieces = 1;
  // By layer: every worker updates the layer's params itself, so that their rows, and the rows of
  // their histories, are read once. Empty: no layer.
  std::vector<bool> replicated{};
};

class RowMap {
 public:
  // Cuts the params into rows for these servers. Params that do not learn have rows, too: they are
  // read once.
  RowMap(Net& net, const table::Servers& servers, const RowExtras& extra = {});

  std::span<const table::Row> rows() const { return rows_; }
  // Return the rows of the params that the layer owns, to which its gradients belong, and the rows
  // that its forward needs, shared params' owners included.
  std::span<const table::RowId> owned_by(int layer) const { return owned_[layer]; }
  std::span<const table::RowId> needed_by(int layer) const { return needed_[layer]; }
  std::vector<table::RowId> learning() const;

  // Returns the row's part of its tensor, on the host. Called on the solver's thread, as tensors
  // are.
  std::span<float> weights(table::RowId row) const;
  std::span<float> gradient(table::RowId row) const;  // of a param
  // Returns when no device reads or writes the row's tensor on the host.
  void finish_copies(table::RowId row) const;
  bool is_history(table::RowId row) const { return tensors_[row] != nullptr; }
  // Returns whether the row is of a param that gradients change: not of a history or running sums.
  bool is_param(table::RowId row) const {
    return !is_history(row) && rows_[row].learns && rows_[row].lr_mult != 0;
  }
  // The place of a row: an index into net.params() (for a history: its param), and the first
  // element.
  struct Piece {
    std::size_t param = 0, offset = 0;
  };
  Piece piece(table::RowId row) const { return pieces_[row]; }

 private:
  void cut(std::size_t param, Tensor* history, bool learns, std::size_t total,
           const table::Servers& servers, std::uint32_t longest);
  void find_needs();
  Tensor& tensor(table::RowId row) const;

  Net& net_;
  std::vector<table::Row> rows_;
  std::vector<Piece> pieces_;
  // By row: its history, or null.
  std::vector<Tensor*> tensors_;
  std::vector<std::vector<table::RowId>> owned_, needed_;  // by layer
};

}  // namespace shoal::parallel
