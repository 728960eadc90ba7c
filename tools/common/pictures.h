// Pictures of files as Datums, many at a time: for the converters.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "shoal/base/error.h"
#include "shoal/data/image.h"
#include "shoal/proto/blob.pb.h"

namespace shoal {

struct PictureOptions {
  bool gray = false;
  int height = 0, width = 0;  // to resize to; 0 and 0: as it is
  // Bounds of the shorter side and of the longer one, the shape kept; 0: none.
  int min_dim = 0, max_dim = 0;
  bool encoded = false;       // a file's bytes, not pixels
  std::string encode_type{};  // "jpg", "png"; the file's own kind if empty. Implies encoded
};

struct Picture {
  Datum datum;
  ImageSize size;      // as it is stored
  ImageSize original;  // as it is in the file
};
// Errors (kData) name the file. A file of the wanted kind, colours and size is stored as it is,
// which loses nothing.
Result<Picture> read_picture(const std::string& path, const PictureOptions& options);

// Calls work(i) for each i below count, on several threads; 0: one a core. Throws std::bad_alloc if
// memory runs out.
void for_each_on(int threads, std::size_t count, const std::function<void(std::size_t)>& work);

// Throws ConfigError (kUsage) for sides that make no sense.
void check_sides(const PictureOptions& options);

// Throws ConfigError (kUsage) if there is no root + path, but root + "/" + path: paths are put
// behind ROOT as they are, as in Caffe.
void check_root(const std::string& root, const std::string& path);

}  // namespace shoal
