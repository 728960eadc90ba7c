// Where two configurations differ, for people.
#pragma once

#include <string>
#include <string_view>

namespace shoal::table {

// "rank 2 (host b) trains with 'base_lr: 0.02' where rank 0 (host a) has 'base_lr: 0.01'", of the
// first lines that differ, with the layer's name if they are in one. The texts differ.
std::string difference(const std::string& one, std::string_view one_text, const std::string& other,
                       std::string_view other_text, const char* verb = "trains");

}  // namespace shoal::table
