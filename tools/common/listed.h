// Image lists behind the interface of record files: a line is a record whose key is the image's
// path and whose value is its label.
#pragma once

#include <memory>
#include <string>

#include "shoal/data/record.h"

namespace shoal {

inline constexpr const char* kImageList = "imagelist";

Result<std::unique_ptr<RecordSource>> open_listed(const std::string& path);
// "path label" a line; as RecordWriter, whole or not at all
Result<std::unique_ptr<RecordWriter>> create_listed(const std::string& path);
int listed_label(const RecordView& record);

}  // namespace shoal
