// Measures one link over loopback, in clear or encrypted, and what its two ends compute for it.
#pragma once

#include <cstddef>

#include "shoal/table/table.h"

namespace shoal {

// Seconds in which all bytes arrived, and those that each end's thread computed meanwhile.
struct LinkRates {
  double wall = 0, sender = 0, receiver = 0;
};

// Sends so many rows of `row_floats` numbers from one thread to another.
LinkRates measure_link(table::Encrypt encrypt, std::size_t rows, std::size_t row_floats);

}  // namespace shoal
