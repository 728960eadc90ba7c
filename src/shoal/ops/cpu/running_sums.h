// The running sums of batch normalization as numbers.
#pragma once

#include <cstdint>

#include "shoal/ops/normalize.h"

namespace shoal::ops::cpu {

// Fetched before threads start, since a tensor's bytes are made on first use.
struct RunningNumbers {
  // `count`: the numbers of one channel in a batch.
  RunningNumbers(const RunningSums& running, double count)
      : fraction(running.fraction),
        unbiased(count > 1 ? static_cast<float>(count / (count - 1)) : 1) {
    if (running.mean == nullptr) return;
    mean = running.mean->mut();
    variance = running.variance->mut();
    weight = running.weight->mut();
  }
  void add(std::int64_t c, float batch_mean, float batch_variance) const {
    if (mean == nullptr) return;
    mean[c] = mean[c] * fraction + batch_mean;
    variance[c] = variance[c] * fraction + unbiased * batch_variance;
    if (c == 0) weight[0] = weight[0] * fraction + 1;
  }
  float *mean = nullptr, *variance = nullptr, *weight = nullptr;
  float fraction, unbiased;
};

}  // namespace shoal::ops::cpu
