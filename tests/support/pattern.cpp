#include "support/pattern.h"

#include <regex>

namespace shoal::test {

std::vector<Match> matches_in(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<Match> all;
  for (std::sregex_iterator found(text.begin(), text.end(), expression), end; found != end; ++found)
    all.emplace_back(found->begin(), found->end());
  return all;
}

bool is_match(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern));
}

std::string replaced(const std::string& text, const std::string& pattern, const std::string& by) {
  return std::regex_replace(text, std::regex(pattern), by);
}

}  // namespace shoal::test
