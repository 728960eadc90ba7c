// A set cut into parts, one for each client that will train together.
#include <gflags/gflags.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iomanip>
#include <sstream>

#include "common/conversion.h"
#include "common/interrupt.h"
#include "common/listed.h"
#include "common/tool.h"
#include "shoal/base/bytes.h"
#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/data/partition.h"
#include "shoal/data/parts.h"
#include "shoal/data/record.h"
#include "shoal/data/temporary.h"
#include "shoal/data/transform.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/parts.pb.h"
#include "shoal/report/progress.h"

DEFINE_string(backend, "",
              "format of the source: lmdb, leveldb, datumfile, imagelist or windowfile; if empty, "
              "it is recognized");
DEFINE_string(out_backend, "", "format of the parts; if empty, the source's");
DEFINE_int32(num_partitions, 2,
             "how many parts; with --weights or --data_sharding as many as these name");
DEFINE_string(mode, "",
              "round_robin, contiguous, by_class or ratios; if empty, ratios with --weights or "
              "--data_sharding, else round_robin");
DEFINE_string(weights, "", "with --mode=ratios: the parts' shares, as 2,1,1");
DEFINE_string(
    data_sharding, "",
    "with --mode=ratios: a file with a line \"begin end\" for each part, in fractions of the set");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "partition_data [flags] DB_PATH\n\n"
    "Cuts a database, an image list or a window file into DB_PATH_0, DB_PATH_1, ..., which data "
    "layers without "
    "shared_file_system read, and lists them\n"
    "in DB_PATH_parts.json. Records keep their keys, their bytes and, within a part, their order. "
    "All parts appear together or none does.\n"
    "A record of a window file is a picture with its windows.\n"
    "  round_robin  record i goes to part i mod n\n"
    "  contiguous   n blocks; the first ones have one record more where that does not come out "
    "even\n"
    "  by_class     n such blocks of the records ordered by label, so that a part holds few "
    "classes; not of a window file\n"
    "  ratios       blocks as --weights (by largest remainder) or --data_sharding say";

constexpr const char* kModes[] = {"round_robin", "contiguous", "by_class", "ratios"};
constexpr int kMostParts = 10'000;

std::string mode() {
  const bool ratios = !FLAGS_weights.empty() || !FLAGS_data_sharding.empty();
  const std::string mode = FLAGS_mode.empty() ? (ratios ? "ratios" : "round_robin") : FLAGS_mode;
  const std::vector<std::string> known(std::begin(kModes), std::end(kModes));
  if (std::ranges::find(known, mode) == known.end())
    throw ConfigError(Code::kUsage, "unknown --mode \"", mode, "\"", known_words(mode, known));
  if (ratios && mode != "ratios")
    throw ConfigError(Code::kUsage, "--mode=", mode,
                      " has no use for --weights or --data_sharding");
  if (!ratios && mode == "ratios")
    throw ConfigError(Code::kUsage, "--mode=ratios needs --weights or --data_sharding");
  if (!FLAGS_weights.empty() && !FLAGS_data_sharding.empty())
    throw ConfigError(Code::kUsage, "give --weights or --data_sharding, not both");
  return mode;
}

std::vector<double> weights() {
  std::vector<double> weights;
  for (const std::string& word : split(FLAGS_weights, ',')) {
    double weight = 0;
    const auto [end, bad] = std::from_chars(word.data(), word.data() + word.size(), weight);
    if (bad != std::errc() || end != word.data() + word.size())
      throw ConfigError(Code::kUsage, "--weights: '", word, "' is no number");
    weights.push_back(weight);
  }
  if (weights.empty()) throw ConfigError(Code::kUsage, "--weights names no share");
  return weights;
}

// If --num_partitions was given, it must agree with what else says how many parts there are.
void check_parts(std::size_t parts, const char* says) {
  if (given("num_partitions") && static_cast<std::size_t>(FLAGS_num_partitions) != parts)
    throw ConfigError(Code::kUsage, "--num_partitions is ", FLAGS_num_partitions, ", but ", says,
                      " names ", parts, " parts");
}

