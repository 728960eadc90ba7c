#include "python/net.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "python/layer.h"
#include "shoal/layers/memory_data.h"
#include "shoal/ops/gpu.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/snapshot.h"

namespace shoal::python {
namespace {

constexpr int kMostThreads = 1024;

Context::Options options_of(const Machine& machine) {
  if (machine.threads < 1 || machine.threads > kMostThreads)
    throw ConfigError(Code::kUsage, "threads is ", machine.threads, "; it must be from 1 to ",
                      kMostThreads);
  return {.device = device_of(machine.gpu),
          .threads = machine.threads,
          .seed = machine.seed < 0 ? random_seed() : static_cast<std::uint64_t>(machine.seed)};
}

bool is_input(const Layer& layer) { return layer.type() == "Input"; }

}  // namespace

const Device* device_of(int gpu) { return gpu < 0 ? nullptr : &ops::gpu(gpu); }

PyNet::PyNet(const NetParameter& param, const Machine& machine)
    : context_(std::make_unique<Context>(options_of(machine))),
      owned_(std::make_unique<Net>(param, *context_, NetOptions{.interactive = true})),
      net_(owned_.get()),
      work_(std::make_shared<Work>()) {
  for (const std::string& name : net_->blob_names()) named_.push_back(net_->blob(name));
  net_->before_forward([this](int layer) { return call_hooks(Moment::kBeforeForward, layer); });
  net_->before_backward([this](int layer) { return call_hooks(Moment::kBeforeBackward, layer); });
  net_->after_forward([this](int layer) { return call_hooks(Moment::kAfterForward, layer); });
  net_->after_backward([this](std::span<const int> layers) {
    for (const int layer : layers)
      if (Status status = call_hooks(Moment::kAfterBackward, layer); !status.ok()) return status;
    return Status();
  });
}

PyNet::PyNet(Net& net, std::shared_ptr<const void> owner, std::shared_ptr<Work> work)
    : net_(&net), owner_(std::move(owner)), work_(std::move(work)) {
  for (const std::string& name : net_->blob_names()) named_.push_back(net_->blob(name));
}

// Calls f without the interpreter's lock. Arrays are as new before and after it.
template <class F>
auto PyNet::at_work(F f) {
  const Work::Pass pass(*work_);
  take_writes(*net_);
  const auto result = [&] {
    const py::gil_scoped_release others;
    return f();
  }();
  show_numbers(*net_);
  return or_throw(std::move(result));
}

int PyNet::checked(int layer) const {
  const auto count = std::ssize(net_->layers());
  if (layer < 0 || layer >= count)
    throw ConfigError(Code::kUsage, "layer ", layer, " of net '", net_->name(), "', which has ",
                      count, " layers, counted from 0");
  return layer;
}

float PyNet::forward(int first, int last) {
  if (checked(last) < checked(first))
    throw ConfigError(Code::kUsage, "a forward pass from layer ", first, " to ", last,
                      " has no layers");
  return at_work([&] { return net_->forward(first, last); });
}

void PyNet::backward(int first, int last) {
  if (checked(first) < checked(last))
    throw ConfigError(Code::kUsage, "a backward pass from layer ", first, " to ", last,
                      " has no layers");
  at_work([&] { return net_->backward(first, last); });
}

void PyNet::reshape() {
  at_work([&] { return net_->reshape(), Status(); });
}

void PyNet::copy_weights(const std::string& file) {
  at_work([&] { return net_->copy_weights(read_weights(file), file), Status(); });
}

void PyNet::share_weights(const PyNet& other) {
  work_->check_idle();
  if (&other == this) return;
  for (const auto& layer : net_->layers())
    for (const auto& param : layer->params()) leave_arrays(param->data);
  net_->share_weights(*other.net_);
}

void PyNet::save(const std::string& path, bool hdf5) const {
  work_->check_idle();
  or_throw(write_model(path, net_->to_proto(false),
                       hdf5 ? SnapshotFormat::kHdf5 : SnapshotFormat::kBinary));
}

void PyNet::clear_gradients() {
  at_work([&] { return net_->clear_gradients(), Status(); });
}

void PyNet::set_input_arrays(const InputArray& data, const InputArray& labels) {
  const auto numbers = [](const InputArray& array) {
    return std::span(array.data(), static_cast<std::size_t>(array.size()));
  };
  for (const auto& layer : net_->layers())
    if (auto* const memory = dynamic_cast<MemoryData*>(layer.get())) {
      work_->check_idle();
      return or_throw(memory->set_data(numbers(data), numbers(labels)));
    }
  throw ConfigError(Code::kUsage, "net '", net_->name(),
                    "' has no MemoryData layer, which takes arrays; fill the blobs of its inputs");
}

void PyNet::add_hook(Moment moment, const py::function& call) {
  if (!owned_)
    throw ConfigError(Code::kUsage,
                      "the net of a solver calls the solver's own work at its layers; make a "
                      "shoal.Net of the same file to be called at each layer");
  hooks_[moment].push_back(call);
}

Status PyNet::call_hooks(Moment moment, int layer) {
  if (Status status = check_signals(); !status.ok()) return status;
  const py::gil_scoped_acquire lock;
  const auto hooks = hooks_.find(moment);
  if (hooks == hooks_.end()) return {};
  show_numbers(*net_);
  try {
    for (const py::function& hook : hooks->second) hook(layer);
  } catch (py::error_already_set& exception) {
    return Error{Code::kUsage, keep_exception(exception)};
  }
  take_writes(*net_);
  return {};
}

std::shared_ptr<PyBlob> PyNet::wrap(Blob& blob, Numbers numbers, PyBlob::Resize resize) {
  auto wrapped = std::make_shared<PyBlob>(blob, numbers, resize);
  wrapped->keep(shared_from_this(), work_);
  return wrapped;
}

std::vector<std::shared_ptr<PyBlob>> PyNet::blobs() {
  std::vector<std::shared_ptr<PyBlob>> all;
  for (Blob* blob : named_) {
    Numbers numbers = Numbers::kTensors;
    PyBlob::Resize resize = PyBlob::Resize::kCaller;
    for (int i = 0; i < std::ssize(net_->layers()); ++i) {
      const Layer& layer = *net_->layers()[static_cast<std::size_t>(i)];
      // A layer with bottoms gives its tops their shape again.
      if (!net_->bottoms(i).empty() || layer.keeps_tops()) continue;
      for (const Blob* top : net_->tops(i)) {
        if (!blob->data.shares_with(top->data)) continue;
        resize = PyBlob::Resize::kLayer;
        if (layer.brings_memory()) numbers = Numbers::kLayers;
      }
    }
    all.push_back(wrap(*blob, numbers, resize));
  }
  return all;
}

std::vector<std::shared_ptr<PyBlob>> PyNet::params(int layer) {
  std::vector<std::shared_ptr<PyBlob>> all;
  for (const auto& param : net_->layers()[static_cast<std::size_t>(checked(layer))]->params())
    all.push_back(wrap(*param, Numbers::kTensors, PyBlob::Resize::kLayer));
  return all;
}

std::vector<int> PyNet::ids(std::span<Blob* const> blobs) const {
  std::vector<int> all;
  for (const Blob* blob : blobs) {
    const Blob* const named = net_->blob(blob->name);
    all.push_back(static_cast<int>(std::ranges::find(named_, named) - named_.begin()));
  }
  return all;
}
std::vector<int> PyNet::bottom_ids(int layer) const { return ids(net_->bottoms(checked(layer))); }
std::vector<int> PyNet::top_ids(int layer) const { return ids(net_->tops(checked(layer))); }
std::vector<int> PyNet::outputs() const { return ids(net_->outputs()); }

std::vector<int> PyNet::inputs() const {
  std::vector<int> all;
  for (int i = 0; i < std::ssize(net_->layers()); ++i) {
    if (!is_input(*net_->layers()[static_cast<std::size_t>(i)])) continue;
    const std::vector<int> tops = top_ids(i);
    all.insert(all.end(), tops.begin(), tops.end());
  }
  return all;
}

namespace {

NetParameter read_param(const std::string& net, bool is_text, int phase, int level,
                        const std::vector<std::string>& stages) {
  if (!Phase_IsValid(phase))
    throw ConfigError(Code::kUsage, "phase is ", phase, "; it must be TRAIN (0) or TEST (1)");
  NetParameter param = is_text ? parse_net(net, "net") : read_net(net);
  NetState& state = *param.mutable_state();
  state.set_phase(static_cast<Phase>(phase));
  state.set_level(level);
  for (const std::string& stage : stages) state.add_stage(stage);
  return param;
}

std::shared_ptr<PyNet> make_net(const std::string& source, bool is_text, int phase, int level,
                                const std::vector<std::string>& stages, int gpu, int threads,
                                std::int64_t seed) {
  const py::gil_scoped_release others;
  return std::make_shared<PyNet>(read_param(source, is_text, phase, level, stages),
                                 Machine{gpu, threads, seed});
}

// Calls f(layer) for each layer and returns the answers.
template <class F>
auto of_layers(const PyNet& net, F f) {
  std::vector<decltype(f(*net.net().layers()[0]))> all;
  for (const auto& layer : net.net().layers()) all.push_back(f(*layer));
  return all;
}

}  // namespace

void bind_net(py::module_& module) {
  using Moment = PyNet::Moment;
  py::class_<PyNet, std::shared_ptr<PyNet>> net(module, "Net");
  net.def(py::init(&make_net), py::arg("source"), py::arg("is_text"), py::arg("phase"),
          py::arg("level"), py::arg("stages"), py::arg("gpu"), py::arg("threads"), py::arg("seed"))
      .def_property_readonly("name", [](const PyNet& n) { return n.net().name(); })
      .def("forward", &PyNet::forward)
      .def("backward", &PyNet::backward)
      .def("reshape", &PyNet::reshape)
      .def("copy_from", &PyNet::copy_weights)
      .def("share_with", &PyNet::share_weights)
      .def("save", &PyNet::save, py::arg("path"), py::arg("hdf5"))
      .def("clear_param_diffs", &PyNet::clear_gradients)
      .def("set_input_arrays", &PyNet::set_input_arrays)
      .def("blobs", &PyNet::blobs)
      .def("params", &PyNet::params)
      .def("bottom_ids", &PyNet::bottom_ids)
      .def("top_ids", &PyNet::top_ids)
      .def("inputs", &PyNet::inputs)
      .def("outputs", &PyNet::outputs)
      .def("layer_names",
           [](const PyNet& n) { return of_layers(n, [](const Layer& l) { return l.name(); }); })
      .def("layer_types",
           [](const PyNet& n) { return of_layers(n, [](const Layer& l) { return l.type(); }); })
      .def("layer_objects", [](const PyNet& n) { return of_layers(n, object_of); })
      .def("loss_weights",
           [](const PyNet& n) {
             std::vector<float> all;
             for (const std::string& name : n.net().blob_names())
               all.push_back(n.net().loss_weight(*n.net().blob(name)));
             return all;
           })
      .def("blob_names", [](const PyNet& n) { return n.net().blob_names(); });
  const std::pair<const char*, Moment> hooks[] = {{"before_forward", Moment::kBeforeForward},
                                                  {"after_forward", Moment::kAfterForward},
                                                  {"before_backward", Moment::kBeforeBackward},
                                                  {"after_backward", Moment::kAfterBackward}};
  for (const auto& [name, moment] : hooks)
    net.def(name, [at = moment](PyNet& n, const py::function& call) { n.add_hook(at, call); });
}

}  // namespace shoal::python
