#include "shoal/onnx/export.h"

#include <algorithm>
#include <set>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/net/graph.h"
#include "shoal/onnx/layer_export.h"

namespace shoal::onnx {
namespace {

using Shapes = std::map<const Blob*, std::vector<std::int64_t>>;

Shapes shapes_of(const Net& net) {
  Shapes shapes;
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    for (const Blob* top : net.tops(i)) shapes[top] = top->shape().dims();
  return shapes;
}

// Returns whether a layer hands its bottom on, so that its top is no value of its own.
bool hands_on(const Layer& layer, Bottoms bottoms, Tops tops) {
  if (is_inserted_split(layer.param()) || layer.type() == "Split") return true;
  const DropoutParameter& dropout = layer.param().dropout_param();
  return layer.type() == "Dropout" && bottoms[0] == tops[0] && dropout.scale_train() &&
         !dropout.sample_weights_test();
}

// Finds which sizes follow the batch: those that change when the inputs get another one.
class BatchAxes {
 public:
  explicit BatchAxes(Net& net) : net_(net), inputs_(input_blobs(net)), shapes_(shapes_of(net)) {}

  // Returns why the batch cannot be free, or "".
  std::string find() {
    if (inputs_.empty() || inputs_[0]->shape().axes() == 0) return "the net has no input";
    batch_ = inputs_[0]->shape()[0];
    std::string why = set_batch(net_, batch_ + 1);
    if (!why.empty()) return why;
    why = compare(shapes_of(net_));
    set_batch(net_, batch_);
    if (!why.empty()) follows_.clear();
    return why;
  }
  Dims dims_of(const Blob& blob) const {
    Dims dims;
    const auto found = follows_.find(&blob);
    for (int axis = 0; axis < blob.shape().axes(); ++axis) {
      const bool follows = found != follows_.end() && found->second[static_cast<std::size_t>(axis)];
      const std::int64_t size = blob.shape()[axis];
      dims.push_back(follows ? Dim{size / batch_, Dim::Kind::kBatch} : Dim{size});
    }
    return dims;
  }

 private:
  std::string compare(const Shapes& larger) {
    for (const auto& [blob, dims] : shapes_) {
      std::vector<bool>& follows = follows_[blob];
      for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        const std::int64_t size = dims[axis], other = larger.at(blob)[axis];
        follows.push_back(size != other);
        if (size == other || (size % batch_ == 0 && other == size / batch_ * (batch_ + 1)))
          continue;
        return str("axis ", axis, " of blob '", blob->name, "' is ", size, " for a batch of ",
                   batch_, " and ", other, " for one of ", batch_ + 1);
      }
    }
    return {};
  }

  Net& net_;
  std::vector<Blob*> inputs_;
  Shapes shapes_;
  std::int64_t batch_ = 1;
  std::map<const Blob*, std::vector<bool>> follows_;
};

class Exporter {
 public:
  Exporter(Net& net, const ExportOptions& options)
      : net_(net), options_(options), builder_(result_.graph) {
    result_.graph.name = net.name();
  }

  Export run() {
    refuse_unknown();
    BatchAxes axes(net_);
    if (options_.free_batch) result_.fixed_by = axes.find();
    for (int i = 0; i < layers(); ++i)
      for (const Blob* top : net_.tops(i)) dims_[top] = dims_of(axes, i, *top);
    find_last_writers();
    for (int i = 0; i < layers(); ++i) add_layer(i);
    for (const Blob* output : net_.outputs()) add_output(*output);
    return std::move(result_);
  }

 private:
  int layers() const { return static_cast<int>(net_.layers().size()); }
  Layer& layer(int i) const { return *net_.layers()[static_cast<std::size_t>(i)]; }
  bool hands_on(int i) const { return onnx::hands_on(layer(i), net_.bottoms(i), net_.tops(i)); }

  // Names all layers that cannot be exported at once.
  void refuse_unknown() const {
    std::vector<std::string> words;
    for (int i = 0; i < layers(); ++i) {
      const std::string& type = layer(i).type();
      if (type == "Input" || hands_on(i) || converter_of(type) != nullptr) continue;
      words.push_back(layer_place(layer(i).param()));
    }
    if (words.empty()) return;
    throw ConfigError(
        Code::kConfig, join(words),
        words.size() == 1 ? ": has no counterpart in ONNX" : ": have no counterpart in ONNX",
        "; docs/exporting.md lists the layers that can be exported");
  }

  Dims dims_of(const BatchAxes& axes, int i, const Blob& top) const {
    Dims dims = axes.dims_of(top);
    if (!net_.varies(i) || dims.empty()) return dims;
    // Rows of detections lie on axis 2 of 4.
    const bool detections = dims.size() == 4 && dims[0] == Dim{1} && dims[1] == Dim{1};
    dims[detections ? 2 : 0] = {0, Dim::Kind::kUnknown};
    return dims;
  }

  void find_last_writers() {
    for (int i = 0; i < layers(); ++i) {
      if (hands_on(i)) continue;
      for (const Blob* top : net_.tops(i)) {
        if (!is_input(top->name)) last_writer_[top->name] = i;
        builder_.reserve(top->name);
      }
    }
  }

  // An input keeps its blob's name, whatever layers write into that later.
  bool is_input(const std::string& blob) const {
    const auto found = last_writer_.find(blob);
    return found != last_writer_.end() && layer(found->second).type() == "Input";
  }

