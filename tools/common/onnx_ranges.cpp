#include "common/onnx_ranges.h"

#include <algorithm>

#include "common/records.h"
#include "shoal/base/log.h"
#include "shoal/proto/net.pb.h"
#include "shoal/report/progress.h"

namespace shoal {
namespace {

// A net that reads records of the size of an input as they are.
NetParameter reader_of(const Blob& input, const std::string& source) {
  const Shape& shape = input.shape();
  if (shape.axes() != 4)
    throw ConfigError(Code::kConfig, "--calibrate reads images (N, C, H, W); the net's input '",
                      input.name, "' has shape ", shape.str());
  NetParameter net;
  net.set_name("calibration");
  net.mutable_state()->set_phase(TEST);
  LayerParameter& data = *net.add_layer();
  data.set_name("records");
  data.set_type("Data");
  data.add_top(input.name);
  data.mutable_data_param()->set_source(source);
  data.mutable_data_param()->set_backend(DataParameter::ANY);
  data.mutable_data_param()->set_batch_size(static_cast<std::uint32_t>(shape[0]));
  TransformationParameter& transform = *data.mutable_transform_param();
  transform.set_crop_h(static_cast<std::uint32_t>(shape[2]));
  transform.set_crop_w(static_cast<std::uint32_t>(shape[3]));
  return net;
}

void add_tops(const Net& net, const onnx::Export& exported, int layer, onnx::Ranges& ranges) {
  const std::vector<std::string>& names = exported.tops[static_cast<std::size_t>(layer)];
  const Tops tops = net.tops(layer);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty()) ranges.add(names[i], tops[i]->data.host());
}

// Puts records into the input; their ranges on the way through preprocessing count.
void put_images(const onnx::Export& exported, const onnx::Preprocessing& preprocessing,
                std::span<const float> records, Blob& input, onnx::Ranges& ranges) {
  ranges.add(input.name, records);
  std::vector<float> images;
  for (const auto& [name, done] : exported.preprocessed) {
    images.assign(records.begin(), records.end());
    onnx::preprocess(done, input.shape(), images);
    ranges.add(name, images);
  }
  std::ranges::copy(records, input.data.host_out().begin());
  onnx::preprocess(preprocessing, input.shape(), input.data.host_mut());
}

}  // namespace

onnx::Ranges ranges_of_records(Net& net, const onnx::Export& exported,
                               const onnx::Preprocessing& preprocessing, const std::string& source,
                               std::uint64_t records) {
  if (onnx::input_blobs(net).size() != 1)
    throw ConfigError(Code::kConfig, "--calibrate is for nets with one input; '", net.name(),
                      "' has ", onnx::input_blobs(net).size());
  Blob& input = *onnx::image_input(net);
  const NetParameter param = reader_of(input, source);
  Net reader(param, net.context(), {.forward_only = true});
  const Blob& images = *reader.blob(input.name);
  if (images.shape() != input.shape())
    throw ConfigError(Code::kConfig, source, ": its records make a batch of shape ",
                      images.shape().str(), "; the net's input '", input.name, "' has ",
                      input.shape().str());
  const std::uint64_t all = records_of(param, Counting::kWhatever).value_or(0),
                      wanted = records == 0 || all < records ? all : records;
  onnx::Ranges ranges;
  net.after_forward([&](int layer) {
    if (net.layers()[static_cast<std::size_t>(layer)]->type() != "Input")
      add_tops(net, exported, layer, ranges);
    return Status();
  });
  Progress progress("export_onnx", "records", wanted);
  std::uint64_t done = 0;
  for (; done < wanted; done += static_cast<std::uint64_t>(input.shape()[0])) {
    or_throw(reader.forward());
    put_images(exported, preprocessing, images.data.host(), input, ranges);
    or_throw(net.forward());
    progress.update(done);
  }
  net.after_forward(nullptr);
  LOG(INFO) << "Ranges of " << ranges.all().size() << " values over " << done << " records";
  return ranges;
}

}  // namespace shoal
