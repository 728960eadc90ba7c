// The kinds of items that data layers read: records of a database, images named in a list, and
// windows of pictures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/data/image_list.h"
#include "shoal/data/labelled_images.h"
#include "shoal/data/prefetch.h"
#include "shoal/data/record.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"
#include "shoal/data/window_crop.h"
#include "shoal/data/window_file.h"

namespace shoal {

class AnnotatedDataParameter;

// Records in the order of `sequence`, round and round; a set that ends inside a batch starts again
// there. Logs one warning if a batch of `batch_size` is larger than the set. With shuffling, finds
// where all records are first: hence the Result.
Result<std::unique_ptr<ItemSource>> record_items(std::unique_ptr<RecordSource> source,
                                                 const SequenceOptions& sequence,
                                                 Transform transform, int batch_size);

// The same of AnnotatedDatum: pictures with true boxes, which become those of the samples. Each is
// changed as `param`, of which `transform` was made, and the samplers say, in this order: distort,
// expand, one of the parts that the samplers find, resize, noise, crop, mirror; boxes go with it,
// and those that are left at no place end there. Random numbers are the item's own. Errors
// (kConfig): of the fields.
Result<std::unique_ptr<ItemSource>> annotated_items(std::unique_ptr<RecordSource> source,
                                                    const SequenceOptions& sequence,
                                                    Transform transform, int batch_size,
                                                    const TransformationParameter& param,
                                                    const AnnotatedDataParameter& annotated);

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

struct SegmentationItemsOptions {
  int crop_height = 0, crop_width = 0;  // 0 and 0: no crop
  bool mirror = false;
  bool pads = false;       // to the crop, at the right and below
  bool training = false;   // the crop is anywhere, else in the middle
  int ignore_label = 255;  // of the padding
};
// Pictures with a label for each pixel. Both are cropped and mirrored alike; the padding of the
// picture is the mean, which is 0 then. `transform` has neither crop nor mirror.
std::unique_ptr<ItemSource> segmentation_items(LabelledImages images,
                                               const SegmentationItemsOptions& options,
                                               const SequenceOptions& sequence,
                                               Transform transform);

struct WindowItemsOptions {
  std::string file;  // its path
  std::string root;  // put before each picture's path
  WindowCropOptions crop;
  bool mirror = false;
  float foreground = 0.25f;  // its part of a batch
  int batch_size = 1;
  bool cached = false;  // the files of all pictures are kept in memory
};
// Windows, each drawn by the item's own random numbers from all of its kind: in a batch, which
// begins at a multiple of batch_size, background comes first, then foreground x batch_size, rounded
// down, of foreground. The middle of the transform's mean file is used, which stays as it is where
// the picture is mirrored. Errors (kData): no windows of a kind that a batch has, a mean that does
// not fit, a picture that is to be cached and cannot be read.
Result<std::unique_ptr<ItemSource>> window_items(WindowFile windows,
                                                 const WindowItemsOptions& options,
                                                 const SequenceOptions& sequence,
                                                 const Transform& transform);

}  // namespace shoal
