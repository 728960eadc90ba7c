// The tools test, time, draw_net, caffe and extract_features as processes.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/base/file.h"
#include "shoal/data/record.h"
#include "shoal/ops/gpu.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/pattern.h"
#include "support/solver_rig.h"
#include "support/train_tool.h"

namespace shoal::tools_net_test {
namespace {

using test::get_file;
using test::put_file;
using test::Ran;
using test::TrainTool;

TEST_F(TrainTool, TestPrintsBatchesAndMeans) {
  const Ran trained =
      train(solver("t", "max_iter: 3 test_iter: 8 test_interval: 3 test_initialization: false"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<test::Match> losses =
      test::matches_in(trained.err, "Test net output #1: loss = ([0-9.e-]+) ");
  ASSERT_FALSE(losses.empty()) << trained.err;
  const std::string& loss = losses[0][1];
  const Ran ran = test::run_program({tool("test"), "--model=" + folder_ + "/net.prototxt",
                                     "--weights=" + model_path(stem("t", 3)), "--iterations=8"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "Running for 8 iterations.");
  EXPECT_HAS(ran.err, "Batch 7, accuracy = ");
  EXPECT_HAS(ran.err, "] Loss: " + loss + "\n");
  EXPECT_HAS(ran.err, "] loss = " + loss + " (* 1 = " + loss + " loss)\n");
}

TEST_F(TrainTool, TestSaysWhichLayersNoFileFills) {
  ASSERT_EQ(train(solver("t", "max_iter: 1")).code, 0);
  NetParameter net = read_net(folder_ + "/net.prototxt");
  std::string renamed;
  for (LayerParameter& layer : *net.mutable_layer())
    if (layer.type() == "InnerProduct") {
      renamed = layer.name() + "_new";
      layer.set_name(renamed);
    }
  or_throw(write_text(net, folder_ + "/renamed.prototxt", Code::kConfig));
  const Ran ran = test::run_program({tool("test"), "--model=" + folder_ + "/renamed.prototxt",
                                     "--weights=" + model_path(stem("t", 1)), "--iterations=1"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, " has params for " + renamed + ": these layers are untrained");
}

TEST_F(TrainTool, TimePrintsEveryLayerAndAMatrixProduct) {
  const Ran ran = test::run_program({tool("time"), "--model=" + folder_ + "/net.prototxt",
                                     "--iterations=3", "--threads=1", "--explain_ops"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* pattern :
       {"      conv\tforward: [0-9.e-]+ ms\\.", "      conv\tbackward: [0-9.e-]+ ms\\.",
        "Average Forward pass: [0-9.e-]+ ms\\.", "Average Backward pass: [0-9.e-]+ ms\\.",
        "Average Forward-Backward: [0-9.e-]+ ms\\.", "Total Time: [0-9.e-]+ ms\\.",
        "GEMM 1024: [0-9.e+]+ GFLOP/s \\(threads 1\\)", "Peak memory: [0-9.e+]+ MB",
        "Planned memory: params "})
    EXPECT_TRUE(test::has_match(ran.err, pattern)) << pattern;
  EXPECT_HAS(ran.out, "conv (Convolution): conv by ");
  EXPECT_HAS(ran.out, "data (Data): transform by host\n    not device: its memory is the host's");
  const Ran forward = test::run_program({tool("time"), "--model=" + folder_ + "/net.prototxt",
                                         "--iterations=1", "--phase=TEST", "--forward_only"});
  EXPECT_EQ(forward.code, 0);
  EXPECT_EQ(forward.err.find("backward: "), std::string::npos);
  EXPECT_HAS(forward.err, "accuracy\tforward: ");
}

class TimeOn : public TrainTool, public testing::WithParamInterface<std::string> {};

TEST_P(TimeOn, PrintsThePeakOfADevicesOwnMemory) {
  const bool on_gpu = GetParam() != "cpu";
  const Ran ran = test::run_program({tool("time"), "--model=" + folder_ + "/net.prototxt",
                                     "--iterations=5", on_gpu ? "--gpu=0" : "--gpu=-1"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string number = " ([0-9.e+]+) MB";
  const std::vector<test::Match> peaks =
      test::matches_in(ran.err, "Peak device memory:" + number + "\n");
  ASSERT_EQ(peaks.size(), on_gpu ? 1u : 0u);
  if (!on_gpu) return;
  const std::vector<test::Match> planned =
      test::matches_in(ran.err, "Planned memory: params" + number + ", blobs" + number);
  ASSERT_EQ(planned.size(), 1u);
  EXPECT_GE(std::stod(peaks[0][1]), std::stod(planned[0][1]) + std::stod(planned[0][2]));
}

std::vector<std::string> devices_of_this_machine() {
  std::vector<std::string> names{"cpu"};
  if (ops::gpu_count() > 0) names.push_back("gpu");
  return names;
}
INSTANTIATE_TEST_SUITE_P(Devices, TimeOn, testing::ValuesIn(devices_of_this_machine()),
                         [](const auto& info) { return info.param; });

TEST_F(TrainTool, ANetIsSummedUpAndDrawn) {
  const std::string net = folder_ + "/towers.prototxt";
  or_throw(write_file(net, R"(name: "two \"towers\""
    layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 5 dim: 4 dim: 6 dim: 6 } } }
    layer { name: "conv" type: "Convolution" bottom: "x" top: "c"
            convolution_param { num_output: 6 kernel_size: 3 group: 2 stride: 2 pad: 1 } }
    layer { name: "relu" type: "ReLU" bottom: "c" top: "c" }
    layer { name: "left" type: "InnerProduct" bottom: "c" top: "l" param { name: "w" } param { name: "b" }
            inner_product_param { num_output: 7 } }
    layer { name: "right" type: "InnerProduct" bottom: "c" top: "r" param { name: "w" } param { name: "b" }
            inner_product_param { num_output: 7 } }
    layer { name: "up" type: "Deconvolution" bottom: "c" top: "u"
            convolution_param { num_output: 2 kernel_size: 2 stride: 2 bias_term: false } })",
                      Code::kData));
  const Ran table = test::run_program({tool("time"), "--model=" + net, "--summary"});
  EXPECT_EQ(table.code, 0) << table.err;
  // 5 images x 6 outputs x 3 x 3 places x 2 channels x 3 x 3 taps; 5 x 54 x 7; 5 x 6 x 2 x 9 x 4
  for (const char* words :
       {"conv   Convolution, 6 of 3 x 3, stride 2, pad 1, group 2  5 x 6 x 3 x 3 ",
        "  270            114    2.37          4,860\n",
        "   35            385  0.0909          1,890\n",
        "   35  of left and 0       -          1,890\n",
        "  360             48     7.5          2,160\n", "|D|", "params |W|",
        "D/W: 2,140 numbers of tops, 547 of params, 3.91\n", "params: 547 numbers, ",
        "multiply-adds of a forward pass: 10,800, 2,160 for each of 5 items\n"})
    EXPECT_HAS(table.out, words);
  const std::string out = folder_ + "/towers.dot";
  const Ran drawn = test::run_program({tool("draw_net"), net, out});
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  const std::string dot = or_throw(read_file(out));
  for (
      const char* words :
      {"digraph \"two \\\"towers\\\"\" {",
       R"("layer conv" [label="conv: Convolution\n6 of 3 x 3, stride 2, pad 1, group 2\n114 params\nrelu: ReLU", )",
       R"("blob c" [label="c\n5 x 6 x 3 x 3", shape=ellipse];)", R"("blob c" -> "layer right";)",
       R"("layer left" -> "layer right" [style=dashed, dir=none];)"})
    EXPECT_HAS(dot, words);
  EXPECT_EQ(test::run_program({tool("draw_net"), net, folder_ + "/towers.bmp"}).code, 2);
}

// A version of OpenBLAS that does not know the processor takes kernels without AVX.
TEST_F(TrainTool, OpenBlasTakesKernelsThatFitTheProcessorUnlessTheUserSaysWhich) {
  const auto kernels = [&](const char* variables) {
    const Ran ran =
        test::run_program({"/bin/sh", "-c",
                           str("env -u GOMP_SPINCOUNT -u OPENBLAS_CORETYPE OPENBLAS_VERBOSE=2 ",
                               variables, " ", tool("time"), " --version")});
    EXPECT_EQ(ran.code, 0);
    const std::size_t said = ran.err.rfind("Core: ");
    return said == std::string::npos ? "" : ran.err.substr(said);
  };
  const std::string own = kernels("");
  if (own.empty()) GTEST_SKIP() << "OpenBLAS does not say which kernels it takes";
  EXPECT_EQ(kernels("OPENBLAS_CORETYPE=Prescott"), "Core: Prescott\n");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    EXPECT_NE(own, "Core: Prescott\n");
  }
}

// 2 x 3 numbers, 12 weights and 4 biases to 2 x 4: 24 multiply-adds forward and, for the params
// alone, 24 backward; 30 numbers forward, 8 + 6 + 2 x 16 backward. The loss: 17, and 1 + 16 + 8.
TEST_F(TrainTool, TheLeastTimeIsOfArithmeticOrOfMemory) {
  const std::string net = folder_ + "/least.prototxt";
  or_throw(write_file(net, R"(
    layer { name: "in" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 4 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "z" inner_product_param { num_output: 4 } }
    layer { name: "loss" type: "EuclideanLoss" bottom: "z" bottom: "y" top: "l" })",
                      Code::kData));
  const auto run = [&](const char* flops, const char* bytes) {
    return test::run_program({tool("time"), "--model=" + net, "--summary",
                              str("--device_tflops=", flops), str("--device_gbytes=", bytes)});
  };
  EXPECT_HAS(run("1e-9", "1").out, "together 96.000 ms\n");
  const Ran table = run("1", "1e-6");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_HAS(table.out, " 24           120.000   184.000\n");
  EXPECT_HAS(table.out, " 0            68.000   100.000\n");
  EXPECT_HAS(table.out,
             "least time at 1 TFLOP/s and 1e-06 GB/s: forward 188.000 ms, backward 284.000 ms, "
             "together 472.000 ms\n");
  const Ran half = run("1", "0");
  EXPECT_EQ(half.code, 2);
  EXPECT_HAS(half.err, "--device_tflops and --device_gbytes go together");
}

TEST_F(TrainTool, CaffeIsOneNameForAll) {
  const Ran ran =
      test::run_program({tool("caffe"), "train", "-solver", solver("c", "max_iter: 1")});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "Optimization Done.");
  EXPECT_EQ(test::run_program({tool("caffe"), "brew"}).code, 2);
  EXPECT_EQ(
      test::run_program({tool("caffe_main"), "train", "--solver=" + solver("c", "max_iter: 1"),
                         "--num_table_threads=2", "--table_staleness=0"})
          .code,
      0)
      << "Poseidon's name";
  const Ran query = test::run_program({tool("caffe"), "device_query"});
  EXPECT_EQ(query.code, 0) << query.err;
  EXPECT_TRUE(query.out.starts_with("no GPU: ") || query.out.starts_with("GPU 0: ")) << query.out;
}

struct Saved {
  std::string key;
  Datum datum;
};

std::vector<Saved> read_back(const std::string& backend, const std::string& path) {
  auto source = or_throw(open_source(backend, path));
  std::vector<Saved> result;
  for (const auto& [key, value] : or_throw(test::read_all(*source))) {
    result.push_back({key, {}});
    EXPECT_TRUE(result.back().datum.ParseFromString(value));
  }
  return result;
}

TEST_F(TrainTool, FeaturesComeOutOnceARecordInEveryFormat) {
  ASSERT_EQ(train(solver("f", "max_iter: 3")).code, 0);
  put_file(folder_ + "/seven.prototxt",
           test::replaced(test::small_net(folder_ + "/data"), "batch_size: 5", "batch_size: 7"));
  const std::string weights = model_path(stem("f", 3));
  std::vector<std::vector<float>> first;
  for (const std::string backend : {"lmdb", "leveldb", "datumfile"}) {
    SCOPED_TRACE(backend);
    const std::string a = folder_ + "/conv_" + backend, b = folder_ + "/ip_" + backend;
    const Ran ran =
        test::run_program({tool("extract_features"), weights, folder_ + "/seven.prototxt",
                           "conv,ip", a + "," + b, "0", backend, "CPU"});
    ASSERT_EQ(ran.code, 0) << ran.err;
    const std::vector<Saved> conv = read_back(backend, a), ip = read_back(backend, b);
    ASSERT_EQ(conv.size(), 40u) << "40 records in batches of 7";
    ASSERT_EQ(ip.size(), 40u);
    std::vector<std::vector<float>> values;
    for (int i = 0; i < 40; ++i) {
      const Saved& saved = ip[static_cast<std::size_t>(i)];
      EXPECT_EQ(saved.key, str("00000000", i < 10 ? "0" : "", i));
      EXPECT_EQ(saved.datum.label(), i % 4);
      EXPECT_EQ(saved.datum.channels(), 1);
      EXPECT_EQ(saved.datum.height(), 4);
      EXPECT_EQ(saved.datum.width(), 1);
      values.emplace_back(saved.datum.float_data().begin(), saved.datum.float_data().end());
      EXPECT_EQ(conv[static_cast<std::size_t>(i)].datum.float_data_size(), 3 * 3 * 3);
    }
    if (first.empty()) first = values;
    EXPECT_EQ(values, first);
    EXPECT_NE(values[0], values[1]);
  }
  const Ran text = test::run_program(
      {tool("extract_features"), "--model=" + folder_ + "/net.prototxt", "--weights=" + weights,
       "--extract_feature_blob_names=ip", "--save_feature_leveldb_names=" + folder_ + "/ip.txt",
       "--backend=text", "--num_mini_batches=3", "--gpu", "-1", "--num_rows_per_table=1",
       "--poseidon_keys"});
  ASSERT_EQ(text.code, 0) << text.err;
  const std::string hosts = folder_ + "/hosts";
  put_file(hosts, "0 127.0.0.1 29600\n");
  const Ran poseidon = test::run_program(
      {tool("extract_features"), "--hostfile=" + hosts, "--client_id=0", "--num_clients=1",
       "--num_table_threads=1", "--init_thread_access_table=true", "--stats_path=" + folder_,
       "--num_comm_channels_per_client=1", "--num_rows_per_table=1", "--nomerge", "--poseidon_keys",
       "--model=" + folder_ + "/net.prototxt", "--weights=" + weights, "--num_mini_batches=2",
       "--extract_feature_blob_names=ip", "--save_feature_leveldb_names=" + folder_ + "/posed"});
  EXPECT_EQ(poseidon.code, 0) << poseidon.err;
  EXPECT_EQ(read_back("leveldb", folder_ + "/posed_0_0").size(), 10u);
  EXPECT_HAS(poseidon.err, "These flags are accepted, but have no effect in Shoal");
  std::istringstream lines(get_file(folder_ + "/ip.txt"));
  std::string line;
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::string key, label;
    words >> key >> label;
    EXPECT_EQ(key, std::to_string(count));
    EXPECT_EQ(label, std::to_string(count % 4));
    for (const float wanted : first[static_cast<std::size_t>(count)]) {
      float got = std::nanf("");
      words >> got;
      EXPECT_NEAR(got, wanted, 1e-6);  // from batches of another size
    }
  }
  EXPECT_EQ(count, 15);
}

TEST_F(TrainTool, FeaturesThatCannotBeHadAreNamed) {
  ASSERT_EQ(train(solver("f", "max_iter: 1")).code, 0);
  const auto extract = [&](const std::string& blobs, const std::string& outputs,
                           const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {
        tool("extract_features"), "--model=" + folder_ + "/net.prototxt",
        "--weights=" + model_path(stem("f", 1)), "--extract_feature_blob_names=" + blobs,
        "--save_feature_leveldb_names=" + outputs};
    command.insert(command.end(), more.begin(), more.end());
    return test::run_program(command);
  };
  const std::string out = folder_ + "/out";
  Ran ran = extract("ip", out + "," + out);
  EXPECT_EQ(ran.code, 2);
  EXPECT_HAS(ran.err, "1 blobs are named and 2 outputs");
  ran = extract("ipp", out);
  EXPECT_EQ(ran.code, 3);
  EXPECT_HAS(ran.err, "no blob 'ipp'");
  ran = extract("accuracy", out);
  EXPECT_EQ(ran.code, 3);
  EXPECT_HAS(ran.err, "blob 'accuracy' has shape (1): its first axis is not the batch's");
  ran = extract("ip", out, {"--label_blob=lable"});
  EXPECT_EQ(ran.code, 3);
  EXPECT_HAS(ran.err, "did you mean 'label'?");
  ran = extract("ip", out, {"--backend=hdf5"});
  EXPECT_NE(ran.code, 0);
  EXPECT_FALSE(file_exists(out));
  put_file(out, "something");
  ran = extract("ip", out, {"--backend=text"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, out + " exists already");
  EXPECT_EQ(get_file(out), "something");
}

}  // namespace
}  // namespace shoal::tools_net_test
