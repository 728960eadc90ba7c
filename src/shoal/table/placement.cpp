#include "shoal/table/placement.h"

#include <algorithm>
#include <numeric>

namespace shoal::table {
namespace {

constexpr std::size_t kShortest = 64;   // floats; nothing is cut into shorter rows for the sake of balance

std::vector<std::uint32_t> cut_into(std::size_t count, std::size_t pieces) {
  std::vector<std::uint32_t> lengths;
  for (std::size_t i = 0; i < pieces; ++i) lengths.push_back(static_cast<std::uint32_t>(count * (i + 1) / pieces - count * i / pieces));
  return lengths;
}

}  // namespace

// A param above 5 % of a server's share is cut into as many pieces as there are servers, or a multiple of that: it weighs on all alike. Of
// the others, each adds to the difference between two servers no more than its own size, as it goes to the one with the least.
std::vector<std::uint32_t> cut_for(std::size_t count, std::size_t total, int servers, std::uint32_t longest) {
  const std::size_t among = static_cast<std::size_t>(servers);
  const std::size_t pieces = (count + longest - 1) / longest;
  if (count * among * 20 <= total || count < among * kShortest) return cut_into(count, pieces);
  return cut_into(count, (pieces + among - 1) / among * among);
}

void place(std::span<Row> rows, int servers) {
  std::vector<std::size_t> order(rows.size()), load(static_cast<std::size_t>(servers));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return rows[i].length; });
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    rows[i].server = static_cast<std::uint16_t>(least - load.begin());
    *least += rows[i].length;
  }
}

std::vector<std::size_t> bytes_per_server(std::span<const Row> rows, int servers) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(servers));
  for (const Row& row : rows) bytes[row.server] += row.length * sizeof(float);
  return bytes;
}

}  // namespace shoal::table
