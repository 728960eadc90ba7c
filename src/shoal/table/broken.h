// The error of a peer that breaks the protocol, or is none of this job.
#pragma once

#include "shoal/base/error.h"

namespace shoal::table {

template <class... Args>
Error broken(const Args&... args) {
  return {Code::kPeer, str(args...)};
}

}  // namespace shoal::table
