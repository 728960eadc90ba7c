// Stochastic pooling's arithmetic on one window, the same on every device: a number of the window
// is drawn with a chance in proportion to it, or the mean of such draws is formed. Numbers that are
// not positive have no chance. Source: Zeiler and Fergus, "Stochastic pooling for regularization of
// deep convolutional neural networks", 2013.
#pragma once

#include <cstdint>

#include "shoal/base/on_any_device.h"

namespace shoal::ops {

// The places of a plane that a window covers; none if a begin is not below its end.
struct Window {
  int h_begin, h_end, w_begin, w_end;

  // Calls f(place) for each place h * columns + w, row by row, until f returns false.
  template <class F>
  SHOAL_ON_ANY_DEVICE void each(int columns, F f) const {
    for (int h = h_begin; h < h_end; ++h)
      for (int w = w_begin; w < w_end; ++w)
        if (!f(h * columns + w)) return;
  }
};

SHOAL_ON_ANY_DEVICE inline float weight_of(float value) { return value > 0 ? value : 0.0f; }

// Returns the place that is drawn by `unit`, a number in [0, 1); the first place if no number is
// positive, -1 if there is no place. value(place) is the number there.
template <class Value>
SHOAL_ON_ANY_DEVICE int draw_place(const Window& window, int columns, float unit, Value value) {
  float total = 0;
  window.each(columns, [&](int place) {
    total += weight_of(value(place));
    return true;
  });
  const float wanted = unit * total;
  float sum = 0;
  int drawn = -1;
  window.each(columns, [&](int place) {
    const float weight = weight_of(value(place));
    sum += weight;
    if (weight > 0 || drawn < 0) drawn = place;  // stays the last one if `wanted` was rounded up
    return !(sum > wanted);
  });
  return drawn;
}

// A window's sum of weights, and the mean of its numbers with these weights; 0 and 0 if no number
// is positive.
struct WeightedMean {
  float total, mean;
  // Returns d mean / d value for a number of the window.
  SHOAL_ON_ANY_DEVICE float slope(float value) const {
    return value > 0 ? (2 * value - mean) / total : 0.0f;
  }
};
template <class Value>
SHOAL_ON_ANY_DEVICE WeightedMean weighted_mean(const Window& window, int columns, Value value) {
  float total = 0, squares = 0;
  window.each(columns, [&](int place) {
    const float weight = weight_of(value(place));
    total += weight;
    squares += weight * weight;
    return true;
  });
  return {total, total > 0 ? squares / total : 0.0f};
}

}  // namespace shoal::ops
