// Makes the error of a peer that breaks the protocol, or belongs to another job.
#pragma once

#include <cstdlib>
#include <cstring>

#include "shoal/base/error.h"
#include "shoal/table/messages.h"

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

// Parts of the errors of lost processes. Where they matter is here beside them.
inline constexpr const char* kRefused = ": nobody listens there";
inline constexpr const char* kLeftEarly = "it left before the job was done.";
inline constexpr const char* kRemoved = " was removed from the job, which goes on without it";
inline constexpr const char* kHereIs = "Here is rank ";

// Returns whether the error of a lost process proves that it has ended: its host refuses
// connections, or it said so itself. Silence is no proof.
inline bool proves_end(const std::string& why) {
  return why.find(kRefused) != std::string::npos || why.find(kLeftEarly) != std::string::npos;
}
// Returns whether the error says that the others count this process out.
inline bool says_removed(const std::string& why) { return why.find(kRemoved) != std::string::npos; }
// Returns whether the error found a process, where it looked for another, whose rank is none of the
// `ranks` that were given.
inline bool finds_rank_beyond(const std::string& why, Rank ranks) {
  const std::size_t at = why.find(kHereIs);
  return at != std::string::npos &&
         std::strtoul(why.c_str() + at + std::strlen(kHereIs), nullptr, 10) >= ranks;
}

}  // namespace shoal::table
