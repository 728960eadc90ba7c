// The functions that the files of schemes define: each is a file here and a line in schemes.def,
// which make_<name> belongs to.
#pragma once

#include "shoal/table/scheme/parameters.h"

namespace shoal::table {

// Makes a scheme. It reports errors to the parameters: then the result is thrown away.
#define SCHEME(name, ...) std::unique_ptr<Scheme> make_##name(Parameters&);
#include "shoal/table/scheme/schemes.def"
#undef SCHEME

}  // namespace shoal::table
