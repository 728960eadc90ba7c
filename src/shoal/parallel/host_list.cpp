#include <algorithm>

#include "shoal/parallel/launchers.h"

namespace shoal::parallel {
namespace {

constexpr std::size_t kMostHosts = 65536;

Error wrong(std::string_view list, const std::string& what) {
  return {Code::kUsage, str("host list '", list, "': ", what)};
}

// "10", "001-003" of a bracket: the numbers, as wide as the first is written. False if it is
// neither.
bool expand_range(const std::string& range, std::vector<std::string>& out) {
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash),
                    last = dash == std::string::npos ? first : range.substr(dash + 1);
  const auto low = number_of(first, 0, 999'999'999), high = number_of(last, 0, 999'999'999);
  if (!low || !high || *high < *low || static_cast<std::size_t>(*high - *low) >= kMostHosts)
    return false;
  for (int number = *low; number <= *high; ++number) {
    const std::string digits = str(number);
    out.push_back(std::string(first.size() - std::min(first.size(), digits.size()), '0') + digits);
  }
  return true;
}

// Every beginning with every number of the bracket that opens at `at`; moves `at` behind it.
Result<std::vector<std::string>> expand_bracket(std::string_view list, std::size_t& at,
                                                const std::vector<std::string>& beginnings) {
  const std::size_t end = list.find(']', at);
  if (end == std::string_view::npos) return wrong(list, "'[' without ']'");
  std::vector<std::string> numbers, hosts;
  for (std::size_t from = at + 1; from <= end;) {
    const std::size_t comma = std::min(list.find(',', from), end);
    const std::string range(list.substr(from, comma - from));
    if (!expand_range(range, numbers))
      return wrong(list, str("'", range, "' is no number and no rising range of numbers"));
    from = comma + 1;
  }
  if (beginnings.size() * numbers.size() > kMostHosts)
    return wrong(list, str("more than ", kMostHosts, " hosts"));
  for (const std::string& beginning : beginnings)
    for (const std::string& number : numbers) hosts.push_back(beginning + number);
  at = end + 1;
  return hosts;
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view list) {
  std::vector<std::string> hosts, word = {""};
  for (std::size_t at = 0; at <= list.size();) {
    if (at < list.size() && list[at] == '[') {
      Result<std::vector<std::string>> expanded = expand_bracket(list, at, word);
      if (!expanded.ok()) return expanded;
      word = std::move(expanded).value();
    } else if (at < list.size() && list[at] != ',') {
      if (list[at] == ']') return wrong(list, "']' without '['");
      for (std::string& host : word) host += list[at];
      ++at;
    } else {
      if (word.front().empty()) return wrong(list, "a host without a name");
      hosts.insert(hosts.end(), word.begin(), word.end());
      if (hosts.size() > kMostHosts) return wrong(list, str("more than ", kMostHosts, " hosts"));
      word = {""};
      ++at;
    }
  }
  return hosts;
}

}  // namespace shoal::parallel
