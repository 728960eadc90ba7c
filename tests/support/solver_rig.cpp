#include "support/solver_rig.h"

#include <google/protobuf/text_format.h>

#include <limits>

#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/proto/io.h"
#include "support/data_files.h"

namespace shoal::test {

void make_digits(const std::string& path) {
  Records records;
  Random random(5, 1);
  for (int i = 0; i < 40; ++i) {
    std::string pixels(36, '\0');
    // A bright quarter of the image says the label.
    for (std::size_t p = 0; p < pixels.size(); ++p)
      pixels[p] = static_cast<char>(
          random.below(60) + (p % 6 / 3 + p / 18 * 2 == static_cast<std::size_t>(i % 4) ? 150 : 0));
    records.emplace_back("record " + std::to_string(100 + i), datum(1, 6, 6, pixels, i % 4));
  }
  or_throw(write_records("datumfile", path, records));
}

void make_floats(const std::string& path, int nan, int odd) {
  Records records;
  for (int i = 0; i < 24; ++i) {
    Datum datum;
    datum.set_channels(1), datum.set_height(1), datum.set_width(3);
    for (int p = 0; p < 3; ++p)
      datum.add_float_data(i == nan && p == 1 ? std::numeric_limits<float>::quiet_NaN()
                                              : 0.1f * static_cast<float>(i % 5 - p));
    datum.set_label(i == odd ? 7 : i % 2);
    records.emplace_back("r" + std::to_string(100 + i), datum.SerializeAsString());
  }
  or_throw(write_records("datumfile", path, records));
}

std::string small_net(const std::string& path) {
  const auto data = [&](const std::string& phase, const std::string& transform,
                        const std::string& feed) {
    return "layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: " + phase +
           " } transform_param { scale: 0.01 " + transform + " } data_param { source: '" + path +
           "' backend: DATUMFILE " + feed + " } }\n";
  };
  return "name: 'small'\n" +
         data("TRAIN", "crop_size: 4 mirror: true", "batch_size: 8 shuffle: true") +
         data("TEST", "crop_size: 4", "batch_size: 5") + R"(
    layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
      convolution_param { num_output: 3 kernel_size: 2 weight_filler { type: 'gaussian' std: 0.3 } } }
    layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm' batch_norm_param { moving_average_fraction: 0.9 } }
    layer { name: 'drop' type: 'Dropout' bottom: 'norm' top: 'drop' }
    layer { name: 'ip' type: 'InnerProduct' bottom: 'drop' top: 'ip' param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
      inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
    layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy' include { phase: TEST } }
    layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
}

SolverParameter small_solver(const std::string& path, const std::string& prefix,
                             const std::string& more) {
  SolverParameter param = parse_solver(
      "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 max_iter: 12 display: 0 "
      "snapshot_after_train: false",
      "small");
  param.set_snapshot_prefix(prefix);
  *param.mutable_net_param() = parse_net(small_net(path), "small.prototxt");
  SolverParameter changes;
  CHECK(google::protobuf::TextFormat::ParseFromString(more, &changes)) << more;
  if (changes.has_train_net_param() || changes.has_train_net() || changes.has_net() ||
      changes.has_net_param())
    param.clear_net_param();
  param.MergeFrom(changes);
  return param;
}

void share_data(NetParameter& net) {
  for (LayerParameter& layer : *net.mutable_layer())
    if (layer.has_data_param()) layer.mutable_data_param()->set_shared_file_system(true);
}

std::string put_small_solver(const std::string& folder, const std::string& name,
                             const std::string& more) {
  SolverParameter param = small_solver(folder + "/data", folder + "/" + name, more);
  share_data(*param.mutable_net_param());
  clear_origins(param);
  const std::string path = folder + "/" + name + ".prototxt";
  put_file(path, to_text(param));
  return path;
}

SolverOptions with_name(const std::string& name, int threads) {
  SolverOptions options;
  options.name = name;
  options.threads = threads;
  return options;
}

std::vector<float> all_params(const Net& net) {
  std::vector<float> numbers;
  for (const auto& layer : net.layers())
    for (const auto& param : layer->params())
      numbers.insert(numbers.end(), param->data.host().begin(), param->data.host().end());
  return numbers;
}

}  // namespace shoal::test
