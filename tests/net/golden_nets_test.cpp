// Whole nets against BVLC Caffe 1.0: losses of up to 20 iterations of every solver type, params,
// tests, blobs and gradients, from the same weights and records. The full set lies in a shared
// folder; five iterations of LeNet run from files of the repository.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "shoal/base/file.h"
#include "shoal/data/record.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/solver.h"
#include "support/devices.h"
#include "support/golden_records.h"
#include "support/places.h"

namespace shoal::golden_nets_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json read_json(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return json::parse(file);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// Returns what a command prints, or nothing if it fails.
std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return text;
  std::vector<char> block(1 << 16);
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), pipe))
    text.append(block.data(), n);
  return ::pclose(pipe) == 0 ? text : "";
}

double relative(double got, double want) {
  return std::fabs(got - want) / std::max(std::fabs(want), 1e-12);
}

// Compares what a golden file keeps of a blob: its norm, and 16 of its numbers. Errors are relative
// to the blob's own scale, or to `floor`, the mean square's root below which numbers count as zero.
void expect_like(const Tensor& got, const json& want, double tolerance, double floor = 0) {
  const std::span<const float> x = got.host();
  double squares = 0;
  for (const float v : x) squares += double{v} * v;
  const double norm = want["l2"];
  const double floor_norm = floor * std::sqrt(static_cast<double>(x.size()));
  EXPECT_NEAR(std::sqrt(squares), norm, tolerance * std::max(norm, floor_norm));
  double error = 0;
  int samples = 0;
  for (std::size_t k = 0; k < want["first"].size(); ++k, ++samples)
    error += std::pow(x[k] - want["first"][k].get<double>(), 2);
  const std::size_t stride = x.size() / 8;
  for (std::size_t k = 0; stride > 0 && k < want["strided"].size(); ++k, ++samples)
    error += std::pow(x[k * stride] - want["strided"][k].get<double>(), 2);
  // The norm of 16 numbers of its mean square, or more where the numbers at hand are larger.
  double own = 0;
  for (const char* part : {"first", "strided"})
    for (const double v : want[part]) own += v * v;
  const double scale = std::max(
      std::sqrt(own), std::max(norm, floor_norm) *
                          std::sqrt(samples / std::max(1.0, static_cast<double>(x.size()))));
  EXPECT_LE(std::sqrt(error), tolerance * scale);
}

// ---- the full set ----

using test::TestDevice;

// "net/solver" or "net", on a device. "own": on the CPU, without oneDNN, whose kernels sum in
// another order.
class GoldenNets : public testing::TestWithParam<std::pair<std::string, TestDevice>> {
 protected:
  const std::string& words() const { return GetParam().first; }
  const Device* device() const { return GetParam().second.get(); }
  bool with_own_kernels() const { return GetParam().second.name == "own"; }

  struct Place {
    fs::path shared, made;  // golden numbers; databases, which go when the process ends
    std::string why_not;
    ~Place() {
      if (!made.empty()) fs::remove_all(made);
    }
  };

  // Makes the databases once.
  static const Place& place() {
    static const std::unique_ptr<Place> made = [] {
      auto place = std::make_unique<Place>();
      fill(*place);
      return place;
    }();
    return *made;
  }

  static void fill(Place& place) {
    const auto shared = test::shared_folder();
    if (!shared || !fs::exists(*shared / "golden")) {
      place.why_not = "no shared/golden (SHOAL_SHARED says where)";
      return;
    }
    place.shared = *shared / "golden";
    if (output_of("xz --version 2>/dev/null").empty()) {
      place.why_not = "no xz to unpack the records with";
      return;
    }
    place.made = fs::path(testing::TempDir()) / ("golden_nets_" + std::to_string(::getpid()));
    fs::create_directories(place.made);
    const std::string data = (place.shared / "data").string() + "/";
    for (const auto& [name, count] : {std::pair("train", "2000"), std::pair("t10k", "1000")}) {
      const std::string stem = data + "mnist-" + name + "-first" + count;
      test::write_lmdb(
          test::mnist_of(output_of("gzip -dc '" + stem + "-images-idx3-ubyte.gz'"),
                         output_of("gzip -dc '" + stem + "-labels-idx1-ubyte.gz'")),
          (place.made / (std::string("mnist_") +
                         (std::string(name) == "train" ? "train2000_lmdb" : "test1000_lmdb")))
              .string());
    }
    for (const auto& [name, count] : {std::pair("train", "2000"), std::pair("test", "1000")})
      test::write_lmdb(test::cifar_of(output_of("xz -dc '" + data + "cifar10-" + name + "-first" +
                                                count + ".bin.xz'")),
                       (place.made / (std::string("cifar10_") + name + count + "_lmdb")).string());
  }

