#include "common/tool.h"
#include "common/upgrade.h"

namespace {

constexpr const char* kUsage =
    "upgrade_net_proto_binary IN OUT\n\n"
    "Writes a model (.caffemodel) of any age and writer in today's form.";

int body(const std::vector<std::string>& words) {
  shoal::upgrade_net_binary(shoal::in_and_out(words));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, kUsage, body); }
