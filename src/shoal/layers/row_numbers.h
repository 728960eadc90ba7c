// Checks a bottom that holds row numbers, for Embed and BatchReindex.
#pragma once

#include "shoal/base/error.h"
#include "shoal/ops/rows.h"
#include "shoal/tensor/context.h"

namespace shoal {

// Returns whether each number of `index` is a row below `rows`; if not, notes by ctx.fail (kData)
// which is not, with its item (axis 0). `cause` ends the sentence.
inline bool check_rows(Context& ctx, const Blob& index, std::int64_t rows,
                       const std::string& cause) {
  const std::int64_t bad = ops::first_bad_row(ctx, index.data, rows);
  if (bad < 0) return true;
  const std::int64_t items = index.shape().axes() > 0 ? index.shape()[0] : 1,
                     item = bad / (index.shape().count() / items);
  ctx.fail({Code::kData,
            str("number ", index.data.host()[static_cast<std::size_t>(bad)], " of '", index.name,
                "' at item ", item, " is not a whole number in 0..", rows - 1, cause)},
           item);
  return false;
}

}  // namespace shoal
