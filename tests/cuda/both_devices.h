// Runs one piece of code with tensors of the same numbers on the CPU and on a CUDA device, and
// compares all that is in them afterwards.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/tensor/context.h"
#include "shoal/tensor/tensor.h"

namespace shoal::test {

// A tensor's shape and what is in it at first.
struct Start {
  enum class Numbers {
    kDrawn,     // from [-1, 1)
    kPositive,  // from [0.1, 2)
    kTies,      // from -1, -0.5, 0, 0.5 and 1
    kOdd,       // drawn, but here and there a NaN or an infinity
    kWhole,     // whole numbers from [0, below)
    kLabels,    // the same, and some that are no class: -1, below and 0.5
    kNaN,       // all will be overwritten
  };
  Shape shape;
  Numbers numbers = Numbers::kDrawn;
  int below = 0;
};
inline Start drawn(Shape shape) { return {std::move(shape), Start::Numbers::kDrawn}; }
inline Start positive(Shape shape) { return {std::move(shape), Start::Numbers::kPositive}; }
inline Start ties(Shape shape) { return {std::move(shape), Start::Numbers::kTies}; }
inline Start odd(Shape shape) { return {std::move(shape), Start::Numbers::kOdd}; }
inline Start blank(Shape shape) { return {std::move(shape), Start::Numbers::kNaN}; }

using Ts = std::vector<Tensor>;
Ts start(const std::vector<Start>& tensors);

// Returns where results differ, in words, or nothing. `tolerance` is a part of a tensor's largest
// finite number; 0: none. NaNs are alike, and so are the two zeros.
std::string difference(const Ts& got, const Ts& want, double tolerance);

// The nearest number of the precision's 16 bits, a tie to the even one, by arithmetic; x itself if
// it has no such.
float rounded(float x, Precision precision);

// Puts a tensor of a CUDA device in the order (N, S, C), where convolutions leave it, and in 16
// bits if the context's precision has such; on the CPU it rounds the numbers.
void put_channels_last(Context& ctx, Tensor& tensor, std::int64_t channels, std::int64_t inner);
// A failure of the test if a tensor of a CUDA device has not this order and type.
void expect_channels_last(Context& ctx, const Tensor& tensor, std::int64_t channels,
                          std::int64_t inner);

struct CudaCase {
  std::string name;
  std::vector<Start> tensors;
  std::function<void(Context& ctx, Ts& tensors)> run;
  double tolerance = 0;
};

// A test on all CUDA devices.
class OnCudaDevices : public testing::TestWithParam<const Device*> {
 protected:
  // A failure of the test if the device's results are not the CPU's.
  void expect_same(const std::vector<CudaCase>& cases) { expect_same(cases, Precision::kFloat32); }
  // The same with tensors that the cases put in 16 bits, too: with four roundings for a tolerance.
  void expect_same_in_all_types(const std::vector<CudaCase>& cases);

 private:
  void expect_same(const std::vector<CudaCase>& cases, Precision precision);
};

// The tolerance of results that are rounded more than once.
inline constexpr double kRounding = 2e-6;

}  // namespace shoal::test
