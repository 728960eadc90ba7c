// The gates of one unit of a long short-term memory, for the CPU and for kernels of a device.
#pragma once

#include <cmath>
#include <cstdint>

#include "shoal/base/log.h"
#include "shoal/base/on_any_device.h"
#include "shoal/tensor/tensor.h"

namespace shoal::ops {

// Returns how many units each sequence has.
inline std::int64_t lstm_units(const Tensor& cont, const Tensor& gates, const Tensor& c) {
  const std::int64_t sequences = cont.count(), units = sequences == 0 ? 0 : c.count() / sequences;
  CHECK(c.count() == sequences * units && gates.count() == 4 * c.count())
      << "cont " << cont.shape().str() << ", gates " << gates.shape().str() << ", c "
      << c.shape().str();
  return units;
}

// The gates i, f, o and g of recurrent.h; f times cont.
struct LstmGates {
  float i, f, o, g;
};

SHOAL_ON_ANY_DEVICE inline float logistic(float x) { return 1 / (1 + std::exp(-x)); }

// The numbers of a unit's gates lie `stride` apart.
SHOAL_ON_ANY_DEVICE inline LstmGates open_gates(const float* in, std::int64_t stride, float cont) {
  return {logistic(in[0]), cont * logistic(in[stride]), logistic(in[2 * stride]),
          std::tanh(in[3 * stride])};
}

// Writes the gradients of the numbers; returns that of c_before. `dc` is the whole gradient of c
// but for what comes through h.
SHOAL_ON_ANY_DEVICE inline float lstm_backward(const LstmGates& gates, float c_before, float c,
                                               float dc, float dh, float* din,
                                               std::int64_t stride) {
  const float bent = std::tanh(c);
  dc += dh * gates.o * (1 - bent * bent);
  din[0] = dc * gates.g * gates.i * (1 - gates.i);
  din[stride] = dc * c_before * gates.f * (1 - gates.f);
  din[2 * stride] = dh * bent * gates.o * (1 - gates.o);
  din[3 * stride] = dc * gates.i * (1 - gates.g * gates.g);
  return dc * gates.f;
}

}  // namespace shoal::ops
