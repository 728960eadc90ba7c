#include <gflags/gflags.h>

#include <charconv>
#include <cstdio>

#include "common/net_flags.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/deploy.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

DEFINE_string(shape, "", "size of inputs whose size the net does not give, batch first: 1,3,32,32");
DEFINE_int32(batch, 0, "batch of every input; 0: 1 for what was a data layer");
DEFINE_bool(auxiliary, false, "keep heads whose loss counts less than the largest");
DEFINE_string(
    floor, "ceil_mode",
    "how pooling that rounds down is written: ceil_mode (OpenCV), round_mode (Caffe) or refuse");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "deploy_net IN.prototxt [OUT.prototxt]\n\n"
    "Writes the plain net that runs a trained model: phase TEST, Input instead of data layers, "
    "Softmax instead of the loss. OpenCV's\n"
    "readNetFromCaffe takes it together with the .caffemodel. Without OUT it goes to the standard "
    "output.";

std::vector<std::int64_t> read_shape() {
  std::vector<std::int64_t> shape;
  for (const std::string& word : split(FLAGS_shape, ',')) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc() || end != word.data() + word.size() || size < 1)
      throw ConfigError(Code::kUsage, "--shape=", FLAGS_shape, ": '", word,
                        "' is not a size; a shape is like 1,3,32,32");
    shape.push_back(size);
  }
  return shape;
}

FloorField read_floor() {
  if (FLAGS_floor == "ceil_mode") return FloorField::kCeilMode;
  if (FLAGS_floor == "round_mode") return FloorField::kRoundMode;
  if (FLAGS_floor == "refuse") return FloorField::kRefuse;
  throw ConfigError(Code::kUsage, "--floor=", FLAGS_floor,
                    ": it is ceil_mode, round_mode or refuse");
}

int body(const std::vector<std::string>& words) {
  if (words.empty() || words.size() > 2)
    throw ConfigError(Code::kUsage, "a net is needed, and at most one file to write");
  if (FLAGS_batch < 0) throw ConfigError(Code::kUsage, "--batch=", FLAGS_batch, " is negative");
  const DeployOptions options{read_shape(), FLAGS_batch, FLAGS_level, split(FLAGS_stage, ','),
                              FLAGS_auxiliary};
  const FloorField floor = read_floor();
  const std::string text = deploy_text(deploy_net(read_net(words[0]), options), floor);
  if (words.size() == 1) return std::fputs(text.c_str(), stdout), 0;
  or_throw(write_file(words[1], text, Code::kConfig));
  LOG(INFO) << "Wrote " << words[1];
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::body); }
