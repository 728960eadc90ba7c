// Flags of other systems that no tool here has: what they meant, and the command that does the
// same.
#pragma once

#include <span>
#include <string>

namespace shoal {

// Returns, for a flag of SpeeDO, MXNet-G or ESync that has no meaning here by itself, whose it is,
// what takes its place, and the command line `args` of `program` in the words of this system, to be
// copied; "" for any other flag. `name` has no dashes, and '_' for '-'.
std::string foreign_flag(const std::string& name, const std::string& program,
                         std::span<const std::string> args);

}  // namespace shoal
