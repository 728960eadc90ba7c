// Text files of examples behind the interface of record files. A line of an image list is a record:
// its key is the image's path, its value the label. A picture of a window file with its windows is
// one: the key is the path, the value what the file says of the picture, with line ends.
#pragma once

#include <memory>
#include <string>

#include "shoal/data/record.h"

namespace shoal {

inline constexpr const char* kImageList = "imagelist";
inline constexpr const char* kWindowFile = "windowfile";

inline bool is_listed(const std::string& kind) { return kind == kImageList || kind == kWindowFile; }
// Returns kWindowFile if the file's first word is "#", else kImageList.
std::string listed_kind(const std::string& path);

// `kind` is one of the two. Errors (kData) name the file and the line.
Result<std::unique_ptr<RecordSource>> open_listed(const std::string& kind, const std::string& path);
// Creates a RecordWriter, whole or not at all.
Result<std::unique_ptr<RecordWriter>> create_listed(const std::string& kind,
                                                    const std::string& path);
int listed_label(const RecordView& record);  // of an image list

}  // namespace shoal
