#include "shoal/ops/recurrent.h"

#include "shoal/ops/cpu/elementary.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/lstm_gates.h"

namespace shoal::ops::cpu {
namespace {

// Calls f(sequence, units of each, place of the unit's first gate, place of the unit elsewhere) for
// all units.
template <class F>
void each_unit(Context& ctx, const Tensor& cont, const Tensor& gates, const Tensor& c, F f) {
  const std::int64_t units = lstm_units(cont, gates, c);
  parallel_for(ctx.threads(), cont.count(), grain_of(16 * units),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = begin; n < end; ++n)
                   for (std::int64_t d = 0; d < units; ++d)
                     f(n, units, n * 4 * units + d, n * units + d);
               });
}

}  // namespace

void lstm_step(Context& ctx, const Tensor& cont, const Tensor& gates, const Tensor& c_before,
               Tensor& c, Tensor& h) {
  const float *goes_on = cont.in(), *in = gates.in(), *before = c_before.in();
  float *const now = c.out(), *const out = h.out();
  each_unit(ctx, cont, gates, c,
            [=](std::int64_t n, std::int64_t units, std::int64_t gate, std::int64_t at) {
              const LstmGates g = open_gates(in + gate, units, goes_on[n]);
              now[at] = g.f * before[at] + g.i * g.g;
              out[at] = g.o * std::tanh(now[at]);
            });
}

void lstm_step_backward(Context& ctx, const Tensor& cont, const Tensor& gates,
                        const Tensor& c_before, const Tensor& c, const Tensor* dc, const Tensor& dh,
                        Tensor& dgates, Tensor& dc_before) {
  const float *goes_on = cont.in(), *in = gates.in(), *before = c_before.in(), *now = c.in(),
              *later = dc != nullptr ? dc->in() : nullptr, *out = dh.in();
  float *const din = dgates.out(), *const dbefore = dc_before.mut();
  each_unit(ctx, cont, gates, c,
            [=](std::int64_t n, std::int64_t units, std::int64_t gate, std::int64_t at) {
              const LstmGates g = open_gates(in + gate, units, goes_on[n]);
              dbefore[at] =
                  lstm_backward(g, before[at], now[at], later != nullptr ? later[at] : 0.0f,
                                out[at], din + gate, units);
            });
}

}  // namespace shoal::ops::cpu
