// Which server holds which row, and where a param is cut into rows. Pure functions: every worker
// computes the same.
#pragma once

#include <utility>

#include "shoal/table/types.h"

namespace shoal::table {

// A row is at most so long unless told otherwise. Shorter rows cost frames, longer ones let urgent
// rows wait. By the CPU time of the server and the worker of `bench_table --rows`, for each GiB
// moved, lengths below 16 Ki are dear and those from 16 Ki on alike; at 1 Gbit/s an urgent row
// waits 2 ms for one of 64 Ki.
inline constexpr std::uint32_t kRowFloats = 64 * 1024;

// The longest row of a model of `total` numbers: kRowFloats, or half of that if it would be a part
// of the model that shows. A row is updated when all of it is there, so that the last one's way to
// a server and back comes on top of an iteration: 4 ms at 1 Gbit/s, where the whole of LeNet
// takes 14.
std::uint32_t longest_row(std::size_t total);

// The speed of a server as given or measured.
struct ServerSpeed {
  double bandwidth = 0;  // bytes a second of its process's link, each way; 0: no limit
  double busy = 0;       // seconds that a pushed byte keeps it busy
  // in its process: the rows that one has on other servers come through the same link
  bool has_worker = false;
};

// The processes that hold the rows. Where nothing is known of them, all are alike.
struct Servers {
  Servers(int number) : count(number) {}  // NOLINT: "2 servers"
  Servers(std::vector<ServerSpeed> known, int of)
      : count(static_cast<int>(known.size())), speeds(std::move(known)), workers(of) {}
  int count = 1;
  std::vector<ServerSpeed> speeds{};  // by server, or none
  int workers = 1;                    // that push to them

  // Seconds an iteration of a server that holds `own` of `all` numbers: its link has to bring in
  // its pushes, and the rows of a worker beside it that others hold (out goes as much), and it is
  // busy with each push. Where all are alike: its numbers.
  double seconds(std::size_t server, double own, double all) const;
};

// Lengths of the rows of a param with `count` numbers, of `total` in all params: nearly equal, none
// above `longest`, and so many that place() can give all servers the same within 5 % of their mean;
// or, of unequal servers, each what it can bear, within as much. For that nothing is cut shorter
// than a 4096th of the net, or 16 KiB: among very many servers the differences are larger.
std::vector<std::uint32_t> cut_for(std::size_t count, std::size_t total, const Servers& servers,
                                   std::uint32_t longest = kRowFloats);

// Gives every row a server, balanced by bytes, or by time where it is known what they take: first
// the rows that learn, since the others are read once, and of these the largest first, to the
// server that is through the earliest with it and all it has (a tie: the lowest id). A server may
// get none.
void place(std::span<Row> rows, const Servers& servers);

// Bytes of weights on each server.
std::vector<std::size_t> bytes_per_server(std::span<const Row> rows, int servers);

}  // namespace shoal::table
