#include "shoal/table/placement.h"

#include <algorithm>
#include <numeric>

namespace shoal::table {
namespace {

// Parts of a server's share. Smaller params do not matter for the balance.
constexpr std::size_t kPartsOfNet = 20;

// The length in floats below which nothing is cut for the sake of balance: a worker sends and reads
// every row in each iteration, so that a net has some thousands of them at most, however many
// servers there are. Rows of a sixteenth of the longest cost their link little more than long ones.
std::size_t shortest_row(std::size_t total) {
  constexpr std::size_t kShortest = 64, kRows = 4096;
  return std::clamp(total / kRows, kShortest, std::size_t{kRowFloats} / 16);
}

std::vector<std::uint32_t> cut_into(std::size_t count, std::size_t pieces) {
  std::vector<std::uint32_t> lengths;
  for (std::size_t i = 0; i < pieces; ++i)
    lengths.push_back(static_cast<std::uint32_t>(count * (i + 1) / pieces - count * i / pieces));
  return lengths;
}

std::size_t divided(std::size_t count, std::size_t by) { return (count + by - 1) / by; }

}  // namespace

double Servers::seconds(std::size_t server, double own, double all) const {
  if (speeds.empty()) return own;
  const ServerSpeed& speed = speeds[server];
  const double bytes = sizeof(float), others = workers - (speed.has_worker ? 1 : 0);
  const double link = speed.bandwidth > 0 ? bytes / speed.bandwidth : 0;
  return link * (own * others + (speed.has_worker ? all - own : 0)) +
         speed.busy * bytes * own * workers;
}

std::uint32_t longest_row(std::size_t total) {
  return total < 32 * std::size_t{kRowFloats} ? kRowFloats / 2 : kRowFloats;
}

// Cuts params for balance. Among servers that are alike, a param above 5 % of a server's share is
// cut into as many pieces as there are servers, or a multiple of that: all get the same load. Where
// these would be too short, and among unequal servers, no piece is above those 5 %, or above the
// shortest. Each piece goes to the server with the least load, so it adds at most its own size to
// the difference between two servers.
std::vector<std::uint32_t> cut_for(std::size_t count, std::size_t total, const Servers& servers,
                                   std::uint32_t longest) {
  const std::size_t among = static_cast<std::size_t>(servers.count);
  const std::size_t pieces = divided(count, longest), shortest = shortest_row(total);
  if (count * among * kPartsOfNet <= total) return cut_into(count, pieces);
  if (servers.speeds.empty() && count >= among * shortest)
    return cut_into(count, divided(pieces, among) * among);
  const std::size_t small = std::max(shortest, total / (among * kPartsOfNet));
  return cut_into(count, std::max(pieces, divided(count, small)));
}

void place(std::span<Row> rows, const Servers& servers) {
  std::vector<std::size_t> order(rows.size());
  std::vector<double> load(servers.count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) {
    return std::pair(rows[i].learns, rows[i].length);
  });
  double all = 0;
  for (const Row& row : rows) all += row.learns ? row.length : 0;
  for (const std::size_t i : order) {
    // Rows that take no time are balanced by their numbers.
    const auto end = [&](std::size_t server) {
      const double own = load[server] + rows[i].length;
      return std::pair(servers.seconds(server, own, all), own);
    };
    std::size_t first = 0;
    for (std::size_t server = 1; server < load.size(); ++server)
      if (end(server) < end(first)) first = server;
    rows[i].server = static_cast<std::uint16_t>(first);
    load[first] += rows[i].length;
  }
}

std::vector<std::size_t> bytes_per_server(std::span<const Row> rows, int servers) {
  std::vector<std::size_t> bytes(servers);
  for (const Row& row : rows) bytes[row.server] += row.length * sizeof(float);
  return bytes;
}

}  // namespace shoal::table
