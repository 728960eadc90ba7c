// Tests of nets with a Filter on a GPU: recordings beside calls, and memory that stays.
#include <gtest/gtest.h>

#include "cuda/devices.h"
#include "cuda/fake_cuda.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/layer_rig.h"

namespace shoal::test::cuda_filtered_nets_test {
namespace {

constexpr const char* kFiltered = R"(
layer { name: 'in' type: 'Input' top: 'x' top: 's'
        input_param { shape { dim: 5 dim: 2 dim: 6 dim: 6 } shape { dim: 5 } } }
layer { name: 'conv' type: 'Convolution' bottom: 'x' top: 'conv'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }
layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'
        pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: 'filter' type: 'Filter' bottom: 'pool' bottom: 's' top: 'some' }
layer { name: 'conv2' type: 'Convolution' bottom: 'some' top: 'conv2'
        convolution_param { num_output: 4 kernel_size: 2 weight_filler { type: 'xavier' } } }
layer { name: 'ip' type: 'InnerProduct' bottom: 'conv2' top: 'ip'
        inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'prob' type: 'Softmax' bottom: 'ip' top: 'prob' }
layer { name: 'loss' type: 'Reduction' bottom: 'prob' top: 'loss' loss_weight: 1
        reduction_param { operation: SUMSQ } }
layer { name: 'mean' type: 'InnerProduct' bottom: 'pool' top: 'mean'
        inner_product_param { num_output: 1 weight_filler { type: 'xavier' } } }
layer { name: 'size' type: 'Reduction' bottom: 'mean' top: 'size' loss_weight: 1
        reduction_param { operation: SUMSQ } }
)";

// Losses and gradients of passes that select other items each time, none among them.
Numbers filtered_passes(const Device* device, bool recordings, RecordedWork* recorded,
                        Precision precision = Precision::kFloat32) {
  Context ctx(
      {.device = device, .precision = precision, .deterministic = true, .recordings = recordings});
  Net net(parse_net(kFiltered, "net.prototxt"), ctx);
  Numbers all;
  for (int pass = 0; pass < 20; ++pass) {
    int at = pass;
    for (float& x : net.blob("x")->data.host_out()) x = static_cast<float>(++at % 7) - 3;
    for (float& s : net.blob("s")->data.host_out()) s = pass % 6 == 0 ? 0.0f : ++at % 3 == 0;
    net.clear_gradients();
    const FakeCalls before = fake_calls();
    all.push_back(or_throw(net.forward()));
    const Status status = net.backward();
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (device == &fake_gpu() && pass > 12) {
      EXPECT_EQ((fake_calls() - before).allocations, 0) << "pass " << pass;
    }
    for (const NetParam& param : net.params())
      all.insert(all.end(), param.blob->grad.host().begin(), param.blob->grad.host().end());
  }
  if (recorded) *recorded = net.recorded_forward();
  return all;
}

class CudaFilteredNets : public testing::TestWithParam<const Device*> {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaFilteredNets, testing::ValuesIn(cuda_devices()),
                         cuda_device_name);

TEST_P(CudaFilteredNets, CallTheLayersWhoseShapesVary) {
  RecordedWork recorded;
  const Numbers want = filtered_passes(GetParam(), false, nullptr),
                got = filtered_passes(GetParam(), true, &recorded);
  EXPECT_EQ(got, want);
  std::string called;
  for (const auto& [layer, why] : recorded.others)
    if (!layer.starts_with("pool_")) called += layer + " ";
  EXPECT_EQ(called, "filter conv2 ip prob loss ");
  EXPECT_EQ(recorded.stretches, 2);
}

// Convolutions keep images with channels last, and in 16 bits, of as many items as there are.
TEST_P(CudaFilteredNets, HaveTheSameNumbersInOtherLayouts) {
  const Numbers want = filtered_passes(GetParam(), false, nullptr);
  for (const Precision precision : {Precision::kTf32, Precision::kBfloat16}) {
    const Numbers called = filtered_passes(GetParam(), false, nullptr, precision);
    EXPECT_LE(relative_error(called, want), 0.02);
    EXPECT_NE(called, want);
    EXPECT_EQ(filtered_passes(GetParam(), true, nullptr, precision), called);
  }
}

}  // namespace
}  // namespace shoal::test::cuda_filtered_nets_test
