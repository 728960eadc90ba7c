// Writes a trained net as an ONNX file, for programs that run nets.
#include <gflags/gflags.h>

#include <charconv>

#include "common/deploy_flags.h"
#include "common/drawn_params.h"
#include "common/machine.h"
#include "common/net_flags.h"
#include "common/onnx_check.h"
#include "common/onnx_ranges.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/deploy.h"
#include "shoal/onnx/export.h"
#include "shoal/onnx/weight_files.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

DEFINE_string(model, "", "the net, a prototxt: one to train or one to deploy");
DEFINE_string(weights, "",
              "the models, separated by commas; without: random params, to try the export");
DEFINE_string(out, "", "the ONNX file to write");
DEFINE_int32(batch, 0, "the batch of every input; 0: whoever runs the model chooses it");
DEFINE_string(mean, "", "a mean image (binaryproto) that the model subtracts from its input");
DEFINE_string(
    mean_value, "",
    "what the model subtracts from each channel, separated by commas; one number for all");
DEFINE_double(scale, 1, "what the model multiplies its input with, after the mean");
DEFINE_bool(swap_channels, false,
            "the model takes RGB for a net that was trained on BGR; before the mean");
DEFINE_int32(check, 0, "compare so many random inputs with onnxruntime");
DEFINE_int32(check_seconds, 600, "how long onnxruntime may take for --check");
DEFINE_int32(seed, 1, "what random inputs and params are drawn from");
DEFINE_string(calibrate, "",
              "a database whose records go through the net, for the ranges of its values");
DEFINE_string(calibration, "", "where these ranges go; default: OUT.ranges.json");
DEFINE_int32(calibration_records, 500, "how many records, in whole batches; 0: all");
DEFINE_bool(external_data, false,
            "keep weights in a file beside the model, OUT.data, as models above 1.9 GiB do");
DEFINE_string(safetensors, "", "write the params as a .safetensors file, too");
DEFINE_string(npz, "", "write the params as a .npz file of NumPy, too");
DEFINE_int32(threads, 0, "threads for kernels; 0: OMP_NUM_THREADS or all cores");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "export_onnx --model=FILE --weights=FILE --out=FILE.onnx [--check=N]\n"
    "export_onnx --model=FILE --weights=FILE --safetensors=FILE | --npz=FILE\n\n"
    "Writes the net in phase TEST, with Softmax instead of the loss and inputs instead of data, "
    "as an ONNX model (opset 13).\n"
    "docs/exporting.md lists the layers that can be exported.";

std::vector<float> read_mean_values() {
  std::vector<float> values;
  for (const std::string& word : split(FLAGS_mean_value, ',')) {
    float value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
      throw ConfigError(Code::kUsage, "--mean_value=", FLAGS_mean_value, ": '", word,
                        "' is not a number; means are like 104,117,123");
    values.push_back(value);
  }
  return values;
}

onnx::Preprocessing preprocessing_of_flags() {
  onnx::Preprocessing how{.swap_channels = FLAGS_swap_channels,
                          .scale = static_cast<float>(FLAGS_scale)};
  if (!FLAGS_mean.empty() && !FLAGS_mean_value.empty())
    throw ConfigError(Code::kUsage, "--mean and --mean_value are both given; give one of them");
  if (!FLAGS_mean_value.empty()) {
    how.mean = read_mean_values();
    how.mean_dims = {std::ssize(how.mean)};
  } else if (!FLAGS_mean.empty()) {
    const BlobProto mean = read_blob_proto(FLAGS_mean);
    how.mean_dims = blob_dims(mean);
    while (how.mean_dims.size() > 3 && how.mean_dims[0] == 1)
      how.mean_dims.erase(how.mean_dims.begin());
    how.mean.assign(mean.data().begin(), mean.data().end());
    if (how.mean_dims.size() != 3 || Shape(how.mean_dims).count() != std::ssize(how.mean))
      throw ConfigError(Code::kConfig, FLAGS_mean, ": a mean image has three axes, (C, H, W), and ",
                        "as many numbers; compute_image_mean writes one");
  }
  return how;
}

