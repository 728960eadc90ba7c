// Reads XML as annotation tools write it: elements with text, no schema.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

struct XmlElement {
  std::string name, text;  // `text`: its own, without blanks around it
  std::vector<XmlElement> children;

  // Returns the first child of that name, or null.
  const XmlElement* child(std::string_view of_name) const;
  // Returns the text of a chain of children, "size/width"; "" if one is missing.
  std::string text_at(std::string_view path) const;
};

// Returns the outermost element. Attributes, comments and declarations are passed over. Errors
// (kData) name the line: an element that is not closed, or closed by another name; text that is no
// XML; more than 100 elements inside each other.
Result<XmlElement> parse_xml(std::string_view text);

}  // namespace shoal
