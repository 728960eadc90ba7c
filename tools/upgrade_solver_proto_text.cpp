#include "common/tool.h"
#include "common/upgrade.h"

namespace {

constexpr const char* kUsage =
    "upgrade_solver_proto_text IN OUT\n\n"
    "Writes a solver in text form, of any age, in today's form. Comments are not kept.";

int body(const std::vector<std::string>& words) {
  shoal::upgrade_solver_text(shoal::in_and_out(words));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, kUsage, body); }
