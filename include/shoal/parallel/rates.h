// The speeds of links and processors, from which the seconds of an exchange are predicted.
#pragma once

#include <vector>

namespace shoal::parallel {

struct Rates {
  double bandwidth = 0;      // bytes a second of a process's link, each way; 0: unknown
  double latency = 0;        // seconds until a message has arrived, beside its bytes
  double multiply_adds = 0;  // a second, of a product of matrices; 0: unknown, takes no time
  // Seconds to encode and decode a number, by codec that AUTO may choose; empty: they take no time.
  std::vector<double> codecs{};
};

}  // namespace shoal::parallel
