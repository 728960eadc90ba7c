// Reads text files that people write: lists of pictures, of files, of machines.
#pragma once

#include <string>

#include "shoal/base/error.h"

namespace shoal {

// Returns the bytes of the file, without the byte order mark that some editors put first. A file in
// UTF-16 is an Error (`code`), which says so.
Result<std::string> read_list(const std::string& path, Code code);

// Returns "UTF-16" or "UTF-32" for a text that begins as one of these, else "".
std::string wide_encoding(const std::string& text);

}  // namespace shoal