  void add_layer(int i) {
    LayerExport::Wiring wiring{net_.bottoms(i), net_.tops(i), {}, {}};
    for (const Blob* bottom : wiring.bottoms) wiring.in.push_back(values_.at(bottom));
    std::vector<std::string>& tops = result_.tops.emplace_back(wiring.tops.size());
    if (hands_on(i)) {
      for (const Blob* top : wiring.tops) values_[top] = wiring.in[0];
      return;
    }
    for (std::size_t t = 0; t < wiring.tops.size(); ++t) {
      const Blob& top = *wiring.tops[t];
      tops[t] = last_writer_.at(top.name) == i ? top.name
                                               : builder_.unique(top.name + "/" + layer(i).name());
    }
    wiring.out = tops;
    if (layer(i).type() == "Input") return add_inputs(wiring);
    const Tops blobs = wiring.tops;
    LayerExport x(builder_, layer(i), net_.context(), dims_, std::move(wiring));
    converter_of(layer(i).type())(x);
    for (std::size_t t = 0; t < blobs.size(); ++t) values_[blobs[t]] = tops[t];
  }

  void add_inputs(const LayerExport::Wiring& wiring) {
    for (std::size_t t = 0; t < wiring.tops.size(); ++t) {
      const Blob& top = *wiring.tops[t];
      result_.graph.inputs.push_back({wiring.out[t], dims_.at(&top)});
      values_[&top] =
          &top == image_input(net_) ? preprocessed(wiring.out[t], top.shape()) : wiring.out[t];
    }
  }
  std::string preprocessed(const std::string& input, const Shape& shape) {
    const Preprocessing& how = options_.preprocessing;
    check_preprocessing(how, shape);
    std::string value = input;
    Preprocessing done;
    const auto step = [&](const std::string& op, Constant with, Attributes attributes = {}) {
      const std::string name = builder_.unique(input + "/preprocessed");
      builder_.add(op, name, {value, builder_.constant(std::move(with))}, {name},
                   std::move(attributes));
      result_.preprocessed.emplace_back(name, done);
      value = name;
    };
    if (how.swap_channels) {
      done.swap_channels = true;
      const Constant order{
          .name = input + "/channels", .dims = {3}, .integers = {2, 1, 0}, .is_integer = true};
      step("Gather", order, {{"axis", std::int64_t{1}}});
    }
    if (!how.mean.empty()) {
      done.mean = how.mean;
      done.mean_dims = how.mean_dims;
      MeanImage mean = mean_for(how, shape);
      step("Sub", {.name = input + "/mean", .dims = mean.dims, .own = std::move(mean.numbers)});
    }
    if (how.scale != 1) {
      done.scale = how.scale;
      step("Mul", {.name = input + "/scale", .own = {how.scale}});
    }
    return value;
  }

  // An output that a layer handed on has an operation of its own.
  void add_output(const Blob& output) {
    const std::string& value = values_.at(&output);
    const bool renamed = is_input(output.name);
    result_.graph.outputs.push_back({renamed ? value : output.name, dims_.at(&output)});
    if (value != output.name && !renamed)
      builder_.add("Identity", builder_.unique(output.name + "/output"), {value}, {output.name},
                   {});
  }

  Net& net_;
  const ExportOptions& options_;
  Export result_;
  Builder builder_;
  LayerExport::DimsOf dims_;
  std::map<std::string, int> last_writer_;     // by the blob's name: the layer
  std::map<const Blob*, std::string> values_;  // what a blob holds at this point
};

// Lets the operation whose output an Identity hands on, and nothing else takes, make that one's
// output. Values that are blobs keep their names.
void drop_identities(Graph& graph, const std::set<std::string>& blobs) {
  std::map<std::string, int> uses;
  std::map<std::string, Operation*> makers;
  for (Operation& operation : graph.operations) {
    for (const std::string& input : operation.inputs) ++uses[input];
    for (const std::string& output : operation.outputs) makers[output] = &operation;
  }
  std::set<std::string> dropped;
  for (Operation& operation : graph.operations) {
    if (operation.op != "Identity") continue;
    const std::string value = operation.inputs[0];
    if (uses[value] != 1 || !makers.contains(value) || blobs.contains(value)) continue;
    Operation& maker = *makers.at(value);
    std::ranges::replace(maker.outputs, value, operation.outputs[0]);
    makers[operation.outputs[0]] = &maker;
    dropped.insert(operation.name);
  }
  std::erase_if(graph.operations,
                [&](const Operation& operation) { return dropped.contains(operation.name); });
}

}  // namespace

std::vector<Blob*> input_blobs(const Net& net) {
  std::vector<Blob*> inputs;
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    if (net.layers()[static_cast<std::size_t>(i)]->type() == "Input")
      inputs.insert(inputs.end(), net.tops(i).begin(), net.tops(i).end());
  return inputs;
}

std::string set_batch(Net& net, std::int64_t batch) {
  const std::vector<Blob*> inputs = input_blobs(net);
  std::vector<Shape> before;
  for (Blob* input : inputs) {
    before.push_back(input->shape());
    std::vector<std::int64_t> dims = input->shape().dims();
    if (dims.empty() || before[0].axes() == 0 || dims[0] != before[0][0]) continue;
    dims[0] = batch;
    input->reshape(Shape(dims));
  }
  try {
    net.reshape();
    return {};
  } catch (const ConfigError& error) {
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i]->reshape(before[i]);
    net.reshape();
    return error.what();
  }
}

Blob* image_input(const Net& net) {
  Blob* found = nullptr;
  for (Blob* input : input_blobs(net))
    if (found == nullptr || input->shape().axes() > found->shape().axes()) found = input;
  return found;
}

Export export_net(Net& net, const ExportOptions& options) {
  CHECK(!net.training()) << net.name() << " is in phase TRAIN";
  Export result = Exporter(net, options).run();
  std::set<std::string> blobs;
  for (const std::vector<std::string>& tops : result.tops) blobs.insert(tops.begin(), tops.end());
  drop_identities(result.graph, blobs);
  return result;
}

}  // namespace shoal::onnx
