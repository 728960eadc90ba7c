#include "common/data_flags.h"

#include <gflags/gflags.h>

#include <string>

#include "shoal/proto/net.pb.h"
#include "shoal/solver/recipe.h"

DEFINE_string(train_source, "",
              "what data layers read in training, instead of the solver's or the net's source");
DEFINE_string(test_source, "",
              "what data layers read in tests, instead of the solver's or the net's source");
DEFINE_int32(batch, 0, "batch_size of data layers in training, instead of the net's");

namespace shoal {
namespace {

void set_source(const char* flag, const std::string& source, NetParameter& net) {
  if (set_data_source(net, source) == 0)
    throw ConfigError(Code::kUsage, flag, ": net '", net.name(),
                      "' has no layer that reads a source");
}

}  // namespace

void merge_data_flags(parallel::JobSpec& job) {
  NetParameter& train = *job.solver.mutable_train_net_param();
  if (FLAGS_batch < 0)
    throw ConfigError(Code::kUsage, "--batch is ", FLAGS_batch, "; it must be 1 or more");
  if (FLAGS_batch > 0) set_batch_size(train, static_cast<std::uint32_t>(FLAGS_batch));
  if (!FLAGS_train_source.empty()) set_source("--train_source", FLAGS_train_source, train);
  if (!FLAGS_test_source.empty())
    for (NetParameter& net : *job.solver.mutable_test_net_param())
      set_source("--test_source", FLAGS_test_source, net);
}

}  // namespace shoal
