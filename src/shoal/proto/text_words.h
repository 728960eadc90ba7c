// Turns the complaints of protobuf's text parser into sentences for users.
#pragma once

#include <string>
#include <vector>

#include "shoal/proto/text_scan.h"

namespace shoal {

// One complaint of the parser at (line, column), both from 0, as it counts; line below 0 where it
// knows none.
struct Complaint {
  int line, column;
  std::string text;
};

// "name:line:column: LayerParameter has no field 'kernal_size'; did you mean ...". `text` is what
// the tokens were read from.
std::string to_words(const Complaint& complaint, const std::string& name, const std::string& text,
                     const std::vector<Token>& tokens, const google::protobuf::Descriptor& root);

}  // namespace shoal
