// Says in words where the configurations of two processes differ, for an error message.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace shoal::table {

// Returns the two parts of a configuration: net, solver and scheme; the machinefile, which begins
// after a line "machinefile:" if the process has one.
std::pair<std::string_view, std::string_view> parted(std::string_view configuration);

// Returns "rank 2 (host b) trains with 'base_lr: 0.02' where rank 0 (host a) has 'base_lr: 0.01'",
// for the first lines that differ, with the layer's name if they are in one. The texts differ.
std::string difference(const std::string& one, std::string_view one_text, const std::string& other,
                       std::string_view other_text, const char* verb = "trains");

}  // namespace shoal::table
