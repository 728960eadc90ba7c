#include "shoal/ops/update.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

struct Pointers {
  float *w, *g, *h, *h2;
};

void run(Context& ctx, const optim::Step& step, std::int64_t n, const Pointers& p, bool clears) {
  constexpr std::int64_t kBlock = 4096;  // a gradient is cleared while it is still in the cache
  parallel_for(ctx.threads(), n, kElementGrain, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kBlock) {
      const std::int64_t count = std::min(kBlock, end - i);
      optim::update_elements(step, count, p.w + i, p.g + i, p.h + i, p.h2 ? p.h2 + i : nullptr);
      if (clears) std::fill_n(p.g + i, count, 0.0f);
    }
  });
}

void check_sizes(const optim::Step& step, const Tensor& w, const Tensor& grad,
                 std::span<Tensor* const> histories) {
  CHECK(static_cast<int>(histories.size()) == optim::histories(step.rule))
      << histories.size() << " histories";
  CHECK(grad.count() == w.count())
      << "param " << w.shape().str() << ", gradient " << grad.shape().str();
  for (const Tensor* h : histories)
    CHECK(h->count() == w.count())
        << "param " << w.shape().str() << ", history " << h->shape().str();
}

}  // namespace

void update(Context& ctx, std::span<const ParamUpdate> params, const Tensor* verdict) {
  if (verdict && verdict->in()[0] != 0) return;
  for (const auto& [given, w, grad, histories, clears] : params) {
    optim::Step step = given;
    if (verdict) step.gradient_scale *= verdict->in()[1];
    check_sizes(step, *w, *grad, histories);
    const Pointers p{w->mut(), grad->mut(), histories[0]->mut(),
                     histories.size() > 1 ? histories[1]->mut() : nullptr};
    run(ctx, step, w->count(), p, clears);
  }
}

}  // namespace shoal::ops::cpu
