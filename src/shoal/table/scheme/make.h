// What the files of schemes define: each is a file here and a line in schemes.def, which make_<name> belongs to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/table/scheme.h"

namespace shoal::table {

// What follows the scheme's name, cut at blanks; as many words as its line in schemes.def has parameters. Errors say what is wrong with
// them.
using Parameters = std::vector<std::string>;

#define SCHEME(name, parameters) Result<std::unique_ptr<Scheme>> make_##name(const Parameters&);
#include "schemes.def"
#undef SCHEME

}  // namespace shoal::table
