// Makes the error of a peer that breaks the protocol, or belongs to another job.
#pragma once

#include "shoal/base/error.h"

namespace shoal::table {

template <class... Args>
Error broken(const Args&... args) {
  return {Code::kPeer, str(args...)};
}
// Makes such errors that all begin with these words.
template <class... Start>
auto broken_with(const Start&... start) {
  return [=](const auto&... words) { return broken(start..., words...); };
}

}  // namespace shoal::table
