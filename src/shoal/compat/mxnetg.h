// The files in which MXNet-G describes a job: `hosts`, `groups` and `data_sharding`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal::compat {

// Returns a machinefile with the content of the three: ids are MXNet-G's ranks, which follow the
// addresses as strings, the largest first; groups are named by their lines, and shares of the data
// become weights. The processes of an address have ports from `port` on. Without `hosts` (or with
// empty ones) every address of `groups` is one process; `groups` and `data_sharding` may be empty.
// Comments of the text say what was passed over. Throws ConfigError (kUsage), which names file and
// line: an address in no group, or in a group alone, fewer or more shares than workers, shares that
// overlap. The grammar of machinefiles says whether an address is one.
std::string machinefile_from_mxnetg(std::string_view groups, std::string_view hosts,
                                    std::string_view data_sharding, int port);

// "0,2|1,3" of the lines of `groups`, a group a line, cut at blanks: numbers of workers; or
// addresses, of which the i-th in the order of letters, of n, is worker n - 1 - i. An address is
// there once for each of its workers, whose numbers follow each other; all are in the group that
// names it first, as in MXNet-G.
Result<std::string> read_groups(std::string_view text);

// The files that MXNet-G's tools, partition_data and groups_file read.
struct GroupingFiles {
  std::string groups;  // a group a line
  // Line i + 1 is "begin end" of worker i, in fractions; they leave nothing out.
  std::string data_sharding;
  bool by_address = false;  // the groups are of addresses; else of numbers
};
// Returns the files for groups of workers; `shares` are of the data, by worker. Addresses stand for
// workers as in MXNet-G, where they number them: if all differ and descend, as strings, from worker
// 0 on. Otherwise they would mean other workers there, and numbers are written.
GroupingFiles grouping_files(const std::vector<std::vector<int>>& groups,
                             std::span<const double> shares,
                             std::span<const std::string> addresses);

}  // namespace shoal::compat
