#include "shoal/parallel/job/job_spec.h"

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <utility>

#include "shoal/base/log.h"
#include "shoal/proto/io.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

void clear_fields(google::protobuf::Message& message, std::initializer_list<const char*> names) {
  for (const char* name : names)
    message.GetReflection()->ClearField(&message, message.GetDescriptor()->FindFieldByName(name));
}

// Clears fields that may differ from machine to machine.
void clear_paths(NetParameter& net) {
  for (LayerParameter& layer : *net.mutable_layer()) {
    layer.clear_blobs();
    if (layer.has_transform_param()) layer.mutable_transform_param()->clear_mean_file();
    if (layer.has_data_param())
      clear_fields(*layer.mutable_data_param(),
                   {"source", "mean_file", "backend", "prefetch", "decode_threads", "in_memory"});
    if (layer.has_image_data_param())
      clear_fields(*layer.mutable_image_data_param(), {"source", "mean_file", "root_folder"});
    if (layer.has_window_data_param())
      clear_fields(*layer.mutable_window_data_param(),
                   {"source", "mean_file", "root_folder", "cache_images"});
    if (layer.has_hdf5_data_param()) layer.mutable_hdf5_data_param()->clear_source();
    if (layer.has_hdf5_output_param()) layer.mutable_hdf5_output_param()->clear_file_name();
  }
  clear_origins(net);
}

}  // namespace

JobSpec read_job_spec(const SolverParameter& solver, const std::string& name) {
  return {with_nets(solver, name), name, phases_of(solver, name)};
}

std::string configuration_of(const JobSpec& spec) {
  SolverParameter same = spec.solver;
  NetParameter train = train_net_of(spec.solver, spec.name);
  std::vector<NetParameter> tests = test_nets_of(spec.solver, spec.name);
  clear_fields(same, {"net", "train_net", "test_net", "net_param", "train_net_param",
                      "test_net_param", "snapshot_prefix", "weights", "solver_mode", "device_id",
                      "device_list", "precision", "random_seed", "debug_info", "snapshot_keep",
                      "memory_limit", "scheme", "min_workers"});
  std::int64_t begin = 0;
  for (const Phase& phase : spec.phases) {
    SchemeParameter& scheme = *same.add_scheme();
    scheme.set_type(phase.scheme.words());
    scheme.set_iterations(phase.end - std::exchange(begin, phase.end));
    CHECK(google::protobuf::TextFormat::MergeFromString(phase.own, &scheme)) << phase.own;
    if (phase.batch_size > 0) scheme.set_batch_size(phase.batch_size);
    if (!phase.search) continue;
    scheme.set_group_by(SchemeParameter::SPEED);
    scheme.set_profile_iterations(static_cast<std::int32_t>(phase.search->profile));
    scheme.set_min_group_size(static_cast<std::int32_t>(phase.search->smallest));
    if (phase.search->interval)
      scheme.set_regroup_interval(static_cast<std::int32_t>(*phase.search->interval));
  }
  clear_paths(train);
  *same.mutable_train_net_param() = std::move(train);
  for (NetParameter& test : tests) {
    clear_paths(test);
    *same.add_test_net_param() = std::move(test);
  }
  return to_text(same);
}

}  // namespace shoal::parallel
