// Brings the fake GPU, and the real one of the machine if it has one, to the tests of all devices.
#include <memory>

#include "cuda/fake_cuda.h"
#include "shoal/ops/gpu.h"
#include "support/devices.h"

namespace shoal::test {
namespace {

const AddTestDevice kFake({"fake_gpu", [] { return &fake_gpu(); }});
const auto kReal = ops::gpu_count() > 0 ? std::make_unique<AddTestDevice>(TestDevice{
                                              "gpu", [] { return &ops::gpu(0); }})
                                        : nullptr;

}  // namespace
}  // namespace shoal::test
