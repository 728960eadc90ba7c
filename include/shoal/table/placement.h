// Cuts params into rows and assigns rows to servers. Pure functions: every worker computes the
// same.
#pragma once

#include <utility>

#include "shoal/table/types.h"

namespace shoal::table {

// A row is at most so long unless told otherwise. Shorter rows cost frames, longer ones let urgent
// rows wait. By the CPU time of the server and the worker of `bench_table --rows`, for each GiB
// moved, lengths below 16 Ki are dear and those from 16 Ki on alike; at 1 Gbit/s an urgent row
// waits 2 ms for one of 64 Ki.
inline constexpr std::uint32_t kRowFloats = 64 * 1024;

// Returns the longest row of a model of `total` numbers: kRowFloats, halved for small models so
// that the last row adds little latency. A row is updated when all of it has arrived. So the way of
// the last one to a server and back adds to an iteration: 4 ms at 1 Gbit/s, where the whole of
// LeNet takes 14.
std::uint32_t longest_row(std::size_t total);

// The speed of a server as given or measured.
struct ServerSpeed {
  double bandwidth = 0;  // bytes a second of its process's link, each way; 0: no limit
  double busy = 0;       // seconds that a pushed byte keeps it busy
  // A worker is in its process. The rows that it has on other servers come through the same link.
  bool has_worker = false;
};

// The processes that hold the rows. Without speeds all are alike.
struct Servers {
  Servers(int number) : count(number) {}  // NOLINT: "2 servers"
  Servers(std::vector<ServerSpeed> known, int of)
      : count(static_cast<int>(known.size())), speeds(std::move(known)), workers(of) {}
  int count = 1;
  std::vector<ServerSpeed> speeds{};  // by server, or none
  int workers = 1;                    // that push to them

  // Returns the estimated seconds an iteration for a server that holds `own` of `all` numbers;
  // without speeds, `own`. Its link brings in its pushes, and the rows that a worker beside it has
  // on other servers (as much goes out), and each push keeps it busy.
  double seconds(std::size_t server, double own, double all) const;
};

// Returns the lengths of the rows of a param with `count` numbers, of `total` in all params: nearly
// equal, none above `longest`, and so many that place() can give all servers the same within 5 % of
// their mean, or unequal servers what each can bear, within as much. For that nothing is cut
// shorter than a 4096th of the net, or 16 KiB: among very many servers the differences are larger.
std::vector<std::uint32_t> cut_for(std::size_t count, std::size_t total, const Servers& servers,
                                   std::uint32_t longest = kRowFloats);

// Gives every row a server, balanced by bytes, or by time where speeds are known: first the rows
// that learn, since the others are read once, and of these the largest first, to the server that
// finishes earliest with it and all it has (a tie: the lowest id). A server may get none.
void place(std::span<Row> rows, const Servers& servers);

// Returns the bytes of weights on each server.
std::vector<std::size_t> bytes_per_server(std::span<const Row> rows, int servers);

}  // namespace shoal::table
