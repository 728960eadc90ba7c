#include "common/tool.h"
#include "common/upgrade.h"
#include "shoal/proto/io.h"

namespace {

int body(const std::vector<std::string>& words) {
  const shoal::InOut files = shoal::in_and_out(words);
  switch (const shoal::FileKind kind = shoal::kind_of_file(files.in)) {
    case shoal::FileKind::kModel: shoal::upgrade_net_binary(files); break;
    case shoal::FileKind::kSolverText: shoal::upgrade_solver_text(files); break;
    case shoal::FileKind::kNetText:
    case shoal::FileKind::kEmpty:
    // which says what is wrong with it
    case shoal::FileKind::kUnknown: shoal::upgrade_net_text(files); break;
    default:
      throw shoal::ConfigError(shoal::Code::kConfig, files.in, " is ", to_words(kind),
                               "; there is nothing to upgrade");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "upgrade_proto IN OUT\n\n"
                         "Writes a net or a solver (text) or a model (binary) of any age in "
                         "today's form; what IN is, its content tells.\n"
                         "OUT may be IN. Comments of a text are not kept.",
                         body);
}
