#include "common/tool.h"
#include "common/upgrade.h"

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv, "upgrade_net_proto_binary IN OUT\n\nWrites a model (.caffemodel) of any age and writer in today's form.", [](const std::vector<std::string>& words) {
    shoal::upgrade_net_binary(shoal::in_and_out(words));
    return 0;
  });
}