void check_flags(const std::vector<std::string>& words) {
  if (!words.empty())
    throw ConfigError(Code::kUsage, "'", words[0],
                      "' is not a flag; did you mean --model=", words[0], "?");
  need_flag(FLAGS_model, "model");
  for (const auto& [flag, value] : {std::pair("batch", FLAGS_batch),
                                    {"check", FLAGS_check},
                                    {"calibration_records", FLAGS_calibration_records}})
    if (value < 0) throw ConfigError(Code::kUsage, "--", flag, "=", value, " is negative");
  if (FLAGS_check_seconds < 1)
    throw ConfigError(Code::kUsage, "--check_seconds=", FLAGS_check_seconds, " is not above 0");
  if (!FLAGS_calibration.empty() && FLAGS_calibrate.empty())
    throw ConfigError(Code::kUsage, "--calibration needs --calibrate, which says what is read");
  const bool other = !FLAGS_safetensors.empty() || !FLAGS_npz.empty();
  if (FLAGS_out.empty() && (!other || FLAGS_check > 0 || !FLAGS_calibrate.empty()))
    need_flag(FLAGS_out, "out");
}

void write_weights(const Net& net) {
  const std::vector<onnx::NamedArray> arrays = onnx::param_arrays(net);
  if (!FLAGS_safetensors.empty()) or_throw(onnx::write_safetensors(FLAGS_safetensors, arrays));
  if (!FLAGS_npz.empty()) or_throw(onnx::write_npz(FLAGS_npz, arrays));
  for (const std::string& path : {FLAGS_safetensors, FLAGS_npz})
    if (!path.empty()) LOG(INFO) << "Wrote " << arrays.size() << " params to " << path;
}

// Returns the exit code.
int export_model(Net& net) {
  if (const std::string why = onnx::why_no_onnx(); !why.empty())
    throw ConfigError(Code::kConfig, why);
  const onnx::Preprocessing how = preprocessing_of_flags();
  const onnx::Export exported =
      onnx::export_net(net, {.preprocessing = how, .free_batch = FLAGS_batch == 0});
  if (!exported.fixed_by.empty()) LOG(WARNING) << "The batch is fixed: " << exported.fixed_by;
  or_throw(onnx::write_model(exported.graph, FLAGS_out, {.external_data = FLAGS_external_data}));
  LOG(INFO) << "Wrote " << exported.graph.operations.size() << " operations to " << FLAGS_out;
  if (!FLAGS_calibrate.empty()) {
    const std::string path =
        FLAGS_calibration.empty() ? FLAGS_out + ".ranges.json" : FLAGS_calibration;
    or_throw(ranges_of_records(net, exported, how, FLAGS_calibrate,
                               static_cast<std::uint64_t>(FLAGS_calibration_records))
                 .write(path));
    LOG(INFO) << "Wrote " << path;
  }
  if (FLAGS_check == 0) return 0;
  std::vector<std::string> outputs;
  for (const onnx::Value& output : exported.graph.outputs) outputs.push_back(output.name);
  const bool near = check_onnx(net, FLAGS_out,
                               {.outputs = outputs,
                                .runs = FLAGS_check,
                                .free_batch = FLAGS_batch == 0 && exported.fixed_by.empty(),
                                .preprocessing = how,
                                .seed = static_cast<std::uint64_t>(FLAGS_seed),
                                .deadline = FLAGS_check_seconds});
  return near ? 0 : static_cast<int>(Code::kConfig);
}

int body(const std::vector<std::string>& words) {
  check_flags(words);
  NetParameter param = deploy_net(read_net(FLAGS_model), deploy_options_of_flags(FLAGS_batch));
  param.mutable_state()->set_phase(TEST);
  Context::Options options;
  options.threads = threads_to_use(FLAGS_threads);
  options.direct_convolution = true;  // the smaller rounding errors
  Context context(options);
  Net net(param, context, {.share_memory = false, .fuse = false, .forward_only = true});
  // A free batch costs the less the smaller it is; a net that cannot have 1 keeps its own.
  if (FLAGS_batch == 0 && FLAGS_calibrate.empty()) onnx::set_batch(net, 1);
  if (FLAGS_weights.empty()) {
    LOG(WARNING) << "without --weights the params are random: good for a try of the export alone";
    draw_params(net, static_cast<std::uint64_t>(FLAGS_seed));
  } else {
    load_weights(FLAGS_weights, net);
  }
  write_weights(net);
  return FLAGS_out.empty() ? 0 : export_model(net);
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::body); }
