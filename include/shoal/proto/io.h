// Reads and writes nets, solvers, models and solver states, in the formats of every Caffe version
// and relative that is known.
//
// Readers throw ConfigError (Code::kConfig) that names the file and, in text, line and column: a
// missing file, an unknown field with the nearest known one, a value of another type, a file of
// another kind with the flag it belongs to. What they return is up to date: V0 and V1 layers,
// `input` fields and the other old spellings are gone, and the log has a line for each kind of
// change. Writers write the whole file or leave what was there (base/file.h), and leave out
// LayerParameter.origin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace google::protobuf {
class Message;
}

namespace shoal {

class AtomicFile;
class BlobProto;
class NetParameter;
class RunState;
class SolverParameter;
class SolverState;

// Reads a net in text form. LayerParameter.origin says "path:line" of each layer.
NetParameter read_net(const std::string& path);
// Reads the same from memory; `name` stands for the path in errors and origins.
NetParameter parse_net(const std::string& text, const std::string& name);

// A solver in text form; nets inside it are brought up to date too. kComplete: an absent
// snapshot_prefix becomes the path without its ending, a snapshot_prefix that is a folder gets the
// solver's name appended.
enum class SnapshotPrefix { kComplete, kAsWritten };
SolverParameter read_solver(const std::string& path,
                            SnapshotPrefix prefix = SnapshotPrefix::kComplete);
SolverParameter parse_solver(const std::string& text, const std::string& name,
                             SnapshotPrefix prefix = SnapshotPrefix::kComplete);

// Reads a model: a binary NetParameter of BVLC, Poseidon or NVIDIA. Values of any precision end up
// in BlobProto.data (and diff), and every blob holds as many as its shape says. Or BVLC's HDF5
// file: layers that have a name and blobs alone; a blob that another layer owns, and that the file
// leaves out, has no shape and no values.
NetParameter read_weights(const std::string& path);

// Binary, or BVLC's HDF5 file.
SolverState read_solver_state(const std::string& path);
RunState read_run_state(const std::string& path);
// Reads a mean file.
BlobProto read_blob_proto(const std::string& path);

// Returns the sizes of the axes: `shape`, or the four old fields of a blob without it.
std::vector<std::int64_t> blob_dims(const BlobProto& blob);

std::string to_text(const google::protobuf::Message& message);
Status write_text(const google::protobuf::Message& message, const std::string& path,
                  Code code = Code::kConfig);
// Fails for a message of 2 GiB and more, which no reader could parse.
Status write_binary(const google::protobuf::Message& message, const std::string& path,
                    Code code = Code::kSnapshot);

// Write the same as HDF5, as BVLC Caffe lays it out; of a model the blobs alone. The caller commits
// the file, to which nothing else was written.
Status write_hdf5(const NetParameter& model, const AtomicFile& file, Code code = Code::kSnapshot);
Status write_hdf5(const SolverState& state, const AtomicFile& file, Code code = Code::kSnapshot);

// Takes LayerParameter.origin out of a message. Writers do so in a copy; a caller of theirs avoids
// the copy of a large message by calling this first.
void clear_origins(google::protobuf::Message& message);

// The kinds of files, told apart by their first bytes.
enum class FileKind {
  kEmpty,
  kNetText,
  kSolverText,
  kModel,
  kSolverState,
  kRunState,
  kBlob,
  kHdf5,
  kUnknown
};
FileKind kind_of(std::string_view head);  // 64 KiB are enough
FileKind kind_of_file(const std::string& path);
// "a solver state (.solverstate)", with its article.
std::string to_words(FileKind kind);

}  // namespace shoal
