#include "shoal/proto/label_map.h"

#include <set>

#include "shoal/base/error.h"
#include "shoal/base/file.h"
#include "shoal/proto/annotated.pb.h"
#include "shoal/proto/text_reader.h"

namespace shoal {

LabelMap read_label_map(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text.ok()) throw ConfigError(text.error().code, "label_map_file: ", text.error().message);
  LabelMap map;
  TextPlaces places;
  parse_text(std::move(text).value(), path, map, places);
  if (map.item_size() == 0)
    throw ConfigError(Code::kConfig, path, ": has no item; a label map lists item { name: \"...\" ",
                      "label: N }, the background's too");
  std::set<std::string> names;
  std::set<int> labels;
  for (const LabelMapItem& item : map.item()) {
    if (!item.has_name() || !item.has_label())
      throw ConfigError(Code::kConfig, path, ": an item has a name and a label; one is { ",
                        item.ShortDebugString(), " }");
    if (!names.insert(item.name()).second)
      throw ConfigError(Code::kConfig, path, ": name '", item.name(), "' is there twice");
    if (!labels.insert(item.label()).second)
      throw ConfigError(Code::kConfig, path, ": label ", item.label(), " is there twice");
  }
  return map;
}

}  // namespace shoal
