#include "common/tool.h"
#include "common/upgrade.h"

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv, "upgrade_solver_proto_text IN OUT\n\nWrites a solver in text form, of any age, in today's form. Comments are not kept.", [](const std::vector<std::string>& words) {
    shoal::upgrade_solver_text(shoal::in_and_out(words));
    return 0;
  });
}
