// The nets of models/ and examples/: they are read, they are built, and they have as many weights
// as their authors say.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/tensor/context.h"
#include "support/places.h"

namespace shoal::models_test {
namespace {

struct Model {
  const char* name;
  int batch, channels, side;  // of its input for timing
  int classes;
  // Learned numbers (weights, biases, scales) as published, or by hand for the CIFAR nets.
  std::int64_t weights;
};
constexpr Model kModels[] = {
    {"lenet", 64, 1, 28, 10, 431'080},
    {"cifar10_quick", 100, 3, 32, 10, 145'578},
    {"cifar10_full", 100, 3, 32, 10, 89'578},
    {"caffenet", 32, 3, 227, 1000, 60'965'224},
    {"alexnet", 32, 3, 227, 1000, 60'965'224},
    {"googlenet", 16, 3, 224, 1000, 13'378'280},  // with both auxiliary classifiers
    {"nin", 32, 3, 224, 1000, 7'595'176},
    {"vgg16", 16, 3, 224, 1000, 138'357'544},
    {"resnet18", 16, 3, 224, 1000, 11'689'512},
    {"resnet50", 16, 3, 224, 1000, 25'557'032},
    {"cifar10_inception_bn", 128, 3, 28, 10, 1'651'114},  // these two counted by hand
    {"cifar10_resnet20", 128, 3, 28, 10, 272'544},
    // The published nets less what one channel and ten classes save.
    {"fashion_resnet18", 64, 1, 28, 10, 11'175'370},
    {"fashion_resnet50", 64, 1, 28, 10, 23'522'250},
    {"fashion_resnet50_v2", 64, 1, 28, 10, 23'514'698},
    {"fashion_mobilenet", 64, 1, 28, 10, 3'216'650},
    {"fashion_mobilenet_v2", 64, 1, 28, 10, 2'236'106},
    {"fashion_inception_v3", 64, 1, 28, 10, 21'805'482},
    {"fashion_alexnet", 64, 1, 28, 10, 28'711'626},  // counted by hand: its first layer is ours
};

NetParameter read_model(const Model& model, const char* file) {
  return read_net((test::repository_root() / "models" / model.name / file).string());
}

// The net for one phase with the stage "dummy", and weights of zero: random ones would take longer
// than the rest of the test.
NetParameter dummy_net(const Model& model, Phase phase) {
  NetParameter param = read_model(model, "train_val.prototxt");
  param.mutable_state()->set_phase(phase);
  param.mutable_state()->add_stage("dummy");
  for (LayerParameter& layer : *param.mutable_layer()) {
    if (layer.has_convolution_param()) layer.mutable_convolution_param()->clear_weight_filler();
    if (layer.has_inner_product_param()) layer.mutable_inner_product_param()->clear_weight_filler();
  }
  return param;
}

std::int64_t count_weights(const Net& net) {
  std::int64_t count = 0;
  for (const auto& layer : net.layers())
    if (layer->type() != "BatchNorm")  // its blobs are statistics
      for (const auto& param : layer->params()) count += param->data.count();
  return count;
}

TEST(ModelsTest, EveryModelIsBuiltForTrainingWithThePublishedNumberOfWeights) {
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    Context context({});
    const Net net(dummy_net(model, TRAIN), context);
    EXPECT_EQ(net.blob("data")->data.shape(),
              Shape({model.batch, model.channels, model.side, model.side}));
    EXPECT_EQ(net.blob("label")->data.shape(), Shape({model.batch}));
    EXPECT_EQ(count_weights(net), model.weights);
    for (const Blob* output : net.outputs())
      EXPECT_GT(net.loss_weight(*output), 0) << "an output of training that is no loss";
  }
}

TEST(ModelsTest, EveryModelIsBuiltForTestingWithAnAccuracy) {
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    Context context({});
    const Net net(dummy_net(model, TEST), context);
    int accuracies = 0;
    for (const auto& layer : net.layers()) accuracies += layer->type() == "Accuracy";
    EXPECT_GE(accuracies, 1);
    EXPECT_GT(net.outputs().size(), 1u);
  }
}

TEST(ModelsTest, ADeployNetHasTheWeightsOfItsTrainingNet) {
  for (const Model& model : {kModels[0], kModels[1]}) {
    SCOPED_TRACE(model.name);
    Context context({});
    NetParameter param = read_model(model, "deploy.prototxt");
    param.mutable_state()->set_phase(TEST);
    const Net net(param, context);
    EXPECT_EQ(count_weights(net), model.weights);
    ASSERT_EQ(net.outputs().size(), 1u);
    EXPECT_EQ(net.outputs()[0]->data.shape(), Shape({1, model.classes}));
    EXPECT_EQ(net.outputs()[0], net.blob("prob"));
  }
}

TEST(ModelsTest, EverySolverIsReadAndNamesANetThatIsThere) {
  int solvers = 0;
  for (const char* folder : {"models", "examples"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test::repository_root() / folder)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("solver", 0) != 0 || entry.path().extension() != ".prototxt") continue;
      SCOPED_TRACE(entry.path().string());
      ++solvers;
      const SolverParameter solver = read_solver(entry.path().string());
      EXPECT_TRUE(std::filesystem::exists(test::repository_root() / solver.net())) << solver.net();
      EXPECT_GT(solver.base_lr(), 0);
      EXPECT_GT(solver.max_iter(), 0);
      EXPECT_EQ(solver.solver_mode(), SolverParameter::CPU);
    }
  EXPECT_GE(solvers, 20);
}

// Another source of data is no reason for another net: a solver may name it.
TEST(ModelsTest, NoNetIsThereTwice) {
  std::map<std::string, std::string> seen;  // nets without their data, and where they are
  for (const char* folder : {"models", "examples"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test::repository_root() / folder)) {
      if (!entry.path().filename().string().ends_with("train_val.prototxt")) continue;
      NetParameter net = read_net(entry.path().string());
      clear_origins(net);
      std::string layers;
      for (const LayerParameter& layer : net.layer())
        if (layer.bottom_size() > 0) layers += layer.SerializeAsString();
      const auto [twin, is_new] = seen.emplace(layers, entry.path().string());
      EXPECT_TRUE(is_new) << entry.path() << " is " << twin->second << " with other data";
    }
  EXPECT_GE(seen.size(), 17u);
}

}  // namespace
}  // namespace shoal::models_test
