// Tests the memory that a solver's iterations allocate once training is under way.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/solver.h"
#include "support/choices.h"
#include "support/solver_rig.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace {
constexpr bool kCounts = false;  // the sanitizer has operators of its own
}
#else
namespace {
constexpr bool kCounts = true;
}
#endif

namespace shoal::allocations_test {
namespace {

// The calls of operator new by one thread.
struct Allocations {
  bool counted = false;
  std::int64_t calls = 0;
  std::size_t bytes = 0;
  std::size_t held = 0;  // bytes that the process has from malloc and its like afterwards
};
thread_local Allocations allocations;

}  // namespace

void note([[maybe_unused]] std::size_t bytes) {
  if (!allocations.counted) return;
  ++allocations.calls;
  allocations.bytes += bytes;
}

}  // namespace shoal::allocations_test

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Replace the operators of the whole program by the library's with a count, which is off but here.
void* operator new(std::size_t bytes) {
  shoal::allocations_test::note(bytes);
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t align) {
  shoal::allocations_test::note(bytes);
  const auto unit = static_cast<std::size_t>(align);
  void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace shoal::allocations_test {
namespace {

std::string conv(const char* name, const char* bottom, bool own) {
  return str("layer { name: '", name, "' type: 'Convolution' bottom: '", bottom, "' top: '", name,
             "' ", own ? "engine: 'caffe' " : "",
             "convolution_param { num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: "
             "'xavier' } } }\n");
}

constexpr const char* kData =
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'label' dummy_data_param { shape { dim: "
    "8 dim: 3 dim: 12 dim: 12 } shape { dim: 8 } data_filler { type: 'gaussian' } data_filler { "
    "value: 1 } } }\n";
constexpr const char* kLoss =
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'p' top: 'ip' inner_product_param { "
    "num_output: 5 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

// Returns convolution, batch normalization, pooling, an inner product.
std::string chain(bool own) {
  return kData + conv("c", "x", own) +
         "layer { name: 'n' type: 'BatchNorm' bottom: 'c' top: 'c' }\n"
         "layer { name: 's' type: 'Scale' bottom: 'c' top: 'c' scale_param { bias_term: true } }\n"
         "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' }\n"
         "layer { name: 'p' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { kernel_size: 2 "
         "stride: 2 } }\n" +
         kLoss;
}

// Returns branches, their sum, LRN, PReLU and Dropout.
std::string branches(bool own) {
  return kData + conv("c", "x", own) + "layer { name: 'r' type: 'PReLU' bottom: 'c' top: 'c' }\n" +
         conv("d", "c", own) + conv("e", "c", own) +
         "layer { name: 'sum' type: 'Eltwise' bottom: 'd' bottom: 'e' top: 'sum' }\n"
         "layer { name: 'u' type: 'ReLU' bottom: 'sum' top: 'sum' }\n"
         "layer { name: 'l' type: 'LRN' bottom: 'sum' top: 'l' lrn_param { local_size: 3 } }\n"
         "layer { name: 'o' type: 'Dropout' bottom: 'l' top: 'l' }\n"
         "layer { name: 'p' type: 'Pooling' bottom: 'l' top: 'p' pooling_param { pool: AVE "
         "kernel_size: 3 stride: 2 } }\n" +
         kLoss;
}

std::size_t held() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Returns the allocations of each of some iterations after the first two.
std::vector<Allocations> allocations_of(const std::string& net, int threads) {
  SolverParameter param = parse_solver(
      "base_lr: 0.01 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.001 clip_gradients: 10 "
      "max_iter: 100 display: 0 random_seed: 3 snapshot_after_train: false",
      "allocations");
  *param.mutable_net_param() = parse_net(net, "allocations");
  Solver solver(param, test::with_name("allocations", threads));
  or_throw(solver.step(2));
  std::vector<Allocations> each;
  each.reserve(4);
  for (int i = 0; i < 4; ++i) {
    allocations = {.counted = true};
    const Status status = solver.step(1);
    Allocations seen = allocations;
    allocations = {};
    or_throw(status);
    seen.held = held();
    each.push_back(seen);
  }
  return each;
}

// Each iteration allocates as often as the one before and keeps nothing: the rest are lists of
// tensors that ops are given, partial sums of channels, and oneDNN's maps of a primitive's
// arguments, some ten for each. The memory of tensors and scratch does not come from operator new;
// it does not grow.
TEST(Allocations, OfASteadyIterationAreFewAndSmall) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has operators of its own";
  constexpr std::int64_t kCalls[] = {40, 60}, kCallsOfOnednn[] = {200, 500};
  constexpr std::size_t kBytes = 40'000;   // a blob of these nets has 150'000 and more
  constexpr std::size_t kCached = 10'000;  // small pieces that the C library keeps for next time
  for (const bool own : {true, false}) {
    if (!own && !test::keeps_blocks()) continue;  // the same kernels once more
    const std::string nets[] = {chain(own), branches(own)};
    for (std::size_t net = 0; net < 2; ++net)
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(str(own ? "own kernels" : "oneDNN", ", net ", net, ", threads ", threads));
        const std::vector<Allocations> each = allocations_of(nets[net], threads);
        for (const Allocations& seen : each) {
          EXPECT_EQ(seen.calls, each[0].calls);
          EXPECT_EQ(seen.bytes, each[0].bytes);
          EXPECT_LE(seen.held, each[0].held + kCached);
        }
        EXPECT_GT(each[0].calls, 0) << "nothing is counted";
        EXPECT_LE(each[0].calls, own ? kCalls[net] : kCallsOfOnednn[net]);
        EXPECT_LE(each[0].bytes, kBytes);
      }
  }
}

}  // namespace
}  // namespace shoal::allocations_test
