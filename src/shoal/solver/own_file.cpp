#include "shoal/solver/own_file.h"

#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"

namespace shoal {

Status OwnFile::write(const SolverParameter& param, std::int64_t iteration, int member,
                      Checkpointed& state) {
  const std::string bytes = state.own_bytes();
  if (bytes.empty()) return {};
  const auto path = [&](std::int64_t of) {
    return own_path(snapshot_stem(param.snapshot_prefix(), of), member);
  };
  TRY(write_file(path(iteration), bytes, Code::kSnapshot));
  std::erase(kept_, iteration);
  kept_.push_back(iteration);
  const auto keep = static_cast<std::size_t>(param.snapshot_keep());
  while (keep > 0 && kept_.size() > keep) {
    std::error_code error;  // it may be gone
    std::filesystem::remove(path(kept_.front()), error);
    kept_.erase(kept_.begin());
  }
  return {};
}

void read_own_file(const std::string& run_file, int member, Checkpointed& state) {
  if (state.own_bytes().empty()) return;
  const std::string stem = run_file.substr(0, run_file.size() - run_path("").size());
  const std::string path = own_path(stem, member);
  if (!file_exists(path)) {
    LOG(WARNING) << path << " does not exist on this machine: what codecs had left out of worker "
                 << member << "'s pushes when the snapshot was written is lost";
    return;
  }
  const Status taken = state.take_own_bytes(or_throw(read_file(path)));
  if (!taken.ok()) throw ConfigError(Code::kConfig, path, " is damaged: ", taken.error().message);
}

}  // namespace shoal
