#include "shoal/compat/mxnetg.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "shoal/base/number.h"
#include "shoal/base/text.h"

namespace shoal::compat {
namespace {

struct Entry {
  std::vector<std::string> words;
  int line = 0;
};

// Lines with their words; empty lines are left out, but counted.
std::vector<Entry> entries_of(std::string_view text) {
  std::vector<Entry> entries;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::ranges::replace(line, '\t', ' ');
    if (std::vector<std::string> words = split(line, ' '); !words.empty())
      entries.push_back({std::move(words), number});
  }
  return entries;
}

template <class... Args>
[[noreturn]] void fail(const Args&... args) {
  throw ConfigError(Code::kUsage, args...);
}

struct ShardRange {
  double begin = 0, end = 0;
  int line = 0;
};

// The files know each other by line numbers and the order of strings. Throws ConfigError.
class Conversion {
 public:
  std::string run(std::string_view groups, std::string_view hosts, std::string_view shares,
                  int port) {
    read_groups(groups);
    read_hosts(hosts);
    read_shares(shares);
    std::string out;
    for (const std::string& comment : comments_) out += "# " + comment + "\n";
    std::map<std::string, int> ports;
    for (std::size_t rank = 0; rank < addresses_.size(); ++rank) {
      const std::string& address = addresses_[rank];
      out += str(rank, ' ', address.find(':') == std::string::npos ? address : "[" + address + "]",
                 ' ', port + ports[address]++);
      if (!groups_.empty()) out += str(" group=", groups_.at(address));
      if (!shares_.empty()) out += " weight=" + rounded(shares_[rank].end - shares_[rank].begin);
      out += '\n';
    }
    return out;
  }

 private:
  // An address in two groups belongs to the first, as in MXNet-G.
  void read_groups(std::string_view text) {
    for (const Entry& entry : entries_of(text))
      for (const std::string& address : entry.words) {
        const auto [known, added] = groups_.try_emplace(address, entry.line);
        if (!added && known->second != entry.line)
          comments_.push_back(str(address, " is in the groups of lines ", known->second, " and ",
                                  entry.line, "; the first counts"));
      }
    for (const auto& [address, line] : groups_) addresses_.push_back(address);
  }

  void read_hosts(std::string_view text) {
    const std::vector<Entry> entries = entries_of(text);
    if (!entries.empty()) addresses_.clear();
    for (const Entry& entry : entries) {
      if (entry.words.size() != 1)
        fail("hosts:", entry.line, ": '", join(entry.words, " "), "' is not one address");
      if (!groups_.empty() && !groups_.contains(entry.words[0]))
        fail("hosts:", entry.line, ": ", entry.words[0], " is in no group");
      addresses_.push_back(entry.words[0]);
    }
    for (const auto& [address, line] : groups_)
      if (std::ranges::find(addresses_, address) == addresses_.end())
        fail("groups:", line, ": ", address, " is not in hosts");
    if (addresses_.empty()) fail("neither hosts nor groups names a machine");
    // Sorts as strings: "10.0.0.9" before "10.0.0.10".
    std::ranges::sort(addresses_, std::greater<>());
  }

  void read_shares(std::string_view text) {
    for (const Entry& entry : entries_of(text)) {
      ShardRange share{.line = entry.line};
      if (entry.words.size() == 2) {
        share.begin = number_in<double>(entry.words[0]).value_or(-1);
        share.end = number_in<double>(entry.words[1]).value_or(-1);
      }
      if (share.begin < 0 || share.end > 1 || share.begin >= share.end)
        fail("data_sharding:", entry.line, ": '", join(entry.words, " "),
             "' is not 'begin end' with 0 <= begin < end <= 1");
      shares_.push_back(share);
    }
    if (shares_.empty()) return;
    if (shares_.size() != addresses_.size())
      fail("data_sharding has ", shares_.size(), " lines for ", addresses_.size(), " workers");
    check_cover();
  }

