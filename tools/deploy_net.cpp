#include <gflags/gflags.h>

#include <cstdio>

#include "common/deploy_flags.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/net/deploy.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

DEFINE_int32(batch, 0, "batch of every input; 0: 1 for what was a data layer");
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
  const DeployOptions options = deploy_options_of_flags(FLAGS_batch);
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
