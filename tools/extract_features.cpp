// Runs a net over its records and saves what some of its blobs hold for each of them.
#include <gflags/gflags.h>

#include <algorithm>
#include <cctype>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>

#include "common/conversion.h"
#include "common/device_flags.h"
#include "common/interrupt.h"
#include "common/job.h"
#include "common/machine.h"
#include "common/merge_features.h"
#include "common/net_flags.h"
#include "common/poseidon_flags.h"
#include "common/records.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/data/record.h"
#include "shoal/net/graph.h"
#include "shoal/net/net.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/report/progress.h"

DEFINE_string(model, "", "the net, a prototxt");
DEFINE_string(weights, "", "the models, separated by commas");
DEFINE_string(extract_feature_blob_names, "", "the blobs to save, separated by commas");
DEFINE_string(save_feature_leveldb_names, "",
              "an output for each blob, of any backend, separated by commas");
DEFINE_int32(num_mini_batches, 0,
             "how many batches; 0: until every record of the source was read once");
DEFINE_string(backend, "leveldb", "leveldb, lmdb, datumfile or text");
DEFINE_string(
    label_blob, "",
    "the blob whose values become the records' labels; default: 'label', if there is one with one "
    "number a record");
DEFINE_bool(
    merge, true,
    "one output a blob, under the name given; --nomerge writes NAME_<client>_0, a part as of "
    "Poseidon's clients and threads");
DEFINE_int32(
    client_id, 0,
    "which of several programs that share the work this one is; it writes NAME_0, NAME_1, ...");
DEFINE_int32(num_clients, 1, "how many programs share the work");
DEFINE_string(machinefile, "",
              "the machines that share the work, a client each, as scripts/launch.py names them to "
              "every process it starts");
DEFINE_string(hostfile, "", "Poseidon's spelling of --machinefile; implies --nomerge");
DEFINE_int32(num_table_threads, 0,
             "Poseidon's flag: a client writes one part, as with --nomerge, which it implies");
DEFINE_int32(
    merge_parts, 0,
    "only make each output NAME of the parts NAME_0 ... of this many clients; needs no net");
DEFINE_bool(poseidon_keys, false, "keys without leading zeros");
DEFINE_int32(threads, 0, "threads for kernels; 0: OMP_NUM_THREADS or all cores");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "extract_features --model=FILE --weights=FILE --extract_feature_blob_names=B,... "
    "--save_feature_leveldb_names=OUT,...\n"
    "extract_features WEIGHTS MODEL B,... OUT,... BATCHES leveldb|lmdb|datumfile|text [CPU]\n"
    "extract_features ... --client_id=K --num_clients=N   on each of N machines, or\n"
    "scripts/launch.py ... -- extract_features ...         which says so to each machine, as other "
    "launchers do, then\n"
    "extract_features --merge_parts=N --save_feature_leveldb_names=OUT,... --backend=...\n\n"
    "Runs the net in phase TEST over the records of its data layer, in order, and writes for each "
    "record and blob a Datum with\n"
    "float_data (1 x dim x 1) and the record's label. Keys are the record's number in ten digits. "
    "Text has a line a record: key,\n"
    "label (or -), values. BATCHES 0 reads every record once; no record is written twice (but "
    "HDF5 rows and windows are not counted). Of several clients each reads its share, as in\n"
    "training (its part of the source, or every N-th record with shared_file_system), and writes "
    "OUT_<client> with the records' numbers in\n"
    "the whole as keys; merged, they are what one client alone would have written.";

// One blob's records on their way out.
class Output {
 public:
  virtual ~Output() = default;
  virtual Status put(const std::string& key, std::optional<int> label,
                     std::span<const float> values) = 0;
  virtual Status commit() = 0;
  virtual Status finish() = 0;
};

class DatumOutput final : public Output {
 public:
  explicit DatumOutput(const std::string& path)
      : writer_(or_throw(create_writer(FLAGS_backend, path))) {}
  Status put(const std::string& key, std::optional<int> label,
             std::span<const float> values) override {
    datum_.set_channels(1);
    datum_.set_height(static_cast<int>(values.size()));
    datum_.set_width(1);
    datum_.mutable_float_data()->Clear();
    datum_.mutable_float_data()->Add(values.begin(), values.end());
    if (label) datum_.set_label(*label);
    return writer_->put(key, datum_.SerializeAsString());
  }
  Status commit() override { return writer_->commit(); }
  Status finish() override { return writer_->finish(); }

