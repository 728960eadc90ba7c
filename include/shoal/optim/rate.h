// Learning-rate policies: the rate as a pure function of the iteration, in the float arithmetic
// that gives Caffe's values.
//   fixed      b
//   step       b * gamma ^ floor(i / stepsize)
//   exp        b * gamma ^ i
//   inv        b * (1 + gamma * i) ^ -power
//   multistep  b * gamma ^ s, s raised by at most one an iteration, when i >= stepvalues[s]
//   poly       b * (1 - i / max_iter) ^ power, and 0 from max_iter on
//   sigmoid    b / (1 + exp(-gamma * (i - stepsize)))
//   plateau    b * gamma ^ s, s raised when the loss was not below its least for windows[s]
//              iterations (Plateau)
// b is base_lr, i the iteration counted from 0, s the count of steps taken, which a snapshot keeps.
// Source: Caffe 1.0; of plateau, the SSD fork.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::optim {

enum class Policy { kFixed, kStep, kExp, kInv, kMultistep, kPoly, kSigmoid, kPlateau };
std::optional<Policy> policy_named(std::string_view name);
std::vector<std::string> policy_names();

struct RateOptions {
  Policy policy = Policy::kFixed;
  float base = 0;  // b
  float gamma = 0, power = 0;
  std::int64_t stepsize = 0, max_iter = 0;  // in iterations
  std::vector<std::int64_t> stepvalues{};   // in iterations, rising
  std::vector<std::int64_t> windows{};      // in iterations: plateau_winsize
};
// Returns the first thing wrong, in words, or "".
std::string validate(const RateOptions& options);

// Returns s at `iteration`; `before` is s at the iteration before it (0 at the start). Policies
// without steps keep `before`.
std::int64_t steps_taken(const RateOptions& options, std::int64_t iteration, std::int64_t before);
// Counts the steps of plateau, by the losses of the iterations before.
struct Plateau {
  float least = 1e38f;     // of the losses so far
  std::int64_t since = 0;  // the iteration at which that, or a step, came
  // Returns s at `iteration`, where `loss` is the smoothed loss of those before it. Behind the last
  // window s stays.
  std::int64_t steps(const RateOptions& options, std::int64_t iteration, float loss,
                     std::int64_t before);
};
// Returns the rate at `iteration`, after `steps` steps.
float rate_at(const RateOptions& options, std::int64_t iteration, std::int64_t steps);

// Raises the rate for a larger batch. Source: Goyal et al., "Accurate, large minibatch SGD" (2017),
// for the warm-up; FireCaffe (Iandola et al., CVPR 2016).
struct RateScaling {
  double factor = 1;        // of the rate, after the warm-up
  std::int64_t warmup = 0;  // iterations in which the factor rises evenly from 1
};
float scaled(float rate, const RateScaling& scaling, std::int64_t iteration);

}  // namespace shoal::optim
