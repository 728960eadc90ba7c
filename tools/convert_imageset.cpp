// Images named in a list, to a database of Datums.
#include <gflags/gflags.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "common/conversion.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/data/image.h"
#include "shoal/data/image_list.h"
#include "shoal/proto/blob.pb.h"

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
constexpr int kLargestSide = 1 << 16;

struct Converted {
  std::string value;  // a serialised Datum
  ImageSize size;
  std::string trouble;  // not empty: why there is no value
};

std::string ending(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  std::string end = dot == std::string::npos ? "" : path.substr(dot + 1);
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return end == "jpeg" ? "jpg" : end;
}

// A file of the wanted kind, colours and size is stored as it is, which loses nothing.
Result<std::string> encoded_bytes(const std::string& path, const Image& image, bool resized) {
  const std::string own = ending(path),
                    wanted = FLAGS_encode_type.empty() ? own : FLAGS_encode_type;
  if (wanted.empty())
    return Error{Code::kData, "has no ending that says its kind; give --encode_type"};
  if (!resized && ending("." + wanted) == own) {
    Result<std::string> bytes = read_file(path, Code::kData);
    if (!bytes.ok()) return bytes;
    const Result<Image> stored = decode_image(bytes.value(), Colour::kAsStored);
    if (stored.ok() && stored.value().size == image.size) return bytes;
  }
  return encode_image(image, wanted);
}

Converted convert(const std::string& path, int label) {
  const Colour colour = FLAGS_gray ? Colour::kGrey : Colour::kColour;
  Result<Image> image = read_image(path, colour, FLAGS_resize_height, FLAGS_resize_width);
  if (!image.ok()) return {{}, {}, image.error().message};
  Datum datum;
  datum.set_label(label);
  datum.set_channels(image.value().size.channels);
  datum.set_height(image.value().size.height);
  datum.set_width(image.value().size.width);
  if (FLAGS_encoded || !FLAGS_encode_type.empty()) {
    Result<std::string> bytes = encoded_bytes(path, image.value(), FLAGS_resize_height > 0);
    if (!bytes.ok()) return {{}, {}, str("the image ", path, " ", bytes.error().message)};
    datum.set_encoded(true);
    datum.set_data(std::move(bytes).value());
  } else {
    datum.set_data(planar(image.value()));
  }
  return {datum.SerializeAsString(), image.value().size, {}};
}

// Converts all of `images`, in their order whatever the number of threads.
std::vector<Converted> convert_all(const std::string& root, std::span<const ListedImage> images) {
  std::vector<Converted> converted(images.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> no_memory = false;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < images.size(); i = next++)
        converted[i] = convert(root + images[i].path, images[i].label);
    } catch (const std::bad_alloc&) {  // no exception may leave a thread
      no_memory = true;
    }
  };
  const unsigned threads = FLAGS_threads > 0 ? static_cast<unsigned>(FLAGS_threads)
                                             : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);
  pool.clear();  // joins
  if (no_memory) throw std::bad_alloc();
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
  if ((FLAGS_resize_width == 0) != (FLAGS_resize_height == 0))
    throw ConfigError(Code::kUsage, "--resize_width and --resize_height go together");
  for (const int side : {FLAGS_resize_width, FLAGS_resize_height})
    if (side < 0 || side > kLargestSide)
      throw ConfigError(Code::kUsage, "cannot resize to a side of ", side, " pixels");
  if (!(FLAGS_subsampling > 0 && FLAGS_subsampling <= 1))
    throw ConfigError(Code::kUsage, "--subsampling is a probability: above 0, at most 1");
  if (FLAGS_threads < 0 || FLAGS_threads > 1024)
    throw ConfigError(Code::kUsage, "--threads is from 0 to 1024");
}

// Paths are put behind ROOT as they are, as in Caffe.
void check_root(const std::string& root, const std::string& path) {
  if (!file_exists(root + path) && file_exists(root + "/" + path))
    throw ConfigError(Code::kUsage, "there is no ", root + path, ", but ", root + "/" + path,
                      ": ROOT needs a / at its end");
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
