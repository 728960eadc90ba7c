// Implements the division of a set into parts.
#include "shoal/data/partition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/base/text.h"

namespace shoal {
namespace {

Error usage(std::string message) { return Error{Code::kUsage, std::move(message)}; }

struct Range {
  double begin = 0, end = 0;
};

Result<Range> parse_range(std::string_view line, const std::string& place) {
  const std::vector<std::string> words = split(line, ' ');
  double numbers[2] = {};
  bool good = words.size() == 2;
  for (std::size_t i = 0; good && i < 2; ++i) {
    const char* end = words[i].data() + words[i].size();
    const auto [stop, bad] = std::from_chars(words[i].data(), end, numbers[i]);
    good = bad == std::errc() && stop == end && numbers[i] >= 0 && numbers[i] <= 1;
  }
  if (!good)
    return usage(str(place, ": \"", line.substr(0, 80),
                     "\" is not \"begin end\", two fractions from 0 to 1"));
  if (numbers[0] > numbers[1])
    return usage(
        str(place, ": the range ends, at ", numbers[1], ", before it begins, at ", numbers[0]));
  return Range{numbers[0], numbers[1]};
}

// "" if `begin` goes on where the ranges before it ended.
std::string gap(double begin, double before, double records) {
  const double difference = (begin - before) * records;
  if (difference > 1) return str("leaves out the records from ", before, " to ", begin);
  if (difference < -1) return str("overlaps the one before, which ends at ", before);
  return "";
}

}  // namespace

Result<PartBounds> bounds_by_sharding(std::string_view text, const std::string& name,
                                      std::uint64_t count) {
  const double records = static_cast<double>(count);
  PartBounds bounds;
  double end = 0;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t stop = text.find('\n');
    std::string_view line = text.substr(0, stop);
    text = stop == std::string_view::npos ? std::string_view() : text.substr(stop + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string place = str(name, ":", ++number);
    // The last line may be empty.
    if (text.empty() && line.find_first_not_of(" \t") == std::string_view::npos) break;
    const Result<Range> range = parse_range(line, place);
    if (!range.ok()) return range.error();
    if (const std::string wrong = gap(range.value().begin, end, records); !wrong.empty())
      return usage(str(place, ": the range ", wrong));
    bounds.push_back(bounds.empty() ? 0
                                    : static_cast<std::uint64_t>(
                                          std::floor(range.value().begin * records + 1e-6)));
    end = range.value().end;
  }
  if (bounds.empty()) return usage(name + " has no lines");
  if (const std::string wrong = gap(1, end, records); !wrong.empty())
    return usage(str(name, ":", number, ": no range follows, which ", wrong));
  bounds.push_back(count);
  return none_empty(std::move(bounds));
}

Partition Partition::round_robin(std::size_t parts) {
  CHECK(parts > 0);
  return Partition(parts);
}

Partition Partition::blocks(PartBounds bounds) {
  CHECK(bounds.size() > 1);
  Partition partition(bounds.size() - 1);
  partition.bounds_ = std::move(bounds);
  return partition;
}

Partition Partition::by_class(const PartBounds& bounds, std::span<const int> labels) {
  CHECK(labels.size() == bounds.back()) << labels.size() << " labels of " << bounds.back();
  std::vector<std::uint64_t> order(labels.size());
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::ranges::stable_sort(order, {}, [&](std::uint64_t i) { return labels[i]; });
  Partition partition(bounds.size() - 1);
  partition.chosen_.resize(labels.size());
  for (std::size_t k = 0; k < partition.parts_; ++k)
    for (std::uint64_t at = bounds[k]; at < bounds[k + 1]; ++at)
      partition.chosen_[order[at]] = static_cast<std::uint32_t>(k);
  return partition;
}

std::size_t Partition::of(std::uint64_t record) const {
  if (!chosen_.empty()) return chosen_.at(record);
  if (bounds_.empty()) return record % parts_;
  return static_cast<std::size_t>(std::ranges::upper_bound(bounds_, record) - bounds_.begin()) - 1;
}

}  // namespace shoal
