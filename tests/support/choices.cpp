#include "support/choices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "shoal/ops/op.h"
#include "shoal/proto/io.h"

namespace shoal::test {
namespace {

double rms_error(const Numbers& got, const Numbers& want) {
  double error = 0, all = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = double{got[i]} - double{want[i]};
    error += difference * difference;
    all += double{want[i]} * double{want[i]};
  }
  return error == 0 ? 0 : std::sqrt(error / all);
}

}  // namespace

ChosenNet::ChosenNet(const NetParameter& param, const Choice& choice, int threads,
                     const NetOptions& options)
    : context({.threads = threads,
               .seed = 7,
               .precision = choice.precision,
               .direct_convolution = choice.direct}),
      net(param, context, options) {}

NetParameter net_of(const std::string& prototxt, Phase phase) {
  NetParameter net = parse_net(prototxt, "test.prototxt");
  net.mutable_state()->set_phase(phase);
  return net;
}

NetParameter plain_net(NetParameter param) {
  for (LayerParameter& layer : *param.mutable_layer())
    if (layer.type() == "Convolution" || layer.type() == "Deconvolution") layer.set_engine("caffe");
  return param;
}

Results run_pass(Net& net, bool all_blobs) {
  Results results;
  net.clear_gradients();
  const Result<float> loss = net.forward();
  EXPECT_TRUE(loss.ok()) << loss.error().message;
  if (!loss.ok()) return results;
  results.push_back({"loss", {loss.value()}});
  if (net.training()) {
    const Status status = net.backward();
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  std::map<std::string, const Blob*> blobs;
  for (const Blob* blob : net.outputs()) blobs[blob->name] = blob;
  if (all_blobs)
    for (const std::string& name : net.blob_names()) blobs[name] = net.blob(name);
  for (const auto& [name, blob] : blobs) results.push_back({"blob " + name, values(blob->data)});
  for (const auto& layer : net.layers())
    for (std::size_t i = 0; i < layer->params().size(); ++i) {
      const Blob& param = *layer->params()[i];
      results.push_back({str("param ", i, " of ", layer->name()), values(param.data)});
      if (net.training())
        results.push_back({str("gradient ", i, " of ", layer->name()), values(param.grad)});
    }
  return results;
}

void expect_close(const Results& got, const Results& want, const Tolerance& tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].first, want[i].first);
    ASSERT_EQ(got[i].second.size(), want[i].second.size()) << got[i].first;
    EXPECT_LE(relative_error(got[i].second, want[i].second), tolerance.largest) << got[i].first;
    EXPECT_LE(rms_error(got[i].second, want[i].second), tolerance.rms) << got[i].first;
  }
}

bool keeps_blocks() {
  static const bool does = [] {
    ChosenNet one(net_of("layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 1 "
                         "dim: 16 dim: 4 dim: 4 } } } layer { name: 'c' type: 'Convolution' "
                         "bottom: 'x' top: 'c' convolution_param { num_output: 16 kernel_size: 3 "
                         "} }",
                         TEST),
                  kAuto);
    const auto choices = one.net.layers()[1]->choices();
    return choices.size() == 1 && choices[0].impl == "onednn";
  }();
  return does;
}

}  // namespace shoal::test
