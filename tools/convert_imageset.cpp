// Images named in a list, to a database of Datums.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>

#include "common/conversion.h"
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

constexpr std::size_t kLongestKey = 511;  // what LMDB takes

struct Converted {
  std::string value;  // a serialised Datum
  ImageSize size;
  std::string trouble;  // not empty: why there is no value
};

PictureOptions picture_options() {
  return {.gray = FLAGS_gray,
          .height = FLAGS_resize_height,
          .width = FLAGS_resize_width,
          .encoded = FLAGS_encoded,
          .encode_type = FLAGS_encode_type};
}

Converted convert(const std::string& path, int label) {
  Result<Picture> picture = read_picture(path, picture_options());
  if (!picture.ok()) return {{}, {}, picture.error().message};
  picture.value().datum.set_label(label);
  return {picture.value().datum.SerializeAsString(), picture.value().size, {}};
}

// Converts all of `images`, in their order whatever the number of threads.
std::vector<Converted> convert_all(const std::string& root, std::span<const ListedImage> images) {
  std::vector<Converted> converted(images.size());
  for_each_on(FLAGS_threads, images.size(), [&](std::size_t i) {
    converted[i] = convert(root + images[i].path, images[i].label);
  });
  return converted;
}

std::vector<ListedImage> chosen_images(const std::string& list) {
  std::vector<ListedImage> images = or_throw(read_image_list(list));
  const std::size_t listed = images.size();
  Random random(static_cast<std::uint64_t>(FLAGS_seed), stream_of("convert_imageset"));
  if (FLAGS_shuffle)
    for (std::size_t left = images.size(); left > 1; --left)
      std::swap(images[left - 1], images[random.below(left)]);
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
  if (FLAGS_threads < 0 || FLAGS_threads > 1024)
    throw ConfigError(Code::kUsage, "--threads is from 0 to 1024");
}

int report_bad(const std::vector<std::string>& bad, std::uint64_t written,
               const std::string& path) {
  if (bad.empty()) return 0;
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(kShown, bad.size()); ++i)
    std::fprintf(stderr, "%s\n", bad[i].c_str());
  if (bad.size() > kShown) std::fprintf(stderr, "... and %zu more\n", bad.size() - kShown);
  std::fprintf(
      stderr, "%s\n",
      str(bad.size(), " bad images were left out; the other ", written, " are in ", path).c_str());
  return static_cast<int>(Code::kData);
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 3, 3, "convert_imageset [flags] ROOT/ LIST DB");
  check_flags();
  const std::string &list = words[1], &path = words[2];
  const std::vector<ListedImage> images = chosen_images(list);
  check_root(words[0], images[0].path);
  Conversion out(
      {.tool = "convert_imageset", .backend = FLAGS_backend, .path = path, .total = images.size()});
  std::vector<std::string> bad;
  std::optional<ImageSize> first;
  constexpr std::size_t kAtOnce = 256;
  for (std::size_t begin = 0; begin < images.size(); begin += kAtOnce) {
    const auto some = std::span(images).subspan(begin, std::min(kAtOnce, images.size() - begin));
    const std::vector<Converted> converted = convert_all(words[0], some);
    for (std::size_t i = 0; i < some.size(); ++i) {
      std::string trouble = converted[i].trouble;
      if (trouble.empty() && FLAGS_check_size && first && *first != converted[i].size)
        trouble = str("the image ", words[0], some[i].path, " is ", to_string(converted[i].size),
                      "; the first is ", to_string(*first));
      if (!trouble.empty()) {
        bad.push_back(str(list, ":", some[i].line, ": ", trouble));
        continue;
      }
      if (!first) first = converted[i].size;
      out.put((padded(begin + i, 8) + "_" + some[i].path).substr(0, kLongestKey),
              converted[i].value);
    }
    out.passed(begin + some.size());
  }
  if (out.written() == 0) {
    for (const std::string& line : bad) std::fprintf(stderr, "%s\n", line.c_str());
    throw ConfigError(Code::kData, "none of the ", images.size(),
                      " images could be used; nothing was written to ", path);
  }
  out.finish();
  return report_bad(bad, out.written(), path);
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