  NetParameter net_of(const std::string& name) const {
    std::string text = or_throw(read_file((place().shared / name / "net.prototxt").string()));
    text = replaced(text, "data_root/golden_lmdb", place().made.string());
    NetParameter net =
        parse_net(replaced(text, "data_root/golden/data", (place().shared / "data").string()),
                  name + "/net.prototxt");
    for (LayerParameter& layer : *net.mutable_layer())
      if (with_own_kernels() && layer.type() == "Convolution") layer.set_engine("caffe");
    return net;
  }

  static std::string init_of(const std::string& net) {
    return (place().shared / net / "init.caffemodel").string();
  }
};

struct Tolerances {
  double first = 1e-4, all = 1e-4, params = 1e-3;
};

// Returns what the golden README asks for: close at first; then as far as Caffe differs from itself
// with other kernels. With kernels of a library or a GPU, which sum in another order, ten times as
// far, and with AdaDelta, whose first steps are ratios of small numbers, a hundred times.
Tolerances tolerances_of(const std::string& net, const std::string& name, const json& summary,
                         bool with_own_kernels) {
  Tolerances result;
  const json& spreads = summary[net][name]["spread_vs_other_openblas_kernels"];
  for (const auto& [kernel, spread] : spreads.items()) {
    result.all = std::max(result.all, 3 * spread["max_rel_loss"].get<double>());
    // This spread is over all numbers, not 16.
    result.params = std::max(result.params, 20 * spread["max_rel_param_l2"].get<double>());
  }
  // AdaGrad's first step is the gradient's sign, so rounding of numbers near zero decides, and
  // grows: one, two and three threads differ by up to 6 %, processors' kernels by up to 13 % (in
  // params by 31 %). Adam divides by the root of squares, too: 1.4e-4, and 1.4 % in params.
  const bool of_cifar = net == "cifar10_quick";
  for (const char* rule : {"adagrad", "rmsprop", "adadelta"})
    if (name == rule) result.params = std::max(result.params, 0.05);  // the losses say more
  if (of_cifar && name == "adagrad") result = {5e-3, 0.2, 0.5};
  if (of_cifar && name == "adam") result.all = 1e-3, result.params = 0.03;
  for (const char* exact : {"sgd", "nesterov", "adam", "sgd_clip", "sgd_itersize2"})
    if (net == "lenet" && name == exact) result.all = 1e-5;
  if (!with_own_kernels) result = {10 * result.first, 10 * result.all, 10 * result.params};
  if (!with_own_kernels && name == "adadelta")
    result.first = result.all = std::max(1e-2, 10 * result.all);
  return result;
}

void expect_params(const Net& net, const json& blobs, double tolerance, double floor) {
  for (const json& blob : blobs) {
    SCOPED_TRACE(blob["layer"].get<std::string>() + " param " +
                 std::to_string(blob["blob"].get<int>()));
    for (const auto& layer : net.layers())
      if (layer->name() == blob["layer"])
        expect_like(layer->params().at(blob["blob"])->data, blob["data"], tolerance, floor);
  }
}

