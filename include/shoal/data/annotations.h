// Reads the boxes of a picture from a file beside it, as VOC, COCO and SSD's scripts write them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shoal/base/error.h"

namespace shoal {

class AnnotatedDatum;

enum class AnnotationFile {
  kXml,   // VOC: annotation > object > name, difficult, bndbox
  kJson,  // one picture of COCO: {"image": {...}, "annotation": [{category_id, bbox, iscrowd}]}
  kText,  // lines "label xmin ymin xmax ymax"
};
std::optional<AnnotationFile> annotation_file_named(std::string_view name);  // xml, json, txt

struct PictureSize {
  int height = 0, width = 0;
};

// Puts the boxes of the file into `record`, as parts of the picture's size: a group for each label,
// in the order in which they come; instances count from 0 in each. xml and json may say the size;
// else it is `size`, in which text files count. `labels` gives each name its label; those of text
// files are labels already. A box that reaches beyond the picture is kept, one without width or
// height is left out: the log says so. Errors (kData) name the file: it is missing or is none of
// the kind; a name that `labels` lacks; no size.
Status read_annotations(const std::string& path, AnnotationFile kind, const PictureSize& size,
                        const std::map<std::string, int>& labels, AnnotatedDatum& record);

}  // namespace shoal