  // Shares are weights here, of parts that follow each other and leave nothing out; where that
  // changes anything, it is said.
  void check_cover() {
    constexpr double kNothing = 1e-9;
    std::vector<ShardRange> sorted = shares_;
    std::ranges::sort(sorted, {}, &ShardRange::begin);
    double end = 0, left_out = 0;
    int line = 0;
    for (const ShardRange& share : sorted) {
      if (share.begin < end - kNothing)
        fail("data_sharding: lines ", std::min(share.line, line), " and ",
             std::max(share.line, line), " overlap");
      left_out += std::max(0.0, share.begin - end);
      end = share.end;
      line = share.line;
    }
    left_out += 1 - end;
    if (left_out > kNothing)
      comments_.push_back(str("data_sharding leaves out ", rounded(left_out),
                              " of the data; here all of it is used"));
    if (!std::ranges::is_sorted(shares_, {}, &ShardRange::begin))
      comments_.push_back(
          "data_sharding's shares do not follow each other by rank; here they do, with the same "
          "sizes");
  }

  // Leaves out the last digits, in which a difference of fractions has its rounding.
  static std::string rounded(double value) { return str(std::setprecision(9), value); }

  std::map<std::string, int> groups_;   // line by address
  std::vector<std::string> addresses_;  // by rank
  std::vector<ShardRange> shares_;      // by rank
  std::vector<std::string> comments_;
};

}  // namespace

std::string machinefile_from_mxnetg(std::string_view groups, std::string_view hosts,
                                    std::string_view data_sharding, int port) {
  return Conversion().run(groups, hosts, data_sharding, port);
}

Result<std::string> read_groups(std::string_view text) {
  const std::vector<Entry> groups = entries_of(text);
  std::vector<std::string> all;
  for (const Entry& group : groups) all.insert(all.end(), group.words.begin(), group.words.end());
  if (all.empty()) return Error{Code::kConfig, "it names no group"};
  const bool numbers = std::ranges::all_of(all, [](const std::string& word) {
    return word.find_first_not_of("0123456789") == std::string::npos;
  });
  std::ranges::sort(all);
  std::vector<std::string> texts;
  std::set<std::string> seen;
  for (const auto& [group, line] : groups) {
    std::vector<std::string> workers;
    for (const std::string& word : group) {
      const auto same = std::ranges::equal_range(all, word);
      if (numbers && same.size() > 1)
        return Error{Code::kConfig, str(word, " is given twice; each worker is in one group")};
      if (!seen.insert(word).second) continue;
      if (numbers) workers.push_back(word);
      for (auto rank = all.end() - same.end(); !numbers && rank < all.end() - same.begin(); ++rank)
        workers.push_back(str(rank));
    }
    if (!workers.empty()) texts.push_back(join(workers, ","));
  }
  return join(texts, "|");
}

GroupingFiles grouping_files(const std::vector<std::vector<int>>& groups,
                             std::span<const double> shares,
                             std::span<const std::string> addresses) {
  GroupingFiles files;
  files.by_address = addresses.size() == shares.size() &&
                     std::ranges::adjacent_find(addresses, std::less_equal()) == addresses.end();
  for (const std::vector<int>& group : groups)
    for (std::size_t i = 0; i < group.size(); ++i)
      files.groups += str(files.by_address ? addresses[static_cast<std::size_t>(group[i])]
                                           : std::to_string(group[i]),
                          i + 1 < group.size() ? ' ' : '\n');
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  double sum = 0;
  std::string begin = "0";
  for (std::size_t worker = 0; worker < shares.size(); ++worker) {
    sum += shares[worker];
    const std::string end = worker + 1 < shares.size() ? shortest(sum / total) : "1";
    files.data_sharding += str(begin, ' ', end, '\n');
    begin = end;
  }
  return files;
}

}  // namespace shoal::compat
