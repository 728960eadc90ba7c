// Images named in a list, to a database of Datums.
#include <gflags/gflags.h>

#include <algorithm>
#include <utility>

#include "common/conversion.h"
#include "common/list_conversion.h"
#include "common/pictures.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/data/image_list.h"

DEFINE_bool(gray, false, "store one channel instead of three");
DEFINE_bool(shuffle, false, "mix the order of the images, which otherwise is the list's");
DEFINE_int64(seed, 1,
             "seed of the shuffle and of --subsampling; the same seed makes the same database");
DEFINE_string(backend, "lmdb", "lmdb, leveldb or datumfile");
DEFINE_int32(resize_width, 0, "width to resize to; with --resize_height");
DEFINE_int32(resize_height, 0, "height to resize to; with --resize_width");
DEFINE_bool(check_size, false, "refuse images that differ in size from the first");
DEFINE_bool(encoded, false, "store the images as JPEG or PNG, not as pixels");
DEFINE_string(encode_type, "",
              "what to store encoded images as: jpg, png, ...; the files' own kind if empty. "
              "Implies --encoded");
DEFINE_double(subsampling, 1, "keep each line of the list with this probability");
DEFINE_int32(label_range, -1, "leave out images with a larger label; -1: none");
DEFINE_int32(threads, 0, "threads that decode; 0: one a core");

namespace shoal {
namespace {

PictureOptions picture_options() {
  return {.gray = FLAGS_gray,
          .height = FLAGS_resize_height,
          .width = FLAGS_resize_width,
          .encoded = FLAGS_encoded,
          .encode_type = FLAGS_encode_type};
}

ConvertedRecord convert(const std::string& path, int label) {
  Result<Picture> picture = read_picture(path, picture_options());
  if (!picture.ok()) return {{}, {}, picture.error().message};
  picture.value().datum.set_label(label);
  return {picture.value().datum.SerializeAsString(), picture.value().size, {}};
}

std::vector<ListedImage> chosen_images(const std::string& list) {
  std::vector<ListedImage> images = or_throw(read_image_list(list));
  const std::size_t listed = images.size();
  Random random(static_cast<std::uint64_t>(FLAGS_seed), stream_of("convert_imageset"));
  if (FLAGS_shuffle) shuffle(images, random);
  Random sample = random.fork("subsampling");
  std::erase_if(images, [&](const ListedImage& image) {
    const bool kept = sample.unit() < FLAGS_subsampling;
    return !kept || (FLAGS_label_range >= 0 && image.label > FLAGS_label_range);
  });
  LOG(INFO) << (FLAGS_shuffle ? str("Shuffled with seed ", FLAGS_seed, ". ") : "") << "A total of "
            << images.size() << " images"
            << (images.size() < listed ? str(" of the ", listed, " in the list.") : ".");
  if (images.empty())
    throw ConfigError(Code::kData, "--subsampling and --label_range leave none of the ", listed,
                      " images of ", list);
  return images;
}

void check_flags() {
  check_sides(picture_options());
  if (!(FLAGS_subsampling > 0 && FLAGS_subsampling <= 1))
    throw ConfigError(Code::kUsage, "--subsampling is a probability: above 0, at most 1");
  check_threads(FLAGS_threads);
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 3, 3, "convert_imageset [flags] ROOT/ LIST DB");
  check_flags();
  const std::vector<ListedImage> images = chosen_images(words[1]);
  check_root(words[0], images[0].path);
  std::vector<ListedRecord> records;
  for (const ListedImage& one : images) records.push_back({one.path, one.line});
  return convert_list(
      {.tool = "convert_imageset",
       .backend = FLAGS_backend,
       .list = words[1],
       .root = words[0],
       .path = words[2],
       .pictures = "images",
       .threads = FLAGS_threads,
       .check_size = FLAGS_check_size},
      records, [&](std::size_t i) { return convert(words[0] + images[i].path, images[i].label); });
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(
      argc, argv,
      "convert_imageset [flags] ROOT/ LIST DB\n\n"
      "Makes the database DB of the images that LIST names, one \"path label\" a line, each path "
      "put after ROOT/.\n"
      "Keys are the image's place in the (shuffled) list, eight digits, and its path: "
      "00000042_cats/7.jpg.\n"
      "Images that cannot be read are left out, listed at the end, and make the exit code 4.",
      shoal::body);
}
