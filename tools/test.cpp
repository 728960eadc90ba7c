// Scores a model on the test phase of a net, as `caffe test` does.
#include <gflags/gflags.h>

#include "common/device_flags.h"
#include "common/machine.h"
#include "common/net_flags.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/recipe.h"

DEFINE_string(model, "", "the net, a prototxt");
DEFINE_string(weights, "", "the models, separated by commas");
DEFINE_string(source, "", "what data layers read, instead of the net's source");
DEFINE_int32(iterations, 50, "how many batches");
DEFINE_int32(threads, 0, "threads for kernels; 0: OMP_NUM_THREADS or all cores");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "test --model=FILE --weights=FILE [--source=DATA] [--iterations=N] [--threads=N] [--gpu=0]\n\n"
    "Runs N batches through a net in phase TEST and prints the mean of each of its outputs.";

struct Score {
  std::string output;
  float loss_weight = 0;
  double sum = 0;
};

void add_outputs(const Net& net, int batch, std::vector<Score>& scores) {
  std::size_t at = 0;
  for (const Blob* output : net.outputs_of_one_size())
    for (const float value : output->data.host()) {
      if (at == scores.size()) scores.push_back({output->name, net.loss_weight(*output), 0});
      scores[at++].sum += value;
      LOG(INFO) << "Batch " << batch << ", " << output->name << " = " << value;
    }
}

void print_means(const std::vector<Score>& scores, double loss) {
  LOG(INFO) << "Loss: " << static_cast<float>(loss / FLAGS_iterations);
  for (const Score& score : scores) {
    const auto mean = static_cast<float>(score.sum / FLAGS_iterations);
    const std::string weighted = score.loss_weight != 0 ? str(" (* ", score.loss_weight, " = ",
                                                              score.loss_weight * mean, " loss)")
                                                        : "";
    LOG(INFO) << score.output << " = " << mean << weighted;
  }
}

int test(const std::vector<std::string>& words) {
  if (!words.empty())
    throw ConfigError(Code::kUsage, "'", words[0],
                      "' is not a flag; did you mean --model=", words[0], "?");
  need_flag(FLAGS_model, "model");
  need_flag(FLAGS_weights, "weights");
  if (FLAGS_iterations < 1)
    throw ConfigError(Code::kUsage, "--iterations is ", FLAGS_iterations, "; it must be 1 or more");
  NetParameter param = read_net(FLAGS_model);
  set_state_of_flags("TEST", *param.mutable_state());
  if (!FLAGS_source.empty() && set_data_source(param, FLAGS_source) == 0)
    throw ConfigError(Code::kUsage, "--source: net '", param.name(),
                      "' has no layer that reads a source");
  log_cpu_kernels();
  Context context(context_of_flags(threads_to_use(FLAGS_threads)));
  Net net(param, context, {.forward_only = true});
  load_weights(FLAGS_weights, net);
  LOG(INFO) << "Running for " << FLAGS_iterations << " iterations.";
  std::vector<Score> scores;
  double loss = 0;
  for (int batch = 0; batch < FLAGS_iterations; ++batch) {
    loss += or_throw(net.forward());
    add_outputs(net, batch, scores);
  }
  print_means(scores, loss);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::test); }
