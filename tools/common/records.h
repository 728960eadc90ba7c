// The records that a net reads, as far as its prototxt says.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/tensor/context.h"

namespace shoal {

class NetParameter;

// kCheap counts only where no file must be read through for it.
enum class Counting { kCheap, kWhatever };

// Returns how many records the first data layer of `net` (filtered by its state) goes through
// before it starts again; nothing if it has none that reads records, or the source cannot be read:
// the layer itself says so with a better message.
std::optional<std::uint64_t> records_of(const NetParameter& net, Counting effort);

// The records that one client of several reads in an epoch, and what they are called in the job:
// the n-th has the number first + n * step, which no other client's has.
struct OwnRecords {
  std::uint64_t count = 0, first = 0, step = 1;
};
// Returns the client's records of the first data layer of `net`, as records_of. In a source with
// parts the numbers are those of the whole source, if its manifest says round_robin, contiguous or
// ratios; without a manifest round_robin is taken for granted; in by_class the parts are numbered
// one after another. Throws ConfigError if the manifest names another number of parts than there
// are clients, or there are more clients than records.
std::optional<OwnRecords> own_records(const NetParameter& net, const Share& share);

// Makes every data layer read its source in order, from the first record, each record once.
void read_in_order(NetParameter& net);

}  // namespace shoal
