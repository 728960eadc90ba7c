// export_onnx as a process. A script stands for Python and onnxruntime: scripts/ecosystem_test.py
// runs the true ones. Wants the variable TOOLS_DIR; skipped by name without it.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "shoal/base/file.h"
#include "shoal/onnx/export.h"
#include "support/train_tool.h"

namespace shoal::tools_export_onnx_test {
namespace {

using test::get_file;
using test::put_file;
using test::Ran;

class ExportOnnx : public test::TrainTool {
 protected:
  Ran run(const std::vector<std::string>& flags, const std::string& path = "/usr/bin:/bin") {
    std::vector<std::string> words{"/usr/bin/env", "PATH=" + path, tool("export_onnx")};
    words.insert(words.end(), flags.begin(), flags.end());
    return test::run_program(words);
  }
  // Exports the small net, which reads records of 6 x 6 pixels and takes 4 x 4 of them.
  Ran run_small(std::vector<std::string> flags, const std::string& path = "/usr/bin:/bin") {
    flags.insert(flags.begin(),
                 {"--model=" + folder_ + "/net.prototxt", "--shape=2,1,4,4", "--out=" + out()});
    return run(flags, path);
  }
  std::string out() const { return folder_ + "/net.onnx"; }
  void need_schema() {
    if (!onnx::why_no_onnx().empty()) GTEST_SKIP() << onnx::why_no_onnx();
  }
  // Puts a python3 in a folder, which can import all and otherwise does this. Returns the folder.
  std::string python(const std::string& does) {
    const std::string path = folder_ + "/python3";
    put_file(path, "#!/bin/sh\n[ $# -eq 2 ] && exit 0\n" + does + "\n");
    EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
    return folder_ + ":/usr/bin:/bin";
  }
};

TEST_F(ExportOnnx, TakesANetToTrainAndItsWeights) {
  if (!onnx::why_no_onnx().empty()) GTEST_SKIP() << onnx::why_no_onnx();
  ASSERT_EQ(train(solver("t", "max_iter: 3")).code, 0);
  const Ran ran =
      run_small({"--weights=" + model_path(stem("t", 3)), "--npz=" + folder_ + "/x.npz"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "Wrote 7 params to ");
  EXPECT_HAS(ran.err, "Wrote 6 operations to " + out());
  const std::string model = get_file(out());
  for (const char* name : {"conv.weight", "BatchNormalization", "prob", "shoal"})
    EXPECT_HAS(model, name);
  EXPECT_EQ(model.find("Accuracy"), std::string::npos);
  EXPECT_TRUE(file_exists(folder_ + "/x.npz"));
}

TEST_F(ExportOnnx, WritesTheRangesOfRecords) {
  need_schema();
  const Ran ran =
      run_small({"--scale=0.01", "--calibrate=" + folder_ + "/data", "--calibration_records=9"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "over 10 records");
  const auto ranges = nlohmann::json::parse(get_file(out() + ".ranges.json"))["data"];
  const auto high = [&](const char* value) {
    return ranges[value]["highest"]["data"].get<float>();
  };
  EXPECT_GT(high("data"), 150);
  EXPECT_LE(high("data"), 209);
  EXPECT_FLOAT_EQ(high("data/preprocessed"), high("data") * 0.01f);
  for (const char* value : {"conv", "norm", "drop", "ip", "prob"})
    EXPECT_TRUE(ranges.contains(value)) << value;
}

TEST_F(ExportOnnx, SaysHowFarOnnxruntimeIsFromIt) {
  need_schema();
  const std::string line = R"(echo '{"name": "prob", "difference": D, "scale": 2.0, "odd": 0}')";
  const auto with = [&](const std::string& difference) {
    std::string text = line;
    return text.replace(text.find('D', 20), 1, difference);
  };
  Ran ran = run_small({"--check=2"}, python(with("0.00001")));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "Output 'prob' in 2 runs: largest difference 1e-05, relative 5e-06");
  ran = run_small({"--check=1"}, python(with("0.5")));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_HAS(ran.err, "relative 0.25, too much");
  ran = run_small({"--check=1"}, python(R"(echo '{"name": "prob", "got": [1], "want": [2, 4]}')"));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_HAS(ran.err, "output 'prob' has shape [1] in onnxruntime, and [2,4] here");
  ran = run_small({"--check=1"}, python("echo no such operator >&2; exit 1"));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_HAS(ran.err, "onnxruntime cannot run it: no such operator");
  ran = run_small({"--check=1", "--check_seconds=1"}, python("exec tail -f /dev/null"));
  EXPECT_EQ(ran.code, 8) << ran.err;
  EXPECT_HAS(ran.err, "did not end within 1 seconds: killed");
}

TEST_F(ExportOnnx, GivesOnnxruntimeItsInputs) {
  need_schema();
  const Ran ran = run_small({"--check=2"}, python("cp \"$4\"/* " + folder_ + "; exit 1"));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_HAS(get_file(folder_ + "/0.in.npz"), "'shape': (1,1,4,4,)");
  EXPECT_HAS(get_file(folder_ + "/1.in.npz"), "'shape': (2,1,4,4,)");
  EXPECT_HAS(get_file(folder_ + "/1.want.npz"), "'shape': (2,4,)");
}

TEST_F(ExportOnnx, SaysThatThereIsNoOnnxruntime) {
  need_schema();
  const Ran ran = run_small({"--check=1"}, "/nowhere");
  if (ran.code == 0) GTEST_SKIP() << "/usr/bin/python3 has onnxruntime";
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_HAS(ran.err, "--check needs a python3 in PATH, or /usr/bin/python3, with onnxruntime");
}

TEST_F(ExportOnnx, RefusesBadFlags) {
  const std::string model = "--model=" + folder_ + "/net.prototxt";
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"x.prototxt"}, "did you mean --model=x.prototxt?"},
      {{"--out=x"}, "--model"},
      {{model}, "--out"},
      {{model, "--npz=x", "--check=1"}, "--out"},
      {{model, "--out=x", "--batch=-1"}, "--batch=-1 is negative"},
      {{model, "--out=x", "--check=-1"}, "--check=-1 is negative"},
      {{model, "--out=x", "--check_seconds=0"}, "--check_seconds=0 is not above 0"},
      {{model, "--out=x", "--calibration=y"}, "--calibration needs --calibrate"},
      {{model, "--out=x", "--shape=1,a"}, "'a' is not a size"},
  };
  for (const auto& [flags, words] : cases) {
    const Ran ran = run(flags);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_HAS(ran.err, words);
  }
}

TEST_F(ExportOnnx, RefusesPreprocessingThatDoesNotFit) {
  need_schema();
  put_file(folder_ + "/no_mean", "x");
  const std::tuple<std::vector<std::string>, int, const char*> cases[] = {
      {{"--mean=m", "--mean_value=1"}, 2, "--mean and --mean_value are both given"},
      {{"--mean_value=1,a"}, 2, "'a' is not a number; means are like 104,117,123"},
      {{"--mean_value=1,2,3"}, 3, "the mean has 3 channels, the net's input 1"},
      {{"--mean=" + folder_ + "/none"}, 3, "none"},
      {{"--mean=" + folder_ + "/no_mean"}, 3, "no_mean"},
      {{"--swap_channels"}, 3, "three can be swapped"},
      {{"--calibrate=" + folder_ + "/none"}, 4, "none"},
  };
  for (const auto& [flags, code, words] : cases) {
    const Ran ran = run_small(flags);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_HAS(ran.err, words);
  }
}

}  // namespace
}  // namespace shoal::tools_export_onnx_test
