// Which server holds which row, and where a param is cut into rows. Pure functions: every worker computes the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/table/types.h"

namespace shoal::table {

// A row is at most so long unless told otherwise. Shorter rows cost frames, longer ones let urgent rows wait. By the CPU time of the server and
// the worker of `bench_table --rows`, for each GiB moved, lengths below 16 Ki are dear and those from 16 Ki on alike; at 1 Gbit/s an urgent row
// waits 2 ms for one of 64 Ki.
inline constexpr std::uint32_t kRowFloats = 64 * 1024;

// Lengths of the rows of a param with `count` numbers, of `total` in all params: nearly equal, none above `longest`, and so many that
// place() can give all servers the same within 5 % of their mean.
std::vector<std::uint32_t> cut_for(std::size_t count, std::size_t total, int servers, std::uint32_t longest = kRowFloats);

// Gives every row a server, balanced by bytes: the largest row first, to the server with the least so far (a tie: the lowest id). A server
// may get none.
void place(std::span<Row> rows, int servers);

// Bytes of weights on each server.
std::vector<std::size_t> bytes_per_server(std::span<const Row> rows, int servers);

}  // namespace shoal::table
