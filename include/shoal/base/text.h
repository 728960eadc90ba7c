// Compares, suggests, joins and splits words; writes bytes as hexadecimal digits.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

// Returns the number of single letters to insert, delete, replace or swap with their neighbour to
// turn `a` into `b`; case does not count.
int edit_distance(std::string_view a, std::string_view b);

// Returns the candidate that `word` was most likely meant to be, or "" if none is near (a third of
// its letters wrong, at most 3 at that). If several are as near, the one that begins like `word`
// for longest wins, then the first.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'?", or "" if no candidate is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'? Known: a, b, c", or "; known: a, b, c" if no candidate is near.
std::string known_words(std::string_view word, std::span<const std::string> candidates);

// "a, b, c"
std::string join(std::span<const std::string> words, std::string_view separator = ", ");

// Returns the parts between separators, blanks around each cut off; empty parts are left out.
std::vector<std::string> split(std::string_view text, char separator);

// Returns two lower-case hexadecimal digits for each byte.
std::string hex(std::string_view bytes, std::string_view separator = "");

}  // namespace shoal
