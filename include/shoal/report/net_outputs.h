// A run's numbers as tables, in Poseidon's columns (docs/reference/formats.md): <prefix>.train.csv
// and <prefix>.test<i>.csv grow by a line for every display and test and are on the disk after it;
// <prefix>.netoutputs holds all of them one after another, as Poseidon writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

struct OutputRow {
  std::int64_t iteration = 0;
  double seconds = 0;  // of training
  double loss = 0;
  std::vector<double> outputs{};
};

// "prob", or for an output of several numbers "prob[0]", "prob[1]" ...
std::vector<std::string> column_names(const std::string& output, std::int64_t numbers);

class NetOutputs {
 public:
  // Opens a table for each of `nets`, the train net first, with the names of its outputs' columns.
  // Rows of an earlier run under `prefix` are kept if they are of iterations before `iteration`,
  // from which this one goes on; so a run from 0 starts anew. Errors are kUsage: a file that cannot
  // be written, or that has other columns.
  static Result<NetOutputs> open(const std::string& prefix,
                                 const std::vector<std::vector<std::string>>& nets,
                                 std::int64_t iteration);
  // Appends to the table of net `net`; seconds are added to those of the rows that were there.
  Status add(std::size_t net, const OutputRow& row);
  // Writes <prefix>.netoutputs anew.
  Status gather() const;

 private:
  struct Table {
    std::string path, text;  // the file's whole content
  };
  std::string prefix_;
  std::vector<Table> tables_;
  double seconds_before_ = 0;  // of the rows that were kept
};

}  // namespace shoal