 private:
  std::unique_ptr<RecordWriter> writer_;
  Datum datum_;
};

class TextOutput final : public Output {
 public:
  explicit TextOutput(const std::string& path)
      : file_(or_throw(AtomicFile::create(path, Code::kData))) {
    if (file_exists(path)) throw ConfigError(Code::kData, path, " exists already");
  }
  Status put(const std::string& key, std::optional<int> label,
             std::span<const float> values) override {
    std::ostringstream line;
    line << std::setprecision(std::numeric_limits<float>::max_digits10) << key << ' '
         << (label ? std::to_string(*label) : "-");
    for (const float value : values) line << ' ' << value;
    line << '\n';
    return file_.write(line.str());
  }
  Status commit() override { return {}; }
  Status finish() override { return file_.commit(); }

 private:
  AtomicFile file_;
};

// BVLC's form: WEIGHTS MODEL BLOBS OUTPUTS BATCHES BACKEND [CPU|GPU] [DEVICE].
void take_words(const std::vector<std::string>& words) {
  if (words.empty()) return;
  check_words(words.size(), 6, 8, kUsage);
  FLAGS_weights = words[0];
  FLAGS_model = words[1];
  FLAGS_extract_feature_blob_names = words[2];
  FLAGS_save_feature_leveldb_names = words[3];
  FLAGS_backend = words[5];
  char* end = nullptr;
  const long batches = std::strtol(words[4].c_str(), &end, 10);
  if (words[4].empty() || *end != '\0' || batches < 0 || batches > std::numeric_limits<int>::max())
    throw ConfigError(Code::kUsage, "'", words[4], "' is not a number of batches");
  FLAGS_num_mini_batches = static_cast<int>(batches);
  if (words.size() > 6 && words[6] != "GPU" && words[6] != "CPU")
    throw ConfigError(Code::kUsage, "'", words[6], "' is neither CPU nor GPU");
  if (words.size() > 6 && words[6] == "GPU") FLAGS_gpu = words.size() > 7 ? words[7] : "0";
}

struct Feature {
  const Blob* blob = nullptr;
  std::string path;
  std::unique_ptr<Output> output;
};

std::string ending() {
  if (!FLAGS_merge) return str("_", FLAGS_client_id, "_0");
  return FLAGS_num_clients > 1 ? str("_", FLAGS_client_id) : "";
}

// Behind a Filter the i-th item of a batch is no longer the i-th record.
void check_items(const Net& net, const Blob* blob) {
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    if (net.varies(i) && std::ranges::count(net.tops(i), blob) > 0)
      throw config_error(net.layers()[static_cast<std::size_t>(i)]->param(), "blob '", blob->name,
                         "' has the items that a Filter selected, not one for each record");
}

std::vector<Feature> open_outputs(const Net& net) {
  const std::vector<std::string> blobs = split(FLAGS_extract_feature_blob_names, ','),
                                 paths = split(FLAGS_save_feature_leveldb_names, ',');
  std::vector<Feature> features;
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    Feature feature{net.blob(blobs[i]), paths[i] + ending(), nullptr};
    check_items(net, feature.blob);
    if (FLAGS_backend == "text")
      feature.output = std::make_unique<TextOutput>(feature.path);
    else
      feature.output = std::make_unique<DatumOutput>(feature.path);
    features.push_back(std::move(feature));
  }
  return features;
}

const Blob* label_blob(const Net& net) {
  if (FLAGS_label_blob.empty()) return net.blob("label");
  if (const Blob* blob = net.blob(FLAGS_label_blob)) return blob;
  throw ConfigError(Code::kConfig, FLAGS_model, ": no blob '", FLAGS_label_blob, "'",
                    did_you_mean(FLAGS_label_blob, net.blob_names()));
}

std::string key_of(std::uint64_t record) {
  return FLAGS_poseidon_keys ? std::to_string(record) : padded(record, 10);
}

class Extraction {
 public:
  Extraction(Net& net, const std::optional<OwnRecords>& own)
      : net_(net), label_(label_blob(net)), features_(open_outputs(net)) {
    if (!own) return;
    own_ = *own;
    records_ = own->count;
  }

