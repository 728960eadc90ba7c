// The variants of the CPU's own kernels, how one is chosen, and what the tools say of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shoal/base/processor.h"
#include "shoal/base/random.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/blas_kernels.h"
#include "shoal/ops/cpu_kernels.h"
#include "shoal/table/update.h"
#include "support/train_tool.h"

namespace shoal::cpu_kernels_test {
namespace {

using test::Ran;
using test::run_program;
using test::TrainTool;

// "" or why a test of both variants has nothing to compare.
std::string why_one_variant() {
  return ops::cpu_variants().size() > 1
             ? ""
             : str("one variant of the kernels runs here; the processor lacks ",
                   missing_of_level(4));
}

TEST(Processor, HasTheLevelsThatTheCompilerSees) {
  EXPECT_EQ("", missing_of_level(1));
#if defined(__x86_64__)
  EXPECT_EQ(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"),
            missing_of_level(3).empty());
  EXPECT_EQ(__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"),
            missing_of_level(4).empty());
#endif
  for (int level = 2; level <= 4; ++level)
    EXPECT_TRUE(missing_of_level(level).starts_with(missing_of_level(level - 1))) << level;
}

TEST(CpuVariants, AreThoseThatTheProcessorRunsTheLowestFirst) {
  const auto variants = ops::cpu_variants();
  EXPECT_EQ(ops::kCpuLevel, variants.front().level);
  EXPECT_EQ(&ops::listed_backend(), variants.front().backend);
  for (const ops::CpuVariant& variant : variants) EXPECT_EQ("", missing_of_level(variant.level));
  EXPECT_EQ(ops::held_cpu_kernels() == ops::CpuKernels::kAuto ? variants.back().backend
                                                              : variants.front().backend,
            &ops::cpu_backend());
  if (variants.size() == 1) GTEST_SKIP() << why_one_variant();
  EXPECT_EQ(4, variants[1].level);
  // The same lists of kernels are compiled twice.
  EXPECT_NE(variants[0].backend->elementary->map, variants[1].backend->elementary->map);
  ASSERT_EQ(variants[0].backend->conv.size(), variants[1].backend->conv.size());
  for (std::size_t i = 0; i < variants[0].backend->conv.size(); ++i)
    EXPECT_STREQ(variants[0].backend->conv[i]->name, variants[1].backend->conv[i]->name);
}

// The numbers of a param and its histories after some updates by `step_by(step, w, g, h, h2)`.
template <class F>
std::vector<std::uint32_t> bits_after(optim::Rule rule, optim::Regularization kind,
                                      std::int64_t count, const F& step_by) {
  Random random(7, 1);
  Tensor w(Shape{count}), g(Shape{count}), h(Shape{count}), h2(Shape{count});
  for (float& x : w.host_out()) x = random.uniform(-1, 1);
  for (Tensor* zero : {&h, &h2}) std::ranges::fill(zero->host_out(), 0.0f);
  optim::RuleOptions options{.rule = rule, .delta = 1e-4f};
  if (rule != optim::Rule::kAdaGrad && rule != optim::Rule::kRmsProp) options.momentum = 0.9f;
  for (int clock = 0; clock < 4; ++clock) {
    for (float& x : g.host_out()) x = random.uniform(-3, 3);
    step_by(optim::make_step(options, {clock, 0.013f, 2, 0.05f, 0.5f, kind, 1.0f / 3}), w, g, h,
            h2);
  }
  std::vector<std::uint32_t> bits;
  for (const Tensor* part : {&w, &h, &h2})
    for (const float x : part->host()) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

// Workers that apply the rule themselves, and servers, may have other processors.
TEST(CpuVariants, UpdateParamsToTheSameBits) {
  Context ctx(Context::Options{});
  for (const optim::Rule rule : {optim::Rule::kSgd, optim::Rule::kNesterov, optim::Rule::kAdaGrad,
                                 optim::Rule::kRmsProp, optim::Rule::kAdaDelta, optim::Rule::kAdam})
    for (const auto kind : {optim::Regularization::kL2, optim::Regularization::kL1})
      for (const std::int64_t count : {1, 7, 31, 32, 4096, 10007}) {
        SCOPED_TRACE(str(optim::name_of(rule), ", ", count, " numbers"));
        const auto at_a_server = bits_after(
            rule, kind, count,
            [](const optim::Step& step, Tensor& w, Tensor& g, Tensor& h, Tensor& h2) {
              const auto here = [](Tensor& x) {
                return table::Change{x.host().data(), x.host_mut().data()};
              };
              const table::Term term{g.host().data()};
              const table::Change histories[] = {here(h), here(h2)};
              table::step_row(step, g.host().size(), {&term, 1}, here(w),
                              std::span(histories).first(
                                  static_cast<std::size_t>(optim::histories(step.rule))));
            });
        for (const ops::CpuVariant& variant : ops::cpu_variants()) {
          const auto bits = bits_after(
              rule, kind, count,
              [&](const optim::Step& step, Tensor& w, Tensor& g, Tensor& h, Tensor& h2) {
                ops::ParamUpdate update{step, &w, &g, {&h, &h2}};
                update.histories.resize(static_cast<std::size_t>(optim::histories(rule)));
                variant.backend->elementary->update(ctx, {&update, 1}, nullptr);
              });
          EXPECT_EQ(at_a_server, bits) << "x86-64-v" << variant.level;
        }
      }
}

// A clip's factor, of which every worker has one of its own.
TEST(CpuVariants, SumSquaresToTheSameBits) {
  Context ctx(Context::Options{});
  Random random(3, 2);
  for (const std::int64_t count : {1, 9, 100, 4096, 10007}) {
    Tensor x(Shape{count});
    for (float& number : x.host_out()) number = random.uniform(-2, 2);
    const Tensor* const only = &x;
    const ops::Tensors all(&only, 1);
    const double first = ops::listed_backend().elementary->sum_of_squares(ctx, all);
    for (const ops::CpuVariant& variant : ops::cpu_variants())
      EXPECT_EQ(first, variant.backend->elementary->sum_of_squares(ctx, all)) << count;
  }
}

// The words of a program's environment for this: no choice but the given one.
std::vector<std::string> with(const std::vector<std::string>& variables,
                              const std::vector<std::string>& command) {
  std::vector<std::string> words = {"/usr/bin/env", "-u", "SHOAL_CPU_KERNELS", "-u",
                                    "OPENBLAS_CORETYPE"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

// The tests of ops and of some layers compute with the best variant that runs here; this is the
// other one.
TEST(CpuVariants, OfTheLowestLevelPassTheTestsOfOps) {
  if (ops::held_cpu_kernels() != ops::CpuKernels::kAuto || ops::cpu_variants().size() == 1)
    GTEST_SKIP() << "all tests run with it";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const Ran ran =
      run_program(with({"SHOAL_CPU_KERNELS=AVX2"},
                       {program,
                        "--gtest_filter=Lrn.*:BatchNorm.*:Softmax.*:Pool.*:Gemm.*:Dense.*:Conv.*:"
                        "Im2col.*:PointwiseTest.*:DropoutTest.*:ShapeOps.*:*LossTest.*:"
                        "Types/Recurrent.*:Cases/Fused*:CpuVariants.Are*"}));
  EXPECT_EQ(0, ran.code) << ran.out;
  EXPECT_HAS(ran.out, "[       OK ] CpuVariants.AreThoseThatTheProcessorRunsTheLowestFirst");
  EXPECT_HAS(ran.out, "[       OK ] Conv.");
  EXPECT_HAS(ran.out, " passed, 0 failed, 0 skipped\n");
}

TEST(CpuVariants, OfTheTestsAreNamedAsTheToolsNameThem) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const Ran ran = run_program(with({"SHOAL_CPU_KERNELS=SSE"}, {program, "--gtest_list_tests"}));
  EXPECT_EQ(2, ran.code);
  EXPECT_HAS(ran.err, "--cpu_kernels=SSE: known are AUTO and AVX2");
}

class CpuKernelsOfTools : public TrainTool {
 protected:
  void SetUp() override {
    TrainTool::SetUp();
    if (IsSkipped()) return;
    if (ops::kCpuLevel != 3) GTEST_SKIP() << "this build's kernels are not for x86-64-v3";
  }

  // The line of `text` that begins so, or has it behind the log's own words; "" if there is none.
  static std::string line_with(const std::string& text, const std::string& words) {
    const std::size_t at = text.find(words);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  }
  std::string kernels(const std::vector<std::string>& variables, const std::string& name,
                      const std::vector<std::string>& flags) const {
    std::vector<std::string> command = {tool(name)};
    command.insert(command.end(), flags.begin(), flags.end());
    const Ran ran = run_program(with(variables, command));
    EXPECT_EQ(0, ran.code) << ran.err;
    return line_with(ran.out + ran.err, "CPU kernels: ");
  }
  // "train" and so on, all programs of the tools' folder that compute or convert by themselves.
  static std::vector<std::string> all_tools() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(test::tools_dir())) {
      const std::string name = entry.path().filename().string();
      const bool runs = entry.is_regular_file() && ::access(entry.path().c_str(), X_OK) == 0;
      if (runs && !name.starts_with("caffe") && name != "shoal_tests") names.push_back(name);
    }
    return names;
  }
  static std::string own(int level) { return str("CPU kernels: own for x86-64-v", level, ", "); }
  static int best() { return ops::cpu_variants().back().level; }
};

constexpr const char* kHeld = "CPU kernels: own for x86-64-v3, OpenBLAS ";

TEST_F(CpuKernelsOfTools, StandInTheVersionOfEach) {
  const std::vector<std::string> names = all_tools();
  EXPECT_GE(names.size(), 20u);
  for (const std::string& name : names)
    EXPECT_TRUE(kernels({}, name, {"--version"}).starts_with(own(best()) + "OpenBLAS ")) << name;
}

TEST_F(CpuKernelsOfTools, StandInTheLogOfTrainTestAndTime) {
  const std::string file = solver("log", "max_iter: 1"),
                    net = "--model=" + folder_ + "/net.prototxt";
  const std::vector<std::string> train = {"--solver=" + file, "--threads=1"},
                                 time = {net, "--iterations=1"},
                                 score = {net, "--weights=" + model_path(stem("log", 1)),
                                          "--iterations=1"};
  const std::string line = kernels({}, "train", train);
  EXPECT_TRUE(line.starts_with(own(best()) + "OpenBLAS ")) << line;
  EXPECT_EQ(line, kernels({}, "time", time));
  EXPECT_EQ(line, kernels({}, "test", score));
}

TEST_F(CpuKernelsOfTools, AreHeldToAvx2ByAFlagOrAVariable) {
  const std::string file = solver("held", "max_iter: 1");
  const std::vector<std::string> plain = {"--solver=" + file, "--threads=1"};
  std::vector<std::string> held = plain;
  held.push_back("--cpu_kernels=AVX2");
  const std::vector<std::string> lines = {kernels({}, "train", held),
                                          kernels({"SHOAL_CPU_KERNELS=AVX2"}, "train", plain),
                                          kernels({"OPENBLAS_CORETYPE=Nehalem"}, "train", held),
                                          kernels({}, "time", {"--cpu_kernels=AVX2", "--version"})};
  for (const std::string& line : lines) {
    EXPECT_TRUE(line.starts_with(kHeld)) << line;
    EXPECT_NE(line.find(" for Haswell"), std::string::npos) << line;
    EXPECT_TRUE(line.ends_with("; held to AVX2")) << line;
  }
  held.back() = "--cpu_kernels=AUTO";
  EXPECT_EQ(kernels({}, "train", plain), kernels({"SHOAL_CPU_KERNELS=AVX2"}, "train", held));
  const Ran wrong = run_program(with({}, {tool("train"), "--cpu_kernels=avx2"}));
  EXPECT_EQ(2, wrong.code);
  EXPECT_HAS(wrong.err, "--cpu_kernels=avx2: known are AUTO and AVX2");
}

TEST_F(CpuKernelsOfTools, WarnOfSlowKernelsOfOpenBlasThatTheUserNames) {
  const auto said = [&](const std::vector<std::string>& variables, const std::string& flag) {
    const Ran ran = run_program(with(
        variables, {tool("time"), "--model=" + folder_ + "/net.prototxt", "--iterations=1", flag}));
    EXPECT_EQ(0, ran.code) << ran.err;
    return line_with(ran.err, "OPENBLAS_CORETYPE");
  };
  EXPECT_EQ(
      "OPENBLAS_CORETYPE=Nehalem makes OpenBLAS take its kernels for Nehalem, which are "
      "slower at products than this processor allows; env -u OPENBLAS_CORETYPE runs a "
      "program without it",
      said({"OPENBLAS_CORETYPE=Nehalem"}, "--cpu_kernels=AUTO"));
  EXPECT_EQ("", said({}, "--cpu_kernels=AUTO"));
  EXPECT_EQ("", said({}, "--cpu_kernels=AVX2"));
  if (!missing_of_level(4).empty()) GTEST_SKIP() << "without AVX-512 Haswell's are good";
  EXPECT_TRUE(said({"OPENBLAS_CORETYPE=Haswell"}, "--cpu_kernels=AUTO")
                  .starts_with("OPENBLAS_CORETYPE=Haswell makes "));
  EXPECT_EQ("", said({"OPENBLAS_CORETYPE=SkylakeX"}, "--cpu_kernels=AUTO"));
}

// Programs on other processors, which qemu-user shows them.
class CpuKernelsElsewhere : public CpuKernelsOfTools {
 protected:
  void SetUp() override {
    CpuKernelsOfTools::SetUp();
    if (IsSkipped()) return;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers do not run under qemu";
#endif
    if (run_program({"/usr/bin/env", "qemu-x86_64", "--version"}).code != 0)
      GTEST_SKIP() << "no qemu-x86_64 is here (Debian's qemu-user)";
  }
  // With GOMP_SPINCOUNT set no tool starts itself again, which would be without qemu.
  Ran on(const std::string& processor, std::vector<std::string> command) const {
    command.insert(command.begin(), {"qemu-x86_64", "-cpu", processor});
    return run_program(with({"GOMP_SPINCOUNT=2000"}, command));
  }
};

TEST_F(CpuKernelsElsewhere, EndWithFiveWhereTheProcessorLacksTheirInstructions) {
  const auto expect_refused = [](const Ran& ran) {
    EXPECT_EQ(5, ran.code) << ran.err;
    EXPECT_HAS(ran.err,
               "this build's kernels need a processor of the x86-64-v3 level (AVX2, BMI2, F16C, "
               "FMA ...); this one lacks AVX, AVX2, FMA, BMI1, BMI2, F16C, LZCNT, MOVBE, OSXSAVE.");
    EXPECT_EQ("", ran.out);
  };
  for (const std::string& name : all_tools()) {
    SCOPED_TRACE(name);
    expect_refused(on("Nehalem", {tool(name), "--version"}));
  }
  const std::string file = solver("old", "max_iter: 1");
  expect_refused(on("Nehalem", train_command(file)));
  expect_refused(on("Nehalem", {std::filesystem::read_symlink("/proc/self/exe").string()}));
}

// No copy of an inline function, and no initializer, is compiled for a newer processor than the
// one that runs it.
TEST_F(CpuKernelsElsewhere, TrainOnAProcessorOfTheLowestLevel) {
  const Ran ran = on("Haswell", train_command(solver("haswell", "max_iter: 2")));
  EXPECT_EQ(0, ran.code) << ran.err;
  EXPECT_TRUE(line_with(ran.err, "CPU kernels: ").starts_with(kHeld)) << ran.err;
  EXPECT_HAS(ran.err, "Optimization Done.");
}

}  // namespace
}  // namespace shoal::cpu_kernels_test
