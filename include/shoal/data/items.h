// The two kinds of items that data layers read: records of a database, and images named in a list.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/data/image_list.h"
#include "shoal/data/prefetch.h"
#include "shoal/data/record.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"

namespace shoal {

// Records in the order of `sequence`, round and round; a set that ends inside a batch starts again
// there. Logs one warning if a batch of `batch_size` is larger than the set. With shuffling, finds
// where all records are first: hence the Result.
Result<std::unique_ptr<ItemSource>> record_items(std::unique_ptr<RecordSource> source,
                                                 const SequenceOptions& sequence,
                                                 Transform transform, int batch_size);

struct ImageItemsOptions {
  std::string list;  // its path
  std::string root;  // put before each image's path
  bool colour = true;
  int height = 0, width = 0;  // to resize to, or 0 and 0
  int batch_size = 1;
};
// The same for images; a bad one is named with its path and its line in the list.
std::unique_ptr<ItemSource> image_items(std::vector<ListedImage> images,
                                        const ImageItemsOptions& options,
                                        const SequenceOptions& sequence, Transform transform);

}  // namespace shoal
