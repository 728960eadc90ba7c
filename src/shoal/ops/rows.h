// Rows of a tensor picked by number. x has R rows, its axis 0; an index tensor has M numbers, each
// a row of x.
#pragma once

#include <cstdint>

#include "shoal/tensor/context.h"

namespace shoal::ops {

// Returns where `index` first holds something that is not a whole number from 0 to rows - 1; -1:
// nowhere.
std::int64_t first_bad_row(Context& ctx, const Tensor& index, std::int64_t rows);
// Row m of y = row index[m] of x. The index must have been looked at.
void take_rows(Context& ctx, const Tensor& x, const Tensor& index, Tensor& y);
// Row index[m] of gx += row m of g, in order of m.
void add_rows(Context& ctx, const Tensor& g, const Tensor& index, Tensor& gx);

}  // namespace shoal::ops
