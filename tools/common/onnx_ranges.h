// The ranges of a net's values over the records of a database.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/net/net.h"
#include "shoal/onnx/export.h"
#include "shoal/onnx/ranges.h"

namespace shoal {

// Runs up to `records` records (0: all), in whole batches, from `source` through the net, whose
// input takes them as preprocessing says, and returns the range of each value of the graph that is
// a blob or made by preprocessing. Throws ConfigError if the records do not fit the input.
onnx::Ranges ranges_of_records(Net& net, const onnx::Export& exported,
                               const onnx::Preprocessing& preprocessing, const std::string& source,
                               std::uint64_t records);

}  // namespace shoal
