// One step of a long short-term memory, on a CUDA device.
#include "shoal/ops/recurrent.h"

#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"
#include "shoal/ops/lstm_gates.h"

namespace shoal::ops::cuda {

void lstm_step(Context& ctx, const Tensor& cont, const Tensor& gates, const Tensor& c_before,
               Tensor& c, Tensor& h) {
  const std::int64_t units = lstm_units(cont, gates, c);
  if (c.count() == 0) return;
  const Divisor by(units);
  const float *const goes_on = read(ctx, cont), *const in = read(ctx, gates),
                     *const before = read(ctx, c_before);
  float *const now = write(ctx, c), *const out = write(ctx, h);
  each(ctx, "LSTM's step", c.count(), [=] __host__ __device__(std::int64_t at) {
    const std::int64_t n = at / by, gate = at + 3 * n * units;
    const LstmGates g = open_gates(in + gate, units, goes_on[n]);
    now[at] = g.f * before[at] + g.i * g.g;
    out[at] = g.o * std::tanh(now[at]);
  });
}

void lstm_step_backward(Context& ctx, const Tensor& cont, const Tensor& gates,
                        const Tensor& c_before, const Tensor& c, const Tensor* dc, const Tensor& dh,
                        Tensor& dgates, Tensor& dc_before) {
  const std::int64_t units = lstm_units(cont, gates, c);
  if (c.count() == 0) return;
  const Divisor by(units);
  const float *const goes_on = read(ctx, cont), *const in = read(ctx, gates),
                     *const before = read(ctx, c_before), *const now = read(ctx, c),
                     *const later = dc != nullptr ? read(ctx, *dc) : nullptr,
                     *const out = read(ctx, dh);
  float *const din = write(ctx, dgates), *const dbefore = write(ctx, dc_before);
  each(ctx, "LSTM's step's gradient", c.count(), [=] __host__ __device__(std::int64_t at) {
    const std::int64_t n = at / by, gate = at + 3 * n * units;
    const LstmGates g = open_gates(in + gate, units, goes_on[n]);
    dbefore[at] = lstm_backward(g, before[at], now[at], later != nullptr ? later[at] : 0.0f,
                                out[at], din + gate, units);
  });
}

}  // namespace shoal::ops::cuda