  void run(const Interrupt& interrupt) {
    const std::uint64_t wanted = records_.value_or(0);
    Progress progress("extract_features", "records", wanted);
    for (int batch = 0; FLAGS_num_mini_batches == 0 || batch < FLAGS_num_mini_batches; ++batch) {
      if (records_ && done_ >= *records_) break;
      or_throw(net_.forward());
      save_batch();
      progress.update(done_);
      interrupt.check("nothing was written");
    }
    for (Feature& feature : features_) or_throw(feature.output->finish());
    for (const Feature& feature : features_)
      LOG(INFO) << "Extracted features of " << done_ << " records for feature blob "
                << feature.blob->name << " to " << feature.path;
  }

 private:
  void save_batch() {
    const std::uint64_t size = batch_size(), before = done_;
    const std::uint64_t use = records_ ? std::min(size, *records_ - done_) : size;
    for (Feature& feature : features_) {
      const std::span<const float> values = feature.blob->data.host();
      const std::size_t dim = values.size() / size;
      for (std::uint64_t i = 0; i < use; ++i)
        or_throw(feature.output->put(key_of(own_.first + (before + i) * own_.step), label_at(i),
                                     values.subspan(i * dim, dim)));
    }
    done_ += use;
    if (done_ / kRecordsPerCommit != before / kRecordsPerCommit)
      for (Feature& feature : features_) or_throw(feature.output->commit());
  }

  // Returns the first axis, which all features and the label must share.
  std::uint64_t batch_size() {
    std::int64_t size = 0;
    for (const Feature& feature : features_) {
      const Shape& shape = feature.blob->shape();
      if (shape.axes() == 0 || shape[0] == 0 || (size != 0 && shape[0] != size))
        throw ConfigError(Code::kConfig, "blob '", feature.blob->name, "' has shape ", shape.str(),
                          ": its first axis is not the batch's");
      size = shape[0];
    }
    if (label_ && label_->data.count() != size && FLAGS_label_blob.empty()) {
      LOG(INFO) << "Blob '" << label_->name << "' of shape " << label_->shape().str()
                << " has not one label a record: records have none";
      label_ = nullptr;
    }
    if (label_ && label_->data.count() != size)
      throw ConfigError(Code::kConfig, "label blob '", label_->name, "' has shape ",
                        label_->shape().str(), " for batches of ", size);
    return static_cast<std::uint64_t>(size);
  }

  std::optional<int> label_at(std::uint64_t i) const {
    if (!label_) return std::nullopt;
    return static_cast<int>(label_->data.host()[i]);
  }

  Net& net_;
  const Blob* label_;
  OwnRecords own_;
  std::optional<std::uint64_t> records_;  // to write, if that is known
  std::vector<Feature> features_;
  std::uint64_t done_ = 0;
};

// Finds which client this is, where a launcher knows and no flag says it.
void take_place() {
  // Poseidon's command lines name their machines so, and its clients write parts of their own.
  if ((given("hostfile") || given("num_table_threads")) && !given("merge")) FLAGS_merge = false;
  FLAGS_machinefile = one_of("machinefile", FLAGS_machinefile, "hostfile", FLAGS_hostfile);
  if (FLAGS_num_clients > 1 && !given("client_id"))
    throw ConfigError(Code::kUsage, "--num_clients is ", FLAGS_num_clients,
                      ": say with --client_id which of them this is");
  if (given("num_clients") || (given("client_id") && FLAGS_machinefile.empty())) return;
  JobFlags flags;
  flags.hostfile = FLAGS_machinefile;
  if (given("client_id")) flags.client_id = FLAGS_client_id;
  const parallel::Place place = find_place(flags);
  FLAGS_client_id = place.rank;
  FLAGS_num_clients = place.processes;
  if (place.processes > 1)
    LOG(INFO) << "Client " << place.rank << " of " << place.processes << "; known from "
              << place.source;
}

