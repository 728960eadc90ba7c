// The mean of every pixel of a set, for transform_param's mean_file, and of every channel, for its
// mean_value.
#include <gflags/gflags.h>

#include <variant>
#include <vector>

#include "common/conversion.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/transform.h"
#include "shoal/proto/blob.pb.h"

DEFINE_string(backend, "lmdb", "lmdb, leveldb or datumfile");

namespace shoal {
namespace {

struct Sums {
  ImageSize size;
  std::vector<double> of_pixels;  // channel by channel
  std::uint64_t records = 0;
};

void add(const Pixels& pixels, Sums& sums) {
  const std::size_t channels = static_cast<std::size_t>(sums.size.channels),
                    plane = sums.of_pixels.size() / channels;
  const std::size_t step = pixels.side_by_side ? channels : 1,
                    next_channel = pixels.side_by_side ? 1 : plane;
  std::visit(
      [&](auto values) {
        for (std::size_t c = 0; c < channels; ++c)
          for (std::size_t i = 0; i < plane; ++i)
            sums.of_pixels[c * plane + i] +=
                static_cast<double>(values[c * next_channel + i * step]);
      },
      pixels.values);
  ++sums.records;
}

void add_record(const RecordView& record, const std::string& path, Sums& sums) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError(Code::kData, "the record ", record.key, " of ", path, " ", why);
  };
  Datum datum;
  if (!datum.ParseFromArray(record.value.data(), static_cast<int>(record.value.size())))
    fail("is no Datum");
  const Result<DatumPixels> pixels = pixels_of(datum, Colour::kAsStored);
  if (!pixels.ok()) fail(pixels.error().message);
  const ImageSize& size = pixels.value().pixels.size;
  if (sums.records == 0) {
    sums.size = size;
    sums.of_pixels.resize(static_cast<std::size_t>(size.count()));
  }
  if (size != sums.size)
    fail(str("is ", to_string(size), "; those before it are ", to_string(sums.size),
             size.channels != sums.size.channels
                 ? ": a mean needs one number of channels, and grey pictures stand among coloured "
                   "ones; convert them anew, all in colour or all with --gray"
                 : ": a mean needs one size, resize them"));
  add(pixels.value().pixels, sums);
}

std::string mean_blob(const Sums& sums) {
  BlobProto mean;
  mean.set_num(1);
  mean.set_channels(sums.size.channels);
  mean.set_height(sums.size.height);
  mean.set_width(sums.size.width);
  for (const double sum : sums.of_pixels)
    mean.add_data(static_cast<float>(sum / static_cast<double>(sums.records)));
  return mean.SerializeAsString();
}

void log_channels(const Sums& sums) {
  const std::size_t channels = static_cast<std::size_t>(sums.size.channels),
                    plane = sums.of_pixels.size() / channels;
  LOG(INFO) << "Number of channels: " << channels;
  for (std::size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (std::size_t i = 0; i < plane; ++i) sum += sums.of_pixels[c * plane + i];
    LOG(INFO) << "mean_value channel [" << c
              << "]: " << sum / static_cast<double>(sums.records) / static_cast<double>(plane);
  }
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 1, 3, "compute_image_mean [flags] DB [OUT] [lmdb|leveldb|datumfile]");
  const Interrupt interrupt;
  const std::string outcome = "no mean was written";
  if (words.size() > 1) or_throw(check_writable(words[1], Code::kData));
  const std::unique_ptr<RecordSource> source =
      or_throw(open_source(words.size() > 2 ? words[2] : FLAGS_backend, words[0]));
  Progress progress("compute_image_mean", "records",
                    progress_shown() ? or_throw(source->count()) : 0);
  Sums sums;
  for (;;) {
    const std::optional<RecordView> record = or_throw(source->next());
    if (!record) break;
    add_record(*record, source->path(), sums);
    interrupt.check(outcome);
    progress.update(sums.records);
  }
  LOG(INFO) << "Processed " << sums.records << " files.";
  if (words.size() > 1) {
    LOG(INFO) << "Write to " << words[1];
    or_throw(write_file(words[1], mean_blob(sums), Code::kData));
  }
  log_channels(sums);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "compute_image_mean [flags] DB [OUT] [lmdb|leveldb|datumfile]\n\n"
                         "Writes the mean of all records of DB to OUT, a BlobProto for mean_file, "
                         "and logs each channel's mean, for\n"
                         "mean_value.",
                         shoal::body);
}
