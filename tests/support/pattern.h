// Finds what a regular expression matches in a text. std::regex is in pattern.cpp alone: each file
// that uses it takes seconds more to compile.
#pragma once

#include <string>
#include <vector>

namespace shoal::test {

// The whole of a match, then what each group in parentheses matched.
using Match = std::vector<std::string>;

std::vector<Match> matches_in(const std::string& text, const std::string& pattern);
inline bool has_match(const std::string& text, const std::string& pattern) {
  return !matches_in(text, pattern).empty();
}
// Returns whether all of the text is one match.
bool is_match(const std::string& text, const std::string& pattern);
// The text with `by` in place of every match.
std::string replaced(const std::string& text, const std::string& pattern, const std::string& by);

}  // namespace shoal::test
