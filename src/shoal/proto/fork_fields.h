// Fields of forks of Caffe that the schema has not: those that are read by another name, or passed
// over since they only tune the fork's own program. text_words.cpp names the forks of those that
// are refused.
#pragma once

#include <optional>
#include <string_view>

namespace google::protobuf {
class Descriptor;
}

namespace shoal {

struct ForkReading {
  std::string_view as;     // the field that it is read as; empty: it is passed over
  std::string_view value;  // the value that goes with that name; empty: its own
  std::string_view fork, reason;
};

// Says how the field `name` with this value, as it is written, is read in `message`, which is null
// where the schema does not know it; nothing: as it stands.
std::optional<ForkReading> reading_of(const google::protobuf::Descriptor* message,
                                      std::string_view name, std::string_view value);

}  // namespace shoal
