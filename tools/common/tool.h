// The main of every tool: flags in, exit code out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

// Reads the flags, starts the log, runs `body` with the words that are not flags and returns the
// process's exit code: what `body` returns, the code of a ConfigError it throws (its words go to
// stderr), or 1 for any other exception. No memory left ends with 3: it is the net or its batch
// that is too large.
//   flags     one or two dashes; "-" inside a name is read as "_"; "--flag=value", "--flag value",
//   "--flag", "--noflag"; "--" ends
//             them. An unknown flag or a value of another type ends with 2, the nearest known flag
//             named.
//   variables SHOAL_<FLAG> in capitals sets a flag of the tool that the command line does not. One
//   that looks like a misspelt flag is named in the log.
//   --help    prints `usage` and the flags that most users need (common/help.h), --version the
//   version and a line on the CPU's kernels; both end with 0.
// A write past the process's limit on file sizes is an error of that write, not the end of the
// process. `usage` is a line or more: "train --solver=FILE [--snapshot=FILE]\n\nTrains a net."
int run_tool(int argc, char** argv, const char* usage,
             int (*body)(const std::vector<std::string>& words));
// Sets the flags that these words of a command line and the environment's variables give, as
// run_tool() does. Returns the words that are no flags.
std::vector<std::string> read_flags(std::span<const std::string> args);
// Returns whether the command line or a variable says what the flag is, its default value included.
bool given(const char* flag);
// Returns the names of the flags of these files ("job_flags") that were given another value than
// their default.
std::vector<std::string> given_of(std::span<const std::string_view> files);

}  // namespace shoal