PartBounds bounds(std::uint64_t count) {
  if (FLAGS_num_partitions < 1 || FLAGS_num_partitions > kMostParts)
    throw ConfigError(Code::kUsage, "--num_partitions is ", FLAGS_num_partitions,
                      "; it is from 1 to ", kMostParts);
  if (!FLAGS_data_sharding.empty()) {
    const std::string text = or_throw(read_list(FLAGS_data_sharding, Code::kUsage));
    PartBounds bounds = or_throw(bounds_by_sharding(text, FLAGS_data_sharding, count));
    check_parts(bounds.size() - 1, FLAGS_data_sharding.c_str());
    return bounds;
  }
  if (FLAGS_weights.empty())
    return or_throw(bounds_by_weights(
        count, std::vector<double>(static_cast<std::size_t>(FLAGS_num_partitions), 1.0)));
  check_parts(weights().size(), "--weights");
  return or_throw(bounds_by_weights(count, weights()));
}

std::string source_backend(const std::string& path) {
  if (!FLAGS_backend.empty()) return FLAGS_backend;
  const std::string kind = looks_like(path);
  return kind.empty() ? listed_kind(path) : kind;  // which says what is wrong if it is none
}

std::unique_ptr<RecordSource> open(const std::string& backend, const std::string& path) {
  return or_throw(is_listed(backend) ? open_listed(backend, path) : open_source(backend, path));
}

int label_of(const RecordView& record, const std::string& backend, const std::string& path) {
  if (backend == kImageList) return listed_label(record);
  Datum datum;
  if (!datum.ParseFromArray(record.value.data(), static_cast<int>(record.value.size())))
    throw ConfigError(Code::kData, "the record ", record.key, " of ", path,
                      " is no Datum, and by_class needs its label");
  if (const std::string foreign = why_no_datum(datum); !foreign.empty())
    throw ConfigError(Code::kData, "the record ", record.key, " of ", path, " ", foreign,
                      "; by_class needs labels, other modes do not");
  if (!datum.has_label())
    throw ConfigError(Code::kData, "the record ", record.key, " of ", path,
                      " has no label, and by_class divides by labels; other modes do not");
  return datum.label();
}

// The parts on their way, in a folder beside the source that goes away with this object.
class Parts {
 public:
  Parts(const std::string& source, const std::string& backend, std::size_t count)
      : source_(source),
        folder_(or_throw(
            TemporaryDirectory::create(part_path(source, "parts"), WriteMode::kTruncate))) {
    refuse_existing(count);
    for (std::size_t k = 0; k < count; ++k) {
      const std::string path = working(k);
      writers_.push_back(or_throw(is_listed(backend) ? create_listed(backend, path)
                                                     : create_writer(backend, path)));
    }
    counts_.resize(count);
    sums_.resize(count);
  }

  void put(std::size_t part, const RecordView& record) {
    or_throw(writers_[part]->put(record.key, record.value));
    if (++counts_[part] % kRecordsPerCommit == 0) or_throw(writers_[part]->commit());
    for (const std::string_view field : {record.key, record.value}) {
      std::string size;
      put_le(size, static_cast<std::uint32_t>(field.size()));
      sums_[part] = crc32c(field, crc32c(size, sums_[part]));
    }
  }

  // All on the disk, still under other names.
  void flush() {
    for (auto& writer : writers_) or_throw(writer->finish());
    writers_.clear();
  }

  // Gives all parts their names, and the manifest, which is last; or none of them.
  void publish(PartsManifest manifest) {
    for (std::size_t k = 0; k < counts_.size(); ++k) {
      PartsManifest::Part& part = *manifest.add_part();
      part.set_name(final_name(k).substr(final_name(k).rfind('/') + 1));
      part.set_count(static_cast<double>(counts_[k]));
      std::ostringstream sum;
      sum << std::hex << std::setw(8) << std::setfill('0') << sums_[k];
      part.set_crc32c(sum.str());
    }
    refuse_existing(counts_.size());
    for (std::size_t k = 0; k < counts_.size(); ++k)
      if (std::rename(working(k).c_str(), final_name(k).c_str()) != 0)
        fail(k,
             str("cannot rename a finished part to ", final_name(k), ": ", system_reason(errno)));
    if (const Status written = write_parts_manifest(source_, manifest); !written.ok())
      fail(counts_.size(), written.error().message);
  }

