#include "shoal/solver/snapshot.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/regular_file.h"
#include "shoal/base/sha256.h"
#include "shoal/base/try.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
namespace pb = google::protobuf;

std::string name_in_folder(const std::string& path) { return fs::path(path).filename().string(); }

Result<std::string> hash_file(const std::string& path) {
  Result<RegularFile> file = RegularFile::open(path, Code::kConfig);
  TRY(file);
  Sha256 hash;
  std::vector<char> block(1 << 20);
  for (;;) {
    const Result<std::size_t> read = file.value().read(block);
    TRY(read);
    if (read.value() == 0) return hash.finish();
    hash.update({block.data(), read.value()});
  }
}

// Files that are written under temporary names and appear together.
class FileSet {
 public:
  // Adds the message's bytes, and its line in the manifest.
  Status add(const std::string& path, const pb::Message& message, Manifest& manifest) {
    const std::size_t size = message.ByteSizeLong();
    if (size > INT_MAX)
      return Error{Code::kSnapshot,
                   str(path, " would have ", size, " bytes; protobuf can hold less than 2 GiB")};
    Result<AtomicFile> file = AtomicFile::create(path, Code::kSnapshot);
    TRY(file);
    Sink sink(file.value());
    {
      pb::io::CopyingOutputStreamAdaptor stream(&sink, kBlock);
      if (!message.SerializePartialToZeroCopyStream(&stream) || !stream.Flush()) return sink.status;
    }
    TRY(file.value().flush());
    note(path, size, sink.hash.finish(), manifest);
    files_.push_back({path, std::move(file).value()});
    return {};
  }

  // Writes a model or a solver state, in HDF5 or as bytes.
  template <class Message>
  Status add(const std::string& path, SnapshotFormat format, const Message& message,
             Manifest& manifest) {
    if (format == SnapshotFormat::kBinary) return add(path, message, manifest);
    Result<AtomicFile> file = AtomicFile::create(path, Code::kSnapshot);
    TRY(file);
    TRY(write_hdf5(message, file.value()));
    TRY(file.value().flush());
    const std::string& written = file.value().temporary();
    std::error_code error;
    const std::uintmax_t size = fs::file_size(written, error);
    const Result<std::string> hash = hash_file(written);
    if (!hash.ok()) return Error{Code::kSnapshot, hash.error().message};
    note(path, size, hash.value(), manifest);
    files_.push_back({path, std::move(file).value()});
    return {};
  }

  Status add(const std::string& path, const std::string& text) {
    Result<AtomicFile> file = AtomicFile::create(path, Code::kSnapshot);
    TRY(file);
    TRY(file.value().write(text));
    TRY(file.value().flush());
    files_.push_back({path, std::move(file).value()});
    return {};
  }

  // Gives all files their names; if one cannot have its own, those that have are taken away again.
  Status commit() {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      Status status = files_[i].file.commit();
      if (status.ok()) continue;
      while (i-- > 0) std::remove(files_[i].path.c_str());
      return status;
    }
    return {};
  }

 private:
  static constexpr int kBlock = 1 << 18;  // bytes
  struct Sink final : pb::io::CopyingOutputStream {
    explicit Sink(AtomicFile& to) : file(to) {}
    bool Write(const void* bytes, int size) override {
      const std::string_view view(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
      hash.update(view);
      status = file.write(view);
      return status.ok();
    }
    AtomicFile& file;
    Sha256 hash;
    Status status;
  };
  static void note(const std::string& path, std::uintmax_t size, const std::string& hash,
                   Manifest& manifest) {
    Manifest::File* line = manifest.add_file();
    line->set_name(name_in_folder(path));
    line->set_size(static_cast<double>(size));
    line->set_sha256(hash);
  }
  struct Named {
    std::string path;
    AtomicFile file;
  };
  std::vector<Named> files_;
};

NetParameter without_origins(NetParameter model) {
  clear_origins(model);
  return model;
}

std::string to_json(const Manifest& manifest) {
  pb::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  CHECK(pb::util::MessageToJsonString(manifest, &text, options).ok());
  return text;
}

// Returns "" and the manifest, or why there is none.
std::string read_manifest(const std::string& stem, Manifest& manifest) {
  const std::string path = manifest_path(stem);
  if (!file_exists(path)) return str(path, " is missing");
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error().message;
  if (!pb::util::JsonStringToMessage(text.value(), &manifest).ok())
    return str(path, " is not the JSON of a manifest");
  if (manifest.version() != 1)
    return str(path, " is of version ", manifest.version(), ", and this program knows version 1");
  return manifest.file_size() == 0 ? str(path, " lists no files") : "";
}

std::string in_folder_of(const std::string& stem, const std::string& name) {
  return (fs::path(stem).parent_path() / name).string();
}

