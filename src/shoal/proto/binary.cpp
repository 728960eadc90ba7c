// Reads the binary files, and finds out which of them are HDF5: models, solver states, run states
// and means.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <climits>

#include "shoal/base/file.h"
#include "shoal/base/regular_file.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/foreign.h"
#include "shoal/proto/hdf5_model.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/proto/upgrade.h"

namespace shoal {
namespace {

using google::protobuf::Message;
namespace io = google::protobuf::io;

constexpr std::uint64_t kMostBytes = INT_MAX;  // protobuf's own limit

std::string flag_hint(FileKind kind) {
  if (kind == FileKind::kModel) return "; give it to --weights";
  if (kind == FileKind::kSolverState) return "; give it to --snapshot";
  if (kind == FileKind::kNetText) return "; give it to --model";
  if (kind == FileKind::kSolverText) return "; give it to --solver";
  if (kind == FileKind::kEmpty) return "; was a copy or a download cut short?";
  return "";
}

// Reads a model once more, as one of a fork. Returns whether it is.
bool is_forks(const std::string& path, Message& message) {
  const Result<std::string> bytes = read_file(path);
  return bytes.ok() && read_fork_model(bytes.value(), path, static_cast<NetParameter&>(message));
}

// Reads a whole file into `message`, having made sure that it is of that kind.
void read_binary(const std::string& path, FileKind wanted, Message& message) {
  const RegularFile file = or_throw(RegularFile::open(path, Code::kConfig));
  if (file.size() > kMostBytes)
    throw ConfigError(Code::kConfig, path, " holds ", file.size(),
                      " bytes; protobuf reads less than 2 GiB");
  const FileKind kind = kind_of_file(path);
  if (kind != wanted && kind != FileKind::kUnknown)
    throw ConfigError(Code::kConfig, path, " is ", to_words(kind), ", not ", to_words(wanted),
                      flag_hint(kind));
  io::FileInputStream stream(file.descriptor());
  io::CodedInputStream in(&stream);
  in.SetTotalBytesLimit(INT_MAX);  // far above protobuf's default
  const bool whole = message.ParsePartialFromCodedStream(&in) && in.ConsumedEntireMessage();
  if (!whole && !(wanted == FileKind::kModel && is_forks(path, message)))
    throw ConfigError(Code::kConfig, path, " is not ", to_words(wanted),
                      ", or is damaged: it cannot be read on from byte ", in.CurrentPosition(),
                      " of ", file.size(), "; was a copy or a download cut short?");
  if (kind == FileKind::kUnknown)
    throw ConfigError(Code::kConfig, path, " is not ", to_words(wanted));
}

}  // namespace

NetParameter read_weights(const std::string& path) {
  if (kind_of_file(path) == FileKind::kHdf5) return read_hdf5_weights(path);
  NetParameter net;
  read_binary(path, FileKind::kModel, net);
  drop_colliding_params(net);
  adopt_poseidon(net, path);
  upgrade_net(net, {path, {}, "", false});
  for (LayerParameter& layer : *net.mutable_layer()) {
    layer.clear_origin();
    for (int i = 0; i < layer.blobs_size(); ++i)
      settle_blob(*layer.mutable_blobs(i), str(path, ": ", layer_place(layer), ": blob ", i));
  }
  return net;
}

SolverState read_solver_state(const std::string& path) {
  if (kind_of_file(path) == FileKind::kHdf5) return read_hdf5_state(path);
  SolverState state;
  read_binary(path, FileKind::kSolverState, state);
  for (int i = 0; i < state.history_size(); ++i)
    settle_blob(*state.mutable_history(i), str(path, ": history ", i));
  return state;
}

RunState read_run_state(const std::string& path) {
  RunState state;
  read_binary(path, FileKind::kRunState, state);
  return state;
}

BlobProto read_blob_proto(const std::string& path) {
  BlobProto blob;
  read_binary(path, FileKind::kBlob, blob);
  settle_blob(blob, path);
  return blob;
}

std::vector<std::int64_t> blob_dims(const BlobProto& blob) {
  if (blob.has_shape()) return {blob.shape().dim().begin(), blob.shape().dim().end()};
  return {blob.num(), blob.channels(), blob.height(), blob.width()};
}

}  // namespace shoal