  std::uint64_t records(std::size_t part) const { return counts_[part]; }
  std::string final_name(std::size_t part) const {
    return part_path(source_, std::to_string(part));
  }

 private:
  std::string working(std::size_t part) const { return str(folder_.working_path(), "/", part); }

  void refuse_existing(std::size_t count) const {
    std::vector<std::string> there;
    for (std::size_t k = 0; k < count; ++k)
      if (file_exists(final_name(k))) there.push_back(final_name(k));
    if (const std::string path = parts_manifest_path(source_); file_exists(path))
      there.push_back(path);
    if (there.empty()) return;
    const std::string others = there.size() == 1   ? ""
                               : there.size() == 2 ? ", as does " + there[1]
                                                   : str(", as do ", there[1], " and ",
                                                         there.size() - 2, " more files of parts");
    throw ConfigError(Code::kData, there[0], " exists already", others,
                      "; remove what is there, or give the source another name");
  }

  [[noreturn]] void fail(std::size_t renamed, const std::string& message) const {
    for (std::size_t k = 0; k < renamed; ++k)
      std::rename(final_name(k).c_str(), working(k).c_str());
    throw ConfigError(Code::kData, message, "; no part was made");
  }

  std::string source_;
  TemporaryDirectory folder_;  // before the writers, so removed after they are gone
  std::vector<std::unique_ptr<RecordWriter>> writers_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint32_t> sums_;
};

class Partitioning {
 public:
  Partitioning(const std::string& path, const std::string& mode)
      : path_(path),
        mode_(mode),
        backend_(source_backend(path)),
        out_(FLAGS_out_backend.empty() ? backend_ : FLAGS_out_backend),
        source_(open(backend_, path)),
        count_(or_throw(source_->count())) {
    if (mode_ == "by_class" && backend_ == kWindowFile)
      throw ConfigError(Code::kUsage, "--mode=by_class: a picture of the window file ", path_,
                        " has no class of its own");
    if ((is_listed(backend_) || is_listed(out_)) && backend_ != out_)
      throw ConfigError(Code::kUsage, "a source of kind ", backend_,
                        " cannot be cut into parts of kind ", out_,
                        "; convert_imageset makes a database of an image list");
  }

  void run() {
    const PartBounds blocks = bounds(count_);
    Parts parts(path_, out_, blocks.size() - 1);
    const Partition partition = decide(blocks);
    or_throw(source_->seek(0));
    walk("partition_data",
         [&](std::uint64_t i, const RecordView& record) { parts.put(partition.of(i), record); });
    parts.flush();
    interrupt_.check("no part was made");
    PartsManifest manifest;
    manifest.set_source(path_);
    manifest.set_backend(out_);
    manifest.set_mode(mode_);
    manifest.set_count(static_cast<double>(count_));
    parts.publish(std::move(manifest));
    for (std::size_t k = 0; k < partition.parts(); ++k)
      LOG(INFO) << "Wrote " << parts.records(k) << " records to " << parts.final_name(k) << " ("
                << out_ << ").";
  }

 private:
  Partition decide(const PartBounds& blocks) {
    if (mode_ == "round_robin") return Partition::round_robin(blocks.size() - 1);
    if (mode_ != "by_class") return Partition::blocks(blocks);
    std::vector<int> labels;
    walk("partition_data (labels)", [&](std::uint64_t, const RecordView& record) {
      labels.push_back(label_of(record, backend_, path_));
    });
    return Partition::by_class(blocks, labels);
  }

  template <class Visit>
  void walk(const char* work, Visit visit) {
    Progress progress(work, "records", count_);
    for (std::uint64_t i = 0; i < count_; ++i) {
      const std::optional<RecordView> record = or_throw(source_->next());
      if (!record)
        throw ConfigError(Code::kData, path_, " ends after ", i, " of its ", count_,
                          " records; no part was made");
      visit(i, *record);
      progress.update(i + 1);
      interrupt_.check("no part was made");
    }
  }

  const Interrupt interrupt_;
  std::string path_, mode_, backend_, out_;
  std::unique_ptr<RecordSource> source_;
  std::uint64_t count_;
};

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 1, 1, "partition_data [flags] DB_PATH");
  Partitioning(words[0], mode()).run();
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::body); }
