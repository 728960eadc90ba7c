// CIFAR-10's binary batches to two databases of Datums.
#include <gflags/gflags.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/conversion.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/proto/blob.pb.h"

DEFINE_string(backend, "leveldb", "leveldb, lmdb or datumfile");
DEFINE_bool(shuffle, false,
            "mix the order of the training records; CIFAR's own files are mixed already");
DEFINE_int64(seed, 1, "seed of the shuffle");

namespace shoal {
namespace {

constexpr int kSide = 32, kClasses = 10;
// A record is the label, then red, green and blue.
constexpr std::size_t kPixels = 3 * kSide * kSide, kRecord = 1 + kPixels;

std::string read_batch(const std::string& path) {
  std::string bytes = or_throw(read_file(path, Code::kData));
  if (bytes.empty() || bytes.size() % kRecord != 0)
    throw ConfigError(Code::kData, path, " is no batch of CIFAR-10, or is cut short: its ",
                      bytes.size(), " bytes are not whole records of ", kRecord);
  for (std::size_t at = 0; at < bytes.size(); at += kRecord)
    if (const int label = static_cast<unsigned char>(bytes[at]); label >= kClasses)
      throw ConfigError(Code::kData, path, ": the record at offset ", at, " has the label ", label,
                        "; CIFAR-10's are below ", kClasses);
  return bytes;
}

void write_set(const std::string& path, const std::string& backend, const std::string& bytes,
               bool shuffle) {
  const std::size_t count = bytes.size() / kRecord;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(static_cast<std::uint64_t>(FLAGS_seed), stream_of("convert_cifar"));
  for (std::size_t left = count; shuffle && left > 1; --left)
    std::swap(order[left - 1], order[random.below(left)]);
  Conversion out({.tool = "convert_cifar", .backend = backend, .path = path, .total = count});
  Datum datum;
  datum.set_channels(3);
  datum.set_height(kSide);
  datum.set_width(kSide);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = order[i] * kRecord;
    datum.set_label(static_cast<unsigned char>(bytes[at]));
    datum.set_data(bytes.substr(at + 1, kPixels));
    out.put(padded(i, 5), datum.SerializeAsString());
    out.passed(i + 1);
  }
  out.finish();
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 2, 3, "convert_cifar [flags] IN OUT [leveldb|lmdb|datumfile]");
  const std::string& in = words[0];
  const std::string backend = words.size() > 2 ? words[2] : FLAGS_backend;
  const std::string train_path = words[1] + "/cifar10_train_" + backend,
                    test_path = words[1] + "/cifar10_test_" + backend;
  for (const std::string& path : {train_path, test_path})
    if (file_exists(path))
      throw ConfigError(Code::kData, path, " exists already; remove it or choose another folder");
  std::string train;
  for (int batch = 1; batch <= 5; ++batch)
    train += read_batch(str(in, "/data_batch_", batch, ".bin"));
  const std::string test = read_batch(in + "/test_batch.bin");
  ::mkdir(words[1].c_str(), 0777);  // if it cannot be made, the writer says why
  write_set(train_path, backend, train, FLAGS_shuffle);
  write_set(test_path, backend, test, false);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "convert_cifar [flags] IN OUT [leveldb|lmdb|datumfile]\n\n"
                         "Makes OUT/cifar10_train_<backend> and OUT/cifar10_test_<backend> of "
                         "data_batch_1.bin .. data_batch_5.bin and\n"
                         "test_batch.bin in the folder IN. Keys are the record's number, five "
                         "digits; channels stay as they are stored.",
                         shoal::body);
}
