#include "shoal/table/coordinator/difference.h"

#include <algorithm>
#include <ranges>

#include "shoal/base/error.h"
#include "shoal/base/text.h"

namespace shoal::table {
namespace {

using Lines = std::vector<std::string>;

std::string key_of(const std::string& line) { return line.substr(0, line.find_first_of(": {")); }

// Returns "" or " in layer 'conv1'": the innermost block around line `at` whose name comes before
// it.
std::string place_of(const Lines& lines, std::size_t at) {
  struct Block {
    std::string kind, name;
  };
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < std::min(at, lines.size()); ++i) {
    const std::string& line = lines[i];
    if (line.ends_with("{")) blocks.push_back({key_of(line), ""});
    if (line == "}" && !blocks.empty()) blocks.pop_back();
    const std::size_t quote = line.find('"');
    if (line.starts_with("name:") && quote != std::string::npos && !blocks.empty())
      blocks.back().name = line.substr(quote + 1, line.rfind('"') - quote - 1);
  }
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block)
    if (!block->name.empty()) return str(" in ", block->kind, " '", block->name, "'");
  return {};
}

bool has_later(const Lines& lines, std::size_t from, const std::string& line) {
  return std::ranges::count(lines | std::views::drop(from), line) > 0;
}

}  // namespace

std::pair<std::string_view, std::string_view> parted(std::string_view configuration) {
  constexpr std::string_view kMark = "machinefile:\n";
  const std::size_t at = configuration.find(kMark);
  if (at == configuration.npos) return {configuration, {}};
  return {configuration.substr(0, at), configuration.substr(at + kMark.size())};
}

std::string difference(const std::string& one, std::string_view one_text, const std::string& other,
                       std::string_view other_text, const char* verb) {
  const Lines a = split(one_text, '\n'), b = split(other_text, '\n');
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  const bool in_a = at < a.size(), in_b = at < b.size();
  if (!in_a && !in_b)
    return str(one, " and ", other,
               " have nets, solvers or schemes that differ in white space alone");
  // Tells a line that the other side lacks from one that has another value.
  const bool same_key = in_a && in_b && key_of(a[at]) == key_of(b[at]);
  const bool only_a = in_a && (!in_b || (!same_key && has_later(a, at, b[at])));
  if (!only_a && (!in_a || (!same_key && has_later(b, at, a[at]))))
    return str(one, ' ', verb, " without '", b[at], "'", place_of(b, at), ", which ", other,
               " has");
  return str(one, ' ', verb, " with '", a[at], "'", place_of(a, at), " where ", other, " has ",
             only_a ? "no such line" : "'" + b[at] + "'");
}

}  // namespace shoal::table
