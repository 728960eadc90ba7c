// A SumTarget is where a kernel puts the sums that a caller asked for by SumInto.
#pragma once

#include <cstdint>

#include "shoal/ops/broadcast.h"

namespace shoal::ops::cpu {

// A SumInto's numbers; fetched before threads start, since a tensor's bytes are made on first use.
struct SumTarget {
  explicit SumTarget(SumInto into)
      : numbers(into.tensor != nullptr ? into.tensor->mut() : nullptr), add(into.add) {}
  void put(std::int64_t d, double sum) const {
    if (numbers != nullptr) numbers[d] = static_cast<float>(add ? numbers[d] + sum : sum);
  }
  float* numbers;
  bool add;
};

}  // namespace shoal::ops::cpu
