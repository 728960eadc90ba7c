#include "common/tool.h"
#include "common/upgrade.h"

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv, "upgrade_net_proto_text IN OUT\n\nWrites a net in text form, of any age, in today's form. Comments are not kept.", [](const std::vector<std::string>& words) {
    shoal::upgrade_net_text(shoal::in_and_out(words));
    return 0;
  });
}
