// Update rules (optim/rule.h) on whole tensors.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "shoal/base/on_any_device.h"
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
// and a product and a sum are rounded each: threads, and cuts into rows, change no bit. With a
// verdict (judge) gradients are scaled by its factor, too, or nothing is changed.
void update(Context& ctx, std::span<const ParamUpdate> params, const Tensor* verdict = nullptr);

// Judges gradients for an update, without a wait. The verdict is two numbers: the first becomes 1,
// and stays so, if a number of `x` is not finite: no update then. The second is the factor that
// clips the norm of `x`; 1 where clip < 0.
void judge(Context& ctx, std::span<const Tensor* const> x, float clip, Tensor& verdict);
// `sum`: of the squares of all numbers, or where clip < 0 how many of them are not finite.
SHOAL_ON_ANY_DEVICE inline void put_verdict(double sum, float clip, float* verdict) {
  const double norm = std::sqrt(sum);
  if (clip < 0 ? sum != 0 : !std::isfinite(sum)) verdict[0] = 1;
  verdict[1] = clip >= 0 && norm > clip ? static_cast<float>(clip / norm) : 1;
}

// Calls piece(0) ... piece(pieces - 1) on at most `threads` threads. The table updates the params
// of local tensors through it.
void share_out(int threads, std::size_t pieces, const std::function<void(std::size_t)>& piece);

}  // namespace shoal::ops
