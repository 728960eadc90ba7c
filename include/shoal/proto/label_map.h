// Reads label maps: the names of classes and their numbers.
#pragma once

#include <string>

namespace shoal {

class LabelMap;

// Throws ConfigError that names the file: it is missing, is no LabelMap in text, has no items, an
// item without a name or a label, or one name or label twice.
LabelMap read_label_map(const std::string& path);

}  // namespace shoal
