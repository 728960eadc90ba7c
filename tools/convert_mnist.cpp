// MNIST's idx files, plain or gzipped, to a database of Datums.
#include <gflags/gflags.h>
#include <zlib.h>

#include <memory>
#include <new>
#include <numeric>
#include <utility>

#include "common/conversion.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/random.h"
#include "shoal/proto/blob.pb.h"

DEFINE_string(backend, "lmdb", "lmdb, leveldb or datumfile");
DEFINE_bool(shuffle, false, "mix the order of the records; MNIST's own files are mixed already");
DEFINE_int64(seed, 1, "seed of the shuffle");

namespace shoal {
namespace {

// Files of unsigned bytes with three axes and with one begin so.
constexpr std::uint32_t kImages = 0x803, kLabels = 0x801;
constexpr std::size_t kMostBytes = std::size_t{1} << 31;

constexpr std::string_view kGzipMagic = "\x1f\x8b";

// Reads the whole content, unpacked if need be.
std::string read_unpacked(const std::string& path) {
  std::string packed = or_throw(read_file(path, Code::kData));
  if (packed.size() > kMostBytes)
    throw ConfigError(Code::kData, path, " is larger than any set of digits");
  if (!packed.starts_with(kGzipMagic)) return packed;
  constexpr int kGzip = 16;  // beside the size of the window
  z_stream stream = {};
  if (inflateInit2(&stream, kGzip + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<unsigned>(packed.size());
  std::string bytes, block(1 << 20, '\0');
  for (;;) {
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<unsigned>(block.size());
    const int code = inflate(&stream, Z_NO_FLUSH);
    bytes.append(block, 0, block.size() - stream.avail_out);
    if (bytes.size() > kMostBytes)
      throw ConfigError(Code::kData, path, " is larger than any set of digits");
    // A file may hold several packed ones in a row.
    const auto* rest = reinterpret_cast<const char*>(stream.next_in);
    if (code == Z_STREAM_END && !std::string_view(rest, stream.avail_in).starts_with(kGzipMagic))
      return bytes;
    if (code == Z_STREAM_END ? inflateReset(&stream) != Z_OK : code != Z_OK)
      throw ConfigError(Code::kData, "cannot read ", path, " past byte ", bytes.size(), ": ",
                        stream.msg ? stream.msg : "unexpected end of file");
  }
}

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4)) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

struct Idx {
  std::vector<std::uint32_t> sizes;  // of the axes
  std::string data;
};

Idx read_idx(const std::string& path, std::uint32_t magic, const char* what) {
  Idx idx;
  idx.data = read_unpacked(path);
  const std::size_t axes = magic & 0xff, head = 4 + 4 * axes;
  if (idx.data.size() < 4)
    throw ConfigError(Code::kData, path, " is cut short: ", idx.data.size(), " bytes");
  const std::uint32_t found = big_endian(idx.data);
  if (found != magic)
    throw ConfigError(Code::kData, path, " holds no ", what, ": its first four bytes are ", found,
                      ", not ", magic,
                      found == kImages || found == kLabels ? "; are the two files swapped?" : "");
  if (idx.data.size() < head)
    throw ConfigError(Code::kData, path, " is cut short: ", idx.data.size(), " bytes");
  std::uint64_t wanted = 1;
  for (std::size_t i = 0; i < axes; ++i) {
    idx.sizes.push_back(big_endian(std::string_view(idx.data).substr(4 + 4 * i)));
    if (idx.sizes.back() == 0 || idx.sizes.back() > kMostBytes / wanted)
      throw ConfigError(Code::kData, path, " says that an axis has the size ", idx.sizes.back());
    wanted *= idx.sizes.back();
  }
  idx.data.erase(0, head);
  if (idx.data.size() != wanted)
    throw ConfigError(Code::kData, path, " should hold ", wanted, " bytes after its ", head,
                      " bytes of header, and holds ", idx.data.size());
  return idx;
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 3, 3, "convert_mnist [flags] IMAGES LABELS DB");
  const Idx images = read_idx(words[0], kImages, "images"),
            labels = read_idx(words[1], kLabels, "labels");
  if (images.sizes[0] != labels.sizes[0])
    throw ConfigError(Code::kData, words[0], " holds ", images.sizes[0], " images and ", words[1],
                      " ", labels.sizes[0], " labels");
  const std::size_t count = labels.data.size(), pixels = images.data.size() / count;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(static_cast<std::uint64_t>(FLAGS_seed), stream_of("convert_mnist"));
  for (std::size_t left = count; FLAGS_shuffle && left > 1; --left)
    std::swap(order[left - 1], order[random.below(left)]);
  Conversion out(
      {.tool = "convert_mnist", .backend = FLAGS_backend, .path = words[2], .total = count});
  Datum datum;
  datum.set_channels(1);
  datum.set_height(static_cast<int>(images.sizes[1]));
  datum.set_width(static_cast<int>(images.sizes[2]));
  for (std::size_t i = 0; i < count; ++i) {
    datum.set_data(images.data.substr(order[i] * pixels, pixels));
    datum.set_label(static_cast<unsigned char>(labels.data[order[i]]));
    out.put(padded(i, 8), datum.SerializeAsString());
    out.passed(i + 1);
  }
  out.finish();
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "convert_mnist [flags] IMAGES LABELS DB\n\n"
                         "Makes the database DB of MNIST's idx files, which may be gzipped. Keys "
                         "are the record's number, eight digits.",
                         shoal::body);
}
