#include "common/upgrade.h"

#include "shoal/base/log.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {

InOut in_and_out(const std::vector<std::string>& words) {
  if (words.size() != 2)
    throw ConfigError(Code::kUsage, "two files are needed, IN and OUT, but there are ",
                      words.size());
  return {words[0], words[1]};
}

void upgrade_net_text(const InOut& files) {
  or_throw(write_text(read_net(files.in), files.out));
  LOG(INFO) << "Wrote " << files.out;
}

void upgrade_net_binary(const InOut& files) {
  or_throw(write_binary(read_weights(files.in), files.out, Code::kConfig));
  LOG(INFO) << "Wrote " << files.out;
}

void upgrade_solver_text(const InOut& files) {
  or_throw(write_text(read_solver(files.in, SnapshotPrefix::kAsWritten), files.out));
  LOG(INFO) << "Wrote " << files.out;
}

}  // namespace shoal
