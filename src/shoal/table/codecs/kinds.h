// The kinds of codecs.def, each defined in the codec's own file.
#pragma once

#include "shoal/table/codec.h"

namespace shoal::table {

#define CODEC(id, name, number)                     \
  inline constexpr CodecId name##_id = CodecId::id; \
  extern const CodecKind name##_kind;
#include "shoal/table/codecs.def"

}  // namespace shoal::table