std::string check_files(const std::string& stem, bool contents) {
  Manifest manifest;
  if (std::string why = read_manifest(stem, manifest); !why.empty()) return why;
  for (const Manifest::File& file : manifest.file()) {
    const std::string path = in_folder_of(stem, file.name());
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) return str(path, ": ", error.message());
    if (static_cast<double>(size) != file.size())
      return str(path, " has ", size, " bytes and should have ",
                 static_cast<std::uintmax_t>(file.size()));
    if (!contents) continue;
    const Result<std::string> hash = hash_file(path);
    if (!hash.ok()) return hash.error().message;
    if (hash.value() != file.sha256())
      return str(path, " is not the file that ", manifest_path(stem),
                 " lists: its SHA-256 differs");
  }
  return "";
}

std::vector<std::string> files_of(const std::string& stem) {
  std::vector<std::string> paths = {manifest_path(stem), run_path(stem)};
  for (const SnapshotFormat format : {SnapshotFormat::kBinary, SnapshotFormat::kHdf5}) {
    paths.push_back(state_path(stem, format));
    paths.push_back(model_path(stem, format));
  }
  return paths;
}

// Gives the files of a damaged snapshot other names, where one of its name is about to be written.
// One of BVLC Caffe has no manifest and is not known to be damaged.
Status set_aside(const std::string& stem) {
  std::error_code error;
  if (!fs::is_regular_file(manifest_path(stem), error) &&
      !fs::is_regular_file(run_path(stem), error))
    return {};
  const std::string why = check_files(stem, true);
  if (why.empty()) return {};
  for (const std::string& path : files_of(stem)) {
    if (!fs::is_regular_file(path, error)) continue;
    fs::rename(path, path + ".damaged", error);
    if (error) return Error{Code::kSnapshot, str("cannot rename ", path, ": ", error.message())};
  }
  LOG(WARNING) << "The snapshot " << stem
               << " is not whole, and another is written in its place: " << why
               << ". Its files now end with .damaged";
  return {};
}

// Returns whether the snapshot was never finished: it has no manifest, and what its writer left
// has.
bool was_cut_off(const std::string& stem) {
  const fs::path manifest = manifest_path(stem);
  const std::string temporary = manifest.filename().string() + ".tmp.";
  std::error_code error;
  if (fs::exists(manifest, error)) return false;
  const fs::path folder = manifest.parent_path();
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error))
    if (entry.path().filename().string().starts_with(temporary)) return true;
  return false;
}

// Returns the iteration in "<base>_iter_N<ending>", or -1.
std::int64_t iteration_of(const std::string& name, const std::string& base,
                          const std::string& ending) {
  const std::string start = base + "_iter_";
  if (name.size() <= start.size() + ending.size() || name.rfind(start, 0) != 0) return -1;
  if (name.compare(name.size() - ending.size(), ending.size(), ending) != 0) return -1;
  const std::string digits = name.substr(start.size(), name.size() - start.size() - ending.size());
  if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

// Returns the iterations of which there is a solver state or a manifest, highest first.
std::vector<std::int64_t> iterations_on_disk(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  const std::string base = name_in_folder(prefix);
  std::vector<std::int64_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error))
    for (const char* ending : {".solverstate", ".solverstate.h5", ".manifest"})
      if (const std::int64_t n = iteration_of(entry.path().filename().string(), base, ending);
          n >= 0)
        found.push_back(n);
  std::sort(found.begin(), found.end(), std::greater<>());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

const char* ending_of(SnapshotFormat format) {
  return format == SnapshotFormat::kHdf5 ? ".h5" : "";
}

// Returns the solver state of a snapshot that is whole.
std::string state_of(const std::string& stem) {
  const std::string hdf5 = state_path(stem, SnapshotFormat::kHdf5);
  Manifest manifest;
  read_manifest(stem, manifest);
  const bool listed = std::ranges::any_of(manifest.file(), [&](const Manifest::File& file) {
    return file.name() == name_in_folder(hdf5);
  });
  return listed ? hdf5 : state_path(stem, SnapshotFormat::kBinary);
}

// Returns the iteration that <prefix>_latest names, or -1; and when that was written.
std::int64_t latest_iteration(const std::string& prefix, fs::file_time_type& written) {
  std::error_code error;
  written = fs::last_write_time(latest_path(prefix), error);
  if (error) return -1;
  const Result<std::string> text = read_file(latest_path(prefix));
  if (!text.ok()) return -1;
  return iteration_of(text.value().substr(0, text.value().find('\n')), name_in_folder(prefix), "");
}

}  // namespace

