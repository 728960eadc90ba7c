// Update rules (optim/rule.h) on whole tensors.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "shoal/optim/rule.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// One update of one param. All tensors have w's count (CHECK).
struct ParamUpdate {
  optim::Step step;
  Tensor* w = nullptr;
  Tensor* grad = nullptr;
  std::vector<Tensor*> histories;  // as many as the rule keeps
  bool clears = false;             // the gradient is zero afterwards
};
// Each of them in one pass over memory: scale, regularise, rule, w -= ... . Elements do not meet,
// and a product and a sum are rounded each: threads, and cuts into rows, change no bit.
void update(Context& ctx, std::span<const ParamUpdate> params);

// Calls piece(0) ... piece(pieces - 1) on at most `threads` threads. The table updates the params
// of local tensors through it.
void share_out(int threads, std::size_t pieces, const std::function<void(std::size_t)>& piece);

}  // namespace shoal::ops
