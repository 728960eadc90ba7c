// What a net reads, as far as its prototxt says.
#pragma once

#include <cstdint>
#include <optional>

namespace shoal {

class NetParameter;

enum class Counting { kCheap, kWhatever };   // kCheap: only where no file must be read through for it

// How many records the first data layer of `net` (filtered by its state) goes through before it starts again; nothing if it has
// none that reads records, or the source cannot be read: the layer itself says so with a better message.
std::optional<std::uint64_t> records_of(const NetParameter& net, Counting effort);

// Makes every data layer read its source in order, from the first record, each record once.
void read_in_order(NetParameter& net);

}  // namespace shoal
