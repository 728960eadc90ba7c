// Prints the flags of a tool for --help.
#pragma once

#include <gflags/gflags.h>

#include <string>
#include <vector>

namespace shoal {

enum class Help {
  kUsual,   // --help: all flags of a tool that has few, or those that most users of it need
  kAll,     // --help=all: all but those of kCompat
  kCompat,  // --help=compat: what other systems call flags, and flags that change nothing here
};

// Throws ConfigError (kUsage) unless the value is "", "all" or "compat".
Help help_named(const std::string& value);

// Returns the flags that the tool's own sources define, by name; glog and gflags bring dozens more.
std::vector<gflags::CommandLineFlagInfo> own_flags();

// Prints `usage`, then flags in groups, each with its meaning, type and default.
void print_help(const char* usage, Help help);

}  // namespace shoal
