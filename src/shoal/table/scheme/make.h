// The schemes there are: each is a file here and a line in make.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/table/scheme.h"

namespace shoal::table {

// What follows the scheme's name, cut at blanks; as many words as the line in make.cpp has parameters. Errors say what is wrong with them.
using Parameters = std::vector<std::string>;

Result<std::unique_ptr<Scheme>> make_bsp(const Parameters& none);
Result<std::unique_ptr<Scheme>> make_ssp(const Parameters& staleness);
Result<std::unique_ptr<Scheme>> make_async(const Parameters& none);

}  // namespace shoal::table
