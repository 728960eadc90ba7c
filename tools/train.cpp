// Trains a net, as `caffe train` does, alone or with others.
#include "common/signals.h"
#include "common/tool.h"
#include "common/train_flags.h"

namespace shoal {
namespace {

constexpr const char* kUsage =
    "train --solver=FILE [--weights=FILE,...] [--snapshot=FILE.solverstate|auto] [--threads=N] "
    "[--gpu=0]\n"
    "train --solver=FILE --hostfile=FILE --client_id=K   on each machine of a job; or see "
    "scripts/launch.py\n"
    "train --solver=FILE --join=HOST:PORT   to join a job that trains, with its token\n\n"
    "Trains a net. SIGTERM and SIGUSR1 write a snapshot and end with 75, for a scheduler to start "
    "again with --snapshot=auto; in a job\n"
    "SIGTERM makes one process leave, and the others go on.";

int train(const std::vector<std::string>& words) { return train_by_flags(words, {}); }

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::hold_signals();
  return shoal::run_tool(argc, argv, shoal::kUsage, shoal::train);
}