TEST_P(GoldenNets, TwentyIterationsGoAsInCaffe) {
  if (!place().why_not.empty()) GTEST_SKIP() << place().why_not;
  const std::string net = words().substr(0, words().find('/'));
  const std::string name = words().substr(net.size() + 1);
  const json golden = read_json(place().shared / net / (name + ".json")),
             summary = read_json(place().shared / "summary.json");
  SolverParameter param =
      read_solver((place().shared / net / (name + ".solver.prototxt")).string());
  param.clear_net();
  *param.mutable_net_param() = net_of(net);
  param.set_display(0);
  param.set_max_iter(20);
  param.add_weights(init_of(net));
  const Tolerances tolerance = tolerances_of(net, name, summary, with_own_kernels());
  Solver solver(param, {.device = device(), .threads = 1, .name = name, .action = {}});
  for (int i = 0; i < 20; ++i) {
    const auto ended = solver.step(1);
    ASSERT_TRUE(ended.ok()) << ended.error().message;
    const json& want = golden["iterations"][static_cast<std::size_t>(i)];
    EXPECT_FLOAT_EQ(solver.rate(), want["lr"].get<float>()) << "iteration " << i;
    EXPECT_LE(relative(solver.last_loss(), want["loss"]),
              i < 5 ? std::min(tolerance.first, tolerance.all) : tolerance.all)
        << "iteration " << i;
    if (i == 0)
      expect_params(solver.net(), golden["params_after_1"], with_own_kernels() ? 1e-4 : 1e-3, 0);
  }
  expect_params(solver.net(), golden["params_after_20"], tolerance.params, 1e-3);
  const auto scores = solver.test(0);
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  ASSERT_EQ(scores.value().size(), 2u);
  for (const TestScore& score : scores.value()) {
    const double want = golden["test_after_20"][score.output];
    if (score.output == "loss")
      EXPECT_LE(relative(score.mean, want), std::max(1e-4, 2 * tolerance.all));
    else
      EXPECT_NEAR(score.mean, want, 1e-6 + (tolerance.all > 1e-5 ? 0.002 + 2 * tolerance.all : 0));
  }
}

// Each on the CPU and on a GPU, if there is one; devices that are slow by design have the layers.
using Cases = std::vector<std::pair<std::string, TestDevice>>;
Cases on_devices(const std::vector<std::string>& names) {
  Cases cases;
  std::vector<TestDevice> devices = test::test_devices();
  devices.push_back({"own", [] { return nullptr; }});
  for (const TestDevice& device : devices)
    for (const std::string& name : names)
      if (device.name == "cpu" || device.name == "own" || device.name == "gpu")
        cases.emplace_back(name, device);
  return cases;
}

Cases every_case() {
  std::vector<std::string> names;
  for (const char* net : {"lenet", "cifar10_quick"})
    for (const char* name : {"sgd", "nesterov", "adagrad", "rmsprop", "adadelta", "adam",
                             "sgd_clip", "sgd_itersize2", "sgd_l1"})
      names.push_back(std::string(net) + "/" + name);
  return on_devices(names);
}

std::string test_name(const testing::TestParamInfo<Cases::value_type>& info) {
  const auto& [words, device] = info.param;
  const std::string name = replaced(words, "/", "_");
  return device.name == "own" ? name + "_own" : name_on(name, device);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenNets, testing::ValuesIn(every_case()), test_name);

class GoldenPasses : public GoldenNets {};

