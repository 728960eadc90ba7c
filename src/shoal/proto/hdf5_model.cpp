// Implements models and solver states in HDF5 files: of a model data/<layer>/<i>, and
// diff/<layer>/<i> of its gradients; of a solver state iter, current_step, learned_net and
// history/<i>.
#include "shoal/proto/hdf5_model.h"

#include <charconv>
#include <climits>
#include <map>

#include "shoal/base/file.h"
#include "shoal/proto/hdf5.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

constexpr int kMostBlobs = 1 << 20;  // of a layer or a history; more is no file of Caffe's

// Returns the number that a dataset is named by.
int number_of(const std::string& path, const std::string& name, std::string_view digits) {
  int number = -1;
  const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (bad != std::errc() || end != digits.data() + digits.size() || number < 0 ||
      number >= kMostBlobs)
    throw ConfigError(Code::kConfig, path, ": the dataset '", name,
                      "' should be named by its number, 0, 1, 2 ...");
  return number;
}

void read_blob(const Hdf5File& file, const std::string& name, BlobProto& blob) {
  std::int64_t count = 1;
  for (const std::int64_t dim : or_throw(file.dims(name))) {
    blob.mutable_shape()->add_dim(dim);
    if (dim > 0 && count > INT_MAX / dim)
      throw ConfigError(Code::kConfig, file.path(), ": the dataset '", name, "' has more than ",
                        INT_MAX, " numbers");
    count *= dim;
  }
  blob.mutable_shape();  // also of a single number
  blob.mutable_data()->Resize(static_cast<int>(count), 0);
  or_throw(file.read(name, {blob.mutable_data()->mutable_data(), static_cast<std::size_t>(count)}));
}

std::int32_t read_count(const Hdf5File& file, const std::string& name) {
  const std::int64_t value = or_throw(file.integer(name));
  if (value < 0 || value > INT_MAX)
    throw ConfigError(Code::kConfig, file.path(), ": the dataset '", name, "' is ", value);
  return static_cast<std::int32_t>(value);
}

Hdf5File open_to_read(const std::string& path) {
  return or_throw(Hdf5File::open(path, Hdf5File::Mode::kRead, Code::kConfig));
}

Result<Hdf5File> create(const AtomicFile& file, Code code) {
  if (file.temporary().empty())
    return Error{code, "HDF5 is not written to a device or a pipe: give a file's name"};
  return Hdf5File::open(file.temporary(), Hdf5File::Mode::kCreate, code);
}

template <class Numbers>
Status put(Hdf5File& file, const std::string& name, const BlobProto& blob, const Numbers& numbers) {
  return file.put(name, blob_dims(blob),
                  {numbers.data(), static_cast<std::size_t>(numbers.size())});
}

Status put_layer(Hdf5File& file, const LayerParameter& layer) {
  for (int i = 0; i < layer.blobs_size(); ++i) {
    const BlobProto& blob = layer.blobs(i);
    const std::string name = str(layer.name(), "/", i);
    if (Status status = put(file, "data/" + name, blob, blob.data()); !status.ok()) return status;
    if (blob.diff_size() == 0) continue;
    if (Status status = put(file, "diff/" + name, blob, blob.diff()); !status.ok()) return status;
  }
  return {};
}

}  // namespace

// A layer whose name has slashes is a group in groups.
NetParameter read_hdf5_weights(const std::string& path) {
  const Hdf5File file = open_to_read(path);
  if (!file.has("data"))
    throw ConfigError(Code::kConfig, path, " is an HDF5 file, but no model: it has no group 'data'",
                      file.has("history") ? "; it is a solver state: give it to --snapshot" : "");
  if (file.dims("data").ok())
    throw ConfigError(Code::kConfig, path,
                      " is an HDF5 file, but no model: its 'data' is an array, as in a file that "
                      "HDF5Data reads, and not a group of layers");
  std::map<std::string, std::map<int, std::string>> layers;
  for (const std::string& name : or_throw(file.arrays("data"))) {
    const std::size_t slash = name.rfind('/');
    if (slash == std::string::npos)
      throw ConfigError(Code::kConfig, path, ": the dataset 'data/", name,
                        "' belongs to no layer; a layer is a group, data/<layer>/<i>");
    const int number = number_of(path, "data/" + name, std::string_view(name).substr(slash + 1));
    layers[name.substr(0, slash)][number] = "data/" + name;
  }
  NetParameter net;
  for (const auto& [name, blobs] : layers) {
    LayerParameter& layer = *net.add_layer();
    layer.set_name(name);
    for (const auto& [number, dataset] : blobs) {
      while (layer.blobs_size() <= number) layer.add_blobs();
      read_blob(file, dataset, *layer.mutable_blobs(number));
    }
  }
  return net;
}

SolverState read_hdf5_state(const std::string& path) {
  const Hdf5File file = open_to_read(path);
  if (!file.has("iter"))
    throw ConfigError(Code::kConfig, path,
                      " is an HDF5 file, but no solver state: it has no dataset 'iter'",
                      file.has("data") ? "; a model is given to --weights" : "");
  SolverState state;
  state.set_iter(read_count(file, "iter"));
  if (file.has("current_step")) state.set_current_step(read_count(file, "current_step"));
  if (file.has("learned_net")) state.set_learned_net(or_throw(file.text("learned_net")));
  std::map<int, std::string> history;
  for (const std::string& name : or_throw(file.arrays("history")))
    history[number_of(path, "history/" + name, name)] = "history/" + name;
  for (const auto& [number, name] : history) {
    if (number != state.history_size())
      throw ConfigError(Code::kConfig, path, ": the dataset 'history/", state.history_size(),
                        "' is missing, and '", name, "' is there; the file is damaged");
    read_blob(file, name, *state.add_history());
  }
  return state;
}

// A layer is a group, whose arrays are 0, 1 ...; HDF5 leaves empty parts of a path out, and ".".
std::string why_no_hdf5_group(const std::string& name, std::span<const std::string> all) {
  const std::string rule =
      str("an HDF5 model has a group for each layer with params, but the name '", name, "' ");
  const auto part_at = [&](std::size_t begin) {
    return std::string_view(name).substr(begin, name.find('/', begin) - begin);
  };
  for (std::size_t begin = 0; begin <= name.size(); begin += part_at(begin).size() + 1)
    if (part_at(begin).empty() || part_at(begin) == ".") return rule + "cannot name a group";
  for (const std::string& other : all) {
    if (!name.starts_with(other + "/")) continue;
    const std::string_view part = part_at(other.size() + 1);
    if (part.find_first_not_of("0123456789") == std::string_view::npos)
      return str(rule, "is the array ", part, " of layer '", other, "'");
  }
  return "";
}

Status write_hdf5(const NetParameter& model, const AtomicFile& to, Code code) {
  Result<Hdf5File> file = create(to, code);
  if (!file.ok()) return file.error();
  for (const LayerParameter& layer : model.layer())
    if (Status status = put_layer(file.value(), layer); !status.ok()) return status;
  return file.value().close();
}

Status write_hdf5(const SolverState& state, const AtomicFile& to, Code code) {
  Result<Hdf5File> created = create(to, code);
  if (!created.ok()) return created.error();
  Hdf5File& file = created.value();
  Status status = file.put_integer("iter", state.iter());
  if (status.ok()) status = file.put_text("learned_net", state.learned_net());
  if (status.ok()) status = file.put_integer("current_step", state.current_step());
  for (int i = 0; status.ok() && i < state.history_size(); ++i)
    status = put(file, str("history/", i), state.history(i), state.history(i).data());
  return status.ok() ? file.close() : status;
}

}  // namespace shoal
