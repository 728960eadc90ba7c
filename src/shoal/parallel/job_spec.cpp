#include "shoal/parallel/job_spec.h"

#include <google/protobuf/text_format.h>

#include <utility>

#include "shoal/base/log.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

// Fields that may differ from machine to machine.
void clear_paths(NetParameter& net) {
  for (LayerParameter& layer : *net.mutable_layer()) {
    layer.clear_blobs();
    if (layer.has_transform_param()) layer.mutable_transform_param()->clear_mean_file();
    if (layer.has_data_param()) {
      DataParameter& data = *layer.mutable_data_param();
      for (const auto clear :
           {&DataParameter::clear_source, &DataParameter::clear_mean_file,
            &DataParameter::clear_backend, &DataParameter::clear_prefetch,
            &DataParameter::clear_decode_threads, &DataParameter::clear_in_memory})
        (data.*clear)();
    }
    if (layer.has_image_data_param()) {
      ImageDataParameter& data = *layer.mutable_image_data_param();
      for (const auto clear :
           {&ImageDataParameter::clear_source, &ImageDataParameter::clear_mean_file,
            &ImageDataParameter::clear_root_folder})
        (data.*clear)();
    }
    if (layer.has_hdf5_data_param()) layer.mutable_hdf5_data_param()->clear_source();
  }
  clear_origins(net);
}

}  // namespace

JobSpec read_job_spec(const SolverParameter& solver, const std::string& name) {
  return {with_nets(solver, name), name, or_throw(phases_of(solver, name))};
}

std::string configuration_of(const JobSpec& spec) {
  SolverParameter same = spec.solver;
  NetParameter train = train_net_of(spec.solver, spec.name);
  std::vector<NetParameter> tests = test_nets_of(spec.solver, spec.name);
  for (const auto clear :
       {&SolverParameter::clear_net, &SolverParameter::clear_train_net,
        &SolverParameter::clear_test_net, &SolverParameter::clear_net_param,
        &SolverParameter::clear_train_net_param, &SolverParameter::clear_test_net_param,
        &SolverParameter::clear_snapshot_prefix, &SolverParameter::clear_weights,
        &SolverParameter::clear_solver_mode, &SolverParameter::clear_device_id,
        &SolverParameter::clear_device_list, &SolverParameter::clear_precision,
        &SolverParameter::clear_random_seed, &SolverParameter::clear_debug_info,
        &SolverParameter::clear_snapshot_keep, &SolverParameter::clear_scheme})
    (same.*clear)();
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
