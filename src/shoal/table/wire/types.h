// The properties of each type of message that are known before its fields are read.
#pragma once

#include <cstddef>

#include "shoal/table/messages.h"

namespace shoal::table::wire {

struct TypeEntry {
  MessageType type;
  const char* name;
  std::size_t least, most;  // bytes of fields
  bool payload = false;     // may follow; then `least` is `most`
  bool first = false;       // may be said by a stranger
};
// Null if there is no such type.
const TypeEntry* entry_of(MessageType type);

}  // namespace shoal::table::wire
