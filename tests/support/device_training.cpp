#include "support/device_training.h"

#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::test {
namespace {

constexpr const char* kLayers = R"(
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'bn' }
layer { name: 'relu' type: 'ReLU' bottom: 'bn' top: 'bn' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'bn' top: 'ip'
        inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'
        include { phase: TEST } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
)";

}  // namespace

SolverParameter device_solver(const std::string& folder, const std::string& more) {
  const std::string path = fresh_directory(folder) + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' weight_decay: 0.001 clip_gradients: 3 "
      "random_seed: 3 display: 5 test_iter: 2 test_interval: 6 " +
          more,
      "device");
  param.set_snapshot_prefix(path + "_model");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" + path +
          "' backend: DATUMFILE batch_size: 4 shared_file_system: true } "
          "transform_param { scale: 0.01 } }" +
          kLayers,
      "device.prototxt");
  return param;
}

std::string saved(const SolverParameter& param, int iteration) {
  const std::string files = param.snapshot_prefix() + "_iter_" + std::to_string(iteration);
  return get_file(files + ".caffemodel") + get_file(files + ".solverstate");
}

Numbers model_of(const SolverParameter& param, int iteration) {
  const NetParameter net =
      read_weights(param.snapshot_prefix() + "_iter_" + std::to_string(iteration) + ".caffemodel");
  Numbers all;
  for (const LayerParameter& layer : net.layer())
    for (const BlobProto& blob : layer.blobs())
      all.insert(all.end(), blob.data().begin(), blob.data().end());
  return all;
}

Status train_on(const Device* device, const SolverParameter& param, table::Table* table,
                const std::string& snapshot, const std::vector<double>& weights) {
  parallel::RunOptions options;
  options.device = device;
  options.threads = 2;
  options.snapshot = snapshot;
  options.weights = weights;
  const Result<Ending> ending =
      parallel::run(parallel::read_job_spec(param, "device"), options, table);
  return ending.ok() ? Status() : Status(ending.error());
}

}  // namespace shoal::test
