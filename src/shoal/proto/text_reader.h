// Parses text into a message by protobuf's parser, with errors that a user understands.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <string>

namespace shoal {

using TextPlaces = google::protobuf::TextFormat::ParseInfoTree;

// Parses `text` into `message` and notes where each field began in `places`. `name` is the file in
// errors, which are all collected into one ConfigError, a line each: "name:line:column: words".
void parse_text(std::string text, const std::string& name, google::protobuf::Message& message,
                TextPlaces& places);

// "name:line" of the index-th item of a repeated field, or of a field that is not repeated (index
// -1).
std::string place_in(const TextPlaces& places, const std::string& name,
                     const google::protobuf::FieldDescriptor& field, int index);

}  // namespace shoal
