// The functions that the upgrade tools share.
#pragma once

#include <string>
#include <vector>

namespace shoal {

// The words of a tool that takes IN and OUT; throws ConfigError (Code::kUsage) for any other number
// of them.
struct InOut {
  std::string in, out;
};
InOut in_and_out(const std::vector<std::string>& words);

// Each reads a file of its kind, of any age, and writes it in today's form; throws ConfigError.
void upgrade_net_text(const InOut& files);
void upgrade_net_binary(const InOut& files);
void upgrade_solver_text(const InOut& files);

}  // namespace shoal