TEST_P(GoldenPasses, EveryBlobAndGradientIsAsInCaffe) {
  if (!place().why_not.empty()) GTEST_SKIP() << place().why_not;
  const std::string& name = words();
  const json golden = read_json(place().shared / name / "fb.json");
  NetParameter param = net_of(name);
  param.mutable_state()->set_phase(TRAIN);
  Context context(Context::Options{.device = device(), .threads = 2, .seed = 1});
  Net net(param, context, {.share_memory = false, .keep = {}});
  net.copy_weights(read_weights(init_of(name)), init_of(name));
  const auto loss = net.forward();
  ASSERT_TRUE(loss.ok()) << loss.error().message;
  const double tolerance = with_own_kernels() ? 1e-4 : 1e-3;
  EXPECT_LE(relative(loss.value(), golden["loss"]), 1e-6);
  ASSERT_TRUE(net.backward().ok());
  for (const json& want : golden["blobs"]) {
    SCOPED_TRACE(want["name"].get<std::string>());
    const Blob* blob = net.blob(want["name"]);
    ASSERT_NE(blob, nullptr);
    EXPECT_EQ(blob->shape().dims(), want["shape"].get<std::vector<std::int64_t>>());
    expect_like(blob->data, want["data"], tolerance);
    if (want["diff"]["l2"] > 0) expect_like(blob->grad, want["diff"], tolerance);
  }
  for (const json& want : golden["param_gradients"]) {
    SCOPED_TRACE(want["layer"].get<std::string>() + " gradient " +
                 std::to_string(want["blob"].get<int>()));
    for (const auto& layer : net.layers())
      if (layer->name() == want["layer"])
        expect_like(layer->params().at(want["blob"])->grad, want["diff"], tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPasses,
                         testing::ValuesIn(on_devices({"lenet", "cifar10_quick"})), test_name);

// ---- from files of the repository ----

constexpr const char* kLenet = R"(
name: "LeNet"
layer { name: "mnist" type: "Data" top: "data" top: "label" transform_param { scale: 0.00390625 }
  data_param { source: "SOURCE" batch_size: 64 backend: LMDB } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 20 kernel_size: 5 } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 50 kernel_size: 5 } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1" param { lr_mult: 1 } param { lr_mult: 2 }
  inner_product_param { num_output: 500 } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" param { lr_mult: 1 } param { lr_mult: 2 }
  inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
)";

// The weights that Caffe's xavier filler drew from seed 1701, to the last bit: a Mersenne twister,
// whose first number a data layer took, scaled in float to [-s, s), s = sqrt(3 / fan_in). Biases
// are zero.
void fill_as_caffe_did(Net& net) {
  std::mt19937 twister(1701);
  twister();
  for (const auto& layer : net.layers()) {
    if (layer->params().empty()) continue;
    Tensor& weight = layer->params()[0]->data;
    const float limit = std::sqrt(3.0f / static_cast<float>(weight.shape().count(1)));
    for (float& w : weight.host_out())
      w = std::fma(static_cast<float>(twister()) / 4294967296.0f, 2 * limit, -limit);
    for (float& b : layer->params()[1]->data.host_out()) b = 0;
  }
}

TEST(GoldenLenet, FiveIterationsOfEverySolverTypeGoAsInCaffe) {
  const fs::path golden = test::repository_root() / "tests/golden";
  const fs::path folder =
      fs::path(testing::TempDir()) / ("golden_lenet_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  test::write_lmdb(test::mnist_of(or_throw(read_file((golden / "mnist_320_images.idx").string())),
                                  or_throw(read_file((golden / "mnist_320_labels.idx").string()))),
                   (folder / "lmdb").string());
  const json cases = read_json(golden / "lenet_losses.json");
  ASSERT_EQ(cases.size(), 9u);
  for (const TestDevice& device : test::test_devices())
    for (const auto& [name, entry] : cases.items()) {
      SCOPED_TRACE(name_on(name, device));
      SolverParameter param = parse_solver(
          entry["solver"].get<std::string>() + " snapshot_after_train: false random_seed: 1", name);
      *param.mutable_net_param() =
          parse_net(replaced(kLenet, "SOURCE", (folder / "lmdb").string()), "lenet");
      Solver solver(param, {.device = device.get(), .threads = 1, .name = name, .action = {}});
      fill_as_caffe_did(solver.net());
      for (const double loss : entry["losses"]) {
        const auto ended = solver.step(1);
        ASSERT_TRUE(ended.ok()) << ended.error().message;
        EXPECT_LE(relative(solver.last_loss(), loss), name == "adagrad" ? 1e-4 : 1e-5)
            << "iteration " << solver.iteration() - 1;
      }
    }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace shoal::golden_nets_test
