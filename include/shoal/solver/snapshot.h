// The files of a snapshot: <prefix>_iter_N.caffemodel, .solverstate, .run and .manifest, and
// <prefix>_latest, which names the newest. In HDF5 the first two end with .h5. Where codecs leave
// numbers out, each worker has <prefix>_iter_N.workerK beside them, on its own machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

class NetParameter;
class RunState;
class SolverParameter;
class SolverState;

// The format of the model and the solver state. The other files are the same in both.
enum class SnapshotFormat { kBinary, kHdf5 };
SnapshotFormat snapshot_format(const SolverParameter& param);

// Returns "<prefix>_iter_N".
std::string snapshot_stem(const std::string& prefix, std::int64_t iteration);
std::string model_path(const std::string& stem, SnapshotFormat format = SnapshotFormat::kBinary);
std::string state_path(const std::string& stem, SnapshotFormat format = SnapshotFormat::kBinary);
std::string run_path(const std::string& stem);
std::string manifest_path(const std::string& stem);
// Returns the path of the file that a member of a team has alone (solver/own_file.h).
std::string own_path(const std::string& stem, int member);
std::string latest_path(const std::string& prefix);
// Returns "<prefix>_best.caffemodel", or .h5.
std::string best_path(const std::string& prefix, SnapshotFormat format = SnapshotFormat::kBinary);

// Writes the four files and points <prefix>_latest to them. All contents are on the disk before the
// first name is; the manifest comes last. An error (kSnapshot) leaves earlier snapshots as they
// were and nothing new under any name. Model and state are made one after the other, so that there
// is one copy of that many numbers at a time. A snapshot of the same name is replaced, also one of
// the other format; the files of a damaged one get the ending .damaged first.
Status write_snapshot(const std::string& prefix, std::int64_t iteration, SnapshotFormat format,
                      const std::function<NetParameter()>& model,
                      const std::function<SolverState()>& state, const RunState& run);
// Writes a model alone, whole or not at all.
Status write_model(const std::string& path, NetParameter model,
                   SnapshotFormat format = SnapshotFormat::kBinary);

// Returns why the snapshot with this stem is not complete, or "" if it is: no manifest, or a file
// that is missing or has another size.
std::string why_incomplete(const std::string& stem);
// Returns the same, and compares every file's SHA-256 too.
std::string why_damaged(const std::string& stem);

// Returns the .solverstate or .solverstate.h5 of the newest undamaged snapshot of `prefix`, or ""
// if there is none at all, or only one whose writer was killed. A warning names a newer damaged
// one. Throws ConfigError, with what is wrong with each, where there are some and none is whole.
// The newest is the one that <prefix>_latest names, unless a snapshot with a higher iteration was
// completed after that was written.
std::string newest_snapshot(const std::string& prefix);

// Returns the iterations that each member of the team that saved had finished, its chief first; of
// a snapshot without a .run file the chief's alone.
std::vector<std::int64_t> saved_iterations(const std::string& state_file);

// Removes a snapshot's files, the manifest first, so that what an interruption leaves is not taken
// for one.
Status remove_snapshot(const std::string& stem);

}  // namespace shoal
