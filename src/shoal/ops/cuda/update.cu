// Update rules on a CUDA device, many params a launch. Compiled so that a
// product and a sum are rounded each, as on the CPU (Makefile).
#include "shoal/ops/update.h"

#include <algorithm>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

// Part of a param, with its gradient and histories; a rule with one history has
// it twice.
struct Piece {
  optim::Step step;
  float *w, *g, *h, *h2;
  std::int64_t count;
  bool clears;
};
constexpr std::int64_t kPiece = 1 << 15;
// The pieces of one launch, by value among its arguments, of which CUDA takes
// 32764 bytes.
struct Pieces {
  static constexpr int kMost = 32000 / sizeof(Piece);
  Piece piece[kMost];
};

// `verdict` is on the device; null: none.
template <optim::Rule rule, optim::Regularization kind>
void launch(Context& ctx, std::span<const Piece> some, const float* verdict) {
  Pieces pieces{};
  std::ranges::copy(some, pieces.piece);
  each(ctx, "update", static_cast<std::int64_t>(some.size()) * kPiece,
       [=] __host__ __device__(std::int64_t i) {
         const Piece& piece = pieces.piece[i / kPiece];
         const std::int64_t at = i % kPiece;
         if (at >= piece.count) return;
         optim::Step step = piece.step;
         if (verdict != nullptr) {
           if (verdict[0] != 0) return;
           step.gradient_scale *= verdict[1];
         }
         optim::update_elements<rule, kind>(step, 1, piece.w + at, piece.g + at, piece.h + at,
                                            piece.h2 + at);
         if (piece.clears) piece.g[at] = 0;
       });
}

template <optim::Rule rule>
void launch(Context& ctx, std::span<const Piece> some, const float* verdict) {
  const optim::Step& step = some.front().step;
  if (step.regularization == optim::Regularization::kL1 && step.decay != 0)
    launch<rule, optim::Regularization::kL1>(ctx, some, verdict);
  else
    launch<rule, optim::Regularization::kL2>(ctx, some, verdict);
}

void launch(Context& ctx, std::span<const Piece> some, const float* verdict) {
  using optim::Rule;
  switch (some.front().step.rule) {
    case Rule::kSgd: return launch<Rule::kSgd>(ctx, some, verdict);
    case Rule::kNesterov: return launch<Rule::kNesterov>(ctx, some, verdict);
    case Rule::kAdaGrad: return launch<Rule::kAdaGrad>(ctx, some, verdict);
    case Rule::kRmsProp: return launch<Rule::kRmsProp>(ctx, some, verdict);
    case Rule::kAdaDelta: return launch<Rule::kAdaDelta>(ctx, some, verdict);
    case Rule::kAdam: return launch<Rule::kAdam>(ctx, some, verdict);
  }
}

void check_sizes(const ParamUpdate& one) {
  CHECK(static_cast<int>(one.histories.size()) == optim::histories(one.step.rule))
      << one.histories.size() << " histories";
  CHECK(one.grad->count() == one.w->count())
      << "param " << one.w->shape().str() << ", gradient " << one.grad->shape().str();
  for (const Tensor* h : one.histories)
    CHECK(h->count() == one.w->count())
        << "param " << one.w->shape().str() << ", history " << h->shape().str();
}

// Cuts up params in the layout that they are in, so that a kernel's own order of weights stays.
void cut_up(Context& ctx, const ParamUpdate& one, std::vector<Piece>& pieces) {
  check_sizes(one);
  const LayoutPtr layout = one.w->layout();
  float *const w = mut(ctx, *one.w, layout), *const g = mut(ctx, *one.grad, layout),
               *const h = mut(ctx, *one.histories.front(), layout),
               *const h2 = mut(ctx, *one.histories.back(), layout);
  for (std::int64_t at = 0; at < one.w->count(); at += kPiece)
    pieces.push_back({one.step, w + at, g + at, h + at, h2 + at,
                      std::min(kPiece, one.w->count() - at), one.clears});
}

// Returns whether two pieces can be updated by one launch.
bool alike(const optim::Step& a, const optim::Step& b) {
  return a.rule == b.rule && a.regularization == b.regularization &&
         (a.decay != 0) == (b.decay != 0);
}

}  // namespace

void update(Context& ctx, std::span<const ParamUpdate> params, const Tensor* verdict) {
  const float* const numbers = verdict ? read(ctx, *verdict) : nullptr;
  std::vector<Piece> pieces;
  for (const ParamUpdate& one : params) cut_up(ctx, one, pieces);
  for (std::span<const Piece> rest = pieces; !rest.empty();) {
    std::size_t count = 1;
    while (count < rest.size() && count < Pieces::kMost &&
           alike(rest[count].step, rest.front().step))
      ++count;
    launch(ctx, rest.first(count), numbers);
    rest = rest.subspan(count);
  }
}

}  // namespace shoal::ops::cuda
