// Finds characters in a prototxt that were copied from a page or meant for another system.
#pragma once

#include <string>

namespace shoal {

// Throws ConfigError, with line and column and the name of each character, if the text has
// characters outside ASCII that stand neither in a string nor in a comment (no-break blanks,
// typographic quotation marks, wide colons), or a string with an escape that is no more than the
// backslash of a path. Warns of strings that are not UTF-8. `name` is the file's.
void check_characters(const std::string& text, const std::string& name);

}  // namespace shoal