SnapshotFormat snapshot_format(const SolverParameter& param) {
  return param.snapshot_format() == SolverParameter::HDF5 ? SnapshotFormat::kHdf5
                                                          : SnapshotFormat::kBinary;
}

std::string snapshot_stem(const std::string& prefix, std::int64_t iteration) {
  return str(prefix, "_iter_", iteration);
}
std::string model_path(const std::string& stem, SnapshotFormat format) {
  return stem + ".caffemodel" + ending_of(format);
}
std::string state_path(const std::string& stem, SnapshotFormat format) {
  return stem + ".solverstate" + ending_of(format);
}
std::string run_path(const std::string& stem) { return stem + ".run"; }
std::string manifest_path(const std::string& stem) { return stem + ".manifest"; }
std::string own_path(const std::string& stem, int member) { return str(stem, ".worker", member); }
std::string latest_path(const std::string& prefix) { return prefix + "_latest"; }
std::string best_path(const std::string& prefix, SnapshotFormat format) {
  return prefix + "_best.caffemodel" + ending_of(format);
}

Status write_snapshot(const std::string& prefix, std::int64_t iteration, SnapshotFormat format,
                      const std::function<NetParameter()>& model,
                      const std::function<SolverState()>& state, const RunState& run) {
  const std::string stem = snapshot_stem(prefix, iteration);
  FileSet files;
  Manifest manifest;
  manifest.set_version(1);
  manifest.set_iteration(static_cast<std::int32_t>(iteration));
  const char* const kind = format == SnapshotFormat::kHdf5 ? "HDF5 file " : "binary proto file ";
  const std::string model_file = model_path(stem, format), state_file = state_path(stem, format);
  LOG(INFO) << "Snapshotting to " << kind << model_file;
  TRY(files.add(model_file, format, without_origins(model()), manifest));
  LOG(INFO) << "Snapshotting solver state to " << kind << state_file;
  TRY(files.add(state_file, format, state(), manifest));
  TRY(files.add(run_path(stem), run, manifest));
  TRY(files.add(manifest_path(stem), to_json(manifest)));
  TRY(files.add(latest_path(prefix), name_in_folder(stem) + "\n"));
  TRY(set_aside(stem));
  // An older snapshot of the same name is replaced, and is no longer complete from here on.
  std::remove(manifest_path(stem).c_str());
  TRY(files.commit());
  const auto other =
      format == SnapshotFormat::kHdf5 ? SnapshotFormat::kBinary : SnapshotFormat::kHdf5;
  for (const std::string& path : {state_path(stem, other), model_path(stem, other)})
    std::remove(path.c_str());
  return {};
}

Status write_model(const std::string& path, NetParameter model, SnapshotFormat format) {
  model = without_origins(std::move(model));
  if (format == SnapshotFormat::kBinary) return write_binary(model, path, Code::kSnapshot);
  Result<AtomicFile> file = AtomicFile::create(path, Code::kSnapshot);
  TRY(file);
  TRY(write_hdf5(model, file.value()));
  return file.value().commit();
}

std::string why_incomplete(const std::string& stem) { return check_files(stem, false); }
std::string why_damaged(const std::string& stem) { return check_files(stem, true); }

std::string newest_snapshot(const std::string& prefix) {
  fs::file_time_type pointed_at{};
  const std::int64_t latest = latest_iteration(prefix, pointed_at);
  const bool latest_is_good = latest >= 0 && why_damaged(snapshot_stem(prefix, latest)).empty();
  std::string damaged;
  for (const std::int64_t n : iterations_on_disk(prefix)) {
    const std::string stem = snapshot_stem(prefix, n);
    if (latest_is_good && n == latest) return state_of(stem);
    const std::string why = why_damaged(stem);
    std::error_code error;
    const bool later = !latest_is_good ||
                       (fs::last_write_time(manifest_path(stem), error) >= pointed_at && !error);
    if (why.empty() && later) return state_of(stem);
    if (!why.empty())
      LOG(WARNING) << "The snapshot " << stem << " is not whole and is skipped: " << why;
    if (!why.empty() && !was_cut_off(stem)) damaged += str("\n  ", stem, ": ", why);
  }
  if (!damaged.empty())
    throw ConfigError(Code::kConfig, "no snapshot under ", prefix,
                      " is whole, and a run from the start would write over them. Complete one (a "
                      "copy needs all four files), give the .solverstate of one of BVLC Caffe to "
                      "--snapshot, or move them away to start anew:",
                      damaged);
  return "";
}

Status remove_snapshot(const std::string& stem) {
  for (const std::string& path : files_of(stem)) {
    std::error_code error;
    fs::remove(path, error);
    if (error) return Error{Code::kSnapshot, str("cannot remove ", path, ": ", error.message())};
  }
  return {};
}

}  // namespace shoal