void check_clients() {
  if (FLAGS_num_clients < 1)
    throw ConfigError(Code::kUsage, "--num_clients is ", FLAGS_num_clients, "; it is at least 1");
  if (FLAGS_client_id < 0 || FLAGS_client_id >= FLAGS_num_clients)
    throw ConfigError(Code::kUsage, "--client_id is ", FLAGS_client_id, "; of ", FLAGS_num_clients,
                      " clients (--num_clients) they are from 0 to ", FLAGS_num_clients - 1);
  if (FLAGS_num_clients > 1 && given("merge") && FLAGS_merge)
    throw ConfigError(Code::kUsage, "--merge: one of ", FLAGS_num_clients,
                      " clients has only its own records; when all are through, call "
                      "extract_features --merge_parts=",
                      FLAGS_num_clients);
  if (FLAGS_num_clients > 1 && FLAGS_poseidon_keys && FLAGS_merge)
    throw ConfigError(Code::kUsage,
                      "--poseidon_keys: keys without leading zeros cannot be merged; leave it out "
                      "with several clients, or add --nomerge");
}

void check_flags() {
  need_flag(FLAGS_model, "model");
  need_flag(FLAGS_weights, "weights");
  check_clients();
  const std::size_t blobs = split(FLAGS_extract_feature_blob_names, ',').size(),
                    outputs = split(FLAGS_save_feature_leveldb_names, ',').size();
  if (blobs == 0)
    throw ConfigError(Code::kUsage, "no blob is named: --extract_feature_blob_names=NAME,...");
  if (blobs != outputs)
    throw ConfigError(Code::kUsage, blobs, " blobs are named and ", outputs,
                      " outputs; give one for each");
  std::vector<std::string> paths = split(FLAGS_save_feature_leveldb_names, ',');
  std::ranges::sort(paths);
  if (const auto twice = std::ranges::adjacent_find(paths); twice != paths.end())
    throw ConfigError(Code::kUsage, "the output ", *twice,
                      " is named twice; each blob needs one of its own");
  if (FLAGS_num_mini_batches < 0)
    throw ConfigError(Code::kUsage, "--num_mini_batches is ", FLAGS_num_mini_batches);
}

void check_backend() {
  std::vector<std::string> known = record_backends();
  known.emplace_back("text");
  std::string name = FLAGS_backend;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::ranges::find(known, name) == known.end())
    throw ConfigError(Code::kUsage, "unknown back end \"", FLAGS_backend, "\"",
                      known_words(name, known));
  FLAGS_backend = name;
}

NetOptions kept_blobs(const NetParameter& param) {
  NetOptions options{.forward_only = true};
  options.keep = split(FLAGS_extract_feature_blob_names, ',');
  const std::string label = FLAGS_label_blob.empty() ? "label" : FLAGS_label_blob;
  const NetParameter own = filter_net(param);
  for (const LayerParameter& layer : own.layer())
    for (const std::string& top : layer.top())
      if (top == label &&
          std::find(options.keep.begin(), options.keep.end(), label) == options.keep.end())
        options.keep.push_back(label);
  return options;
}

int merge_all() {
  need_flag(FLAGS_save_feature_leveldb_names, "save_feature_leveldb_names");
  const Interrupt interrupt;
  for (const std::string& name : split(FLAGS_save_feature_leveldb_names, ','))
    merge_features(FLAGS_backend, name, FLAGS_merge_parts, interrupt);
  return 0;
}

int extract(const std::vector<std::string>& words) {
  take_words(words);
  check_backend();
  if (given("merge_parts")) return merge_all();
  take_place();
  check_flags();
  report_ignored_flags();
  NetParameter param = read_net(FLAGS_model);
  set_state_of_flags("TEST", *param.mutable_state());
  read_in_order(param);
  const Share share{.client = FLAGS_client_id, .clients = FLAGS_num_clients};
  const std::optional<OwnRecords> own = own_records(param, share);
  Context::Options options = context_of_flags(threads_to_use(FLAGS_threads));
  options.share = share;
  Context context(options);
  // The net says better than a count what is wrong with a source.
  Net net(param, context, kept_blobs(param));
  if (!own && (FLAGS_num_mini_batches == 0 || share.clients > 1))
    throw ConfigError(Code::kUsage, FLAGS_model, " reads no records that could be counted",
                      share.clients > 1 ? ", so that clients cannot divide them"
                                        : ": say how many batches with --num_mini_batches");
  load_weights(FLAGS_weights, net);
  const Interrupt interrupt;  // before there is anything to clean up
  Extraction(net, own).run(interrupt);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv, shoal::kUsage, shoal::extract);
}
