#include "common/data_flags.h"

#include <gflags/gflags.h>

#include <string>

#include "shoal/proto/layers.pb.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/recipe.h"

DEFINE_string(train_source, "", "what data layers read in training, instead of the net's source");
DEFINE_string(test_source, "", "likewise in tests");
DEFINE_int32(batch, 0, "batch_size of data layers in training, instead of the net's");

namespace shoal {
namespace {

// A data layer without rules for phases is in both nets; with them, some of `net` are of others and
// are left out when it is built.
template <class F>
void for_each_source(const char* flag, NetParameter& net, F f) {
  int found = 0;
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() != "Data" && layer.type() != "ImageData") continue;
    ++found;
    layer.type() == "Data" ? f(*layer.mutable_data_param()) : f(*layer.mutable_image_data_param());
  }
  if (found == 0)
    throw ConfigError(Code::kUsage, flag, ": net '", net.name(),
                      "' has no Data and no ImageData layer");
}

}  // namespace

void merge_data_flags(parallel::JobSpec& job) {
  NetParameter& train = *job.solver.mutable_train_net_param();
  if (FLAGS_batch < 0)
    throw ConfigError(Code::kUsage, "--batch is ", FLAGS_batch, "; it must be 1 or more");
  if (FLAGS_batch > 0) set_batch_size(train, static_cast<std::uint32_t>(FLAGS_batch));
  if (!FLAGS_train_source.empty())
    for_each_source("--train_source", train,
                    [](auto& data) { data.set_source(FLAGS_train_source); });
  if (!FLAGS_test_source.empty())
    for (NetParameter& net : *job.solver.mutable_test_net_param())
      for_each_source("--test_source", net, [](auto& data) { data.set_source(FLAGS_test_source); });
}

}  // namespace shoal
