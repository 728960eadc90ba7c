#include "python/layer.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal::python {
namespace {

class PythonLayer;

// The params of a Python layer, self.blobs.
class LayerBlobs {
 public:
  explicit LayerBlobs(PythonLayer& layer) : layer_(&layer) {}
  void close();  // the layer is gone
  void add(const std::vector<std::int64_t>& dims);
  std::size_t size() const { return blobs_.size(); }
  std::shared_ptr<PyBlob> at(std::ptrdiff_t index) const;

 private:
  PythonLayer* layer_;
  std::vector<std::shared_ptr<PyBlob>> blobs_;
};

// Blobs that are lent to the layer's class for one call.
class LentBlobs {
 public:
  LentBlobs(Bottoms blobs, PyBlob::Resize resize) {
    for (Blob* blob : blobs) {
      show_numbers(blob->data);
      show_numbers(blob->grad);
      lent_.push_back(std::make_shared<PyBlob>(*blob, Numbers::kTensors, resize));
      blobs_.push_back(blob);
    }
  }
  ~LentBlobs() {
    for (std::size_t i = 0; i < lent_.size(); ++i) {
      take_writes(blobs_[i]->data);
      take_writes(blobs_[i]->grad);
      lent_[i]->close();
    }
  }
  LentBlobs(const LentBlobs&) = delete;
  py::object list() const { return py::cast(lent_); }

 private:
  std::vector<std::shared_ptr<PyBlob>> lent_;
  std::vector<Blob*> blobs_;
};

// bottoms and tops: any   params: those that its class adds (self.blobs.add_blob) in setup
// An object of the class python_param.layer of the module python_param.module does the work.
// Source: BVLC Caffe 1.0's Python layer. An exception of the class ends the building of the net, or
// the pass, and is raised by the call that asked for it.
class PythonLayer final : public Layer {
 public:
  explicit PythonLayer(const LayerParameter& param) : Layer(param) {
    const py::gil_scoped_acquire lock;
    guarded([&] {
      const PythonParameter& python = param.python_param();
      object_ =
          py::module_::import(python.module().c_str()).attr(python.layer().c_str())(py::none());
      blobs_ = std::make_shared<LayerBlobs>(*this);
      object_.attr("blobs") = blobs_;
      object_.attr("type") = type();
    });
  }
  ~PythonLayer() override {
    const py::gil_scoped_acquire lock;
    if (blobs_) blobs_->close();
    object_ = py::object();
  }
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = Arity::kAny, .min_tops = 0, .max_tops = Arity::kAny};
  }
  bool can_be_in_place() const override { return true; }
  bool reshapes_each_pass() const override { return true; }
  // Layers of py-faster-rcnn lead from what is learned to boxes, which have no gradient.
  bool does_without_gradients() const override { return true; }
  Replays replays() const override { return {false, false}; }

  void setup(Context&, Bottoms bottoms, Tops tops) override {
    const py::gil_scoped_acquire lock;
    guarded([&] {
      object_.attr("param_str") = param().python_param().param_str();
      object_.attr("phase") = static_cast<int>(param().phase());
    });
    in_setup_ = true;
    call("setup", bottoms, tops);
    in_setup_ = false;
  }
  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    const py::gil_scoped_acquire lock;
    call("reshape", bottoms, tops);
  }
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    const py::gil_scoped_acquire lock;
    noting(ctx, [&] { call("forward", bottoms, tops); });
  }
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const py::gil_scoped_acquire lock;
    noting(ctx, [&] {
      show_params();
      const LentBlobs above(tops, PyBlob::Resize::kLayer), below(bottoms, PyBlob::Resize::kLayer);
      guarded([&] { object_.attr("backward")(above.list(), propagate, below.list()); });
      take_param_writes();
    });
  }

  const py::object& object() const { return object_; }
  std::shared_ptr<PyBlob> add(const std::vector<std::int64_t>& dims) {
    if (!in_setup_)
      throw ConfigError(Code::kUsage, "layer '", name(), "' adds a param outside setup()");
    return std::make_shared<PyBlob>(add_constant_param(Shape(dims), 0), Numbers::kTensors,
                                    PyBlob::Resize::kLayer);
  }

 private:
  // Runs code of Python, whose exception becomes a ConfigError.
  template <class F>
  void guarded(F f) const {
    try {
      f();
    } catch (py::error_already_set& exception) {
      throw config_error(param(), keep_exception(exception));
    }
  }
  // Notes an error of f, to which the net adds the layer's place.
  template <class F>
  void noting(Context& ctx, F f) const {
    try {
      f();
    } catch (const ConfigError& error) {
      const std::string place = layer_place(param()) + ": ", words = error.what();
      ctx.fail({error.error().code, words.starts_with(place) ? words.substr(place.size()) : words});
    }
  }
  void call(const char* method, Bottoms bottoms, Tops tops) const {
    show_params();
    const LentBlobs below(bottoms, PyBlob::Resize::kLayer), above(tops, PyBlob::Resize::kCaller);
    guarded([&] { object_.attr(method)(below.list(), above.list()); });
    take_param_writes();
  }
  void show_params() const {
    for (const auto& blob : params()) {
      show_numbers(blob->data);
      show_numbers(blob->grad);
    }
  }
  void take_param_writes() const {
    for (const auto& blob : params()) {
      take_writes(blob->data);
      take_writes(blob->grad);
    }
  }

  py::object object_;
  std::shared_ptr<LayerBlobs> blobs_;
  bool in_setup_ = false;
};

void LayerBlobs::close() {
  layer_ = nullptr;
  for (const auto& blob : blobs_) blob->close();
}

void LayerBlobs::add(const std::vector<std::int64_t>& dims) {
  if (layer_ == nullptr) throw ConfigError(Code::kUsage, "the net of this layer is gone");
  blobs_.push_back(layer_->add(dims));
}

std::shared_ptr<PyBlob> LayerBlobs::at(std::ptrdiff_t index) const {
  const std::ptrdiff_t count = std::ssize(blobs_);
  if (index < -count || index >= count) throw py::index_error("blobs has no such param");
  return blobs_[static_cast<std::size_t>(index < 0 ? index + count : index)];
}

}  // namespace

std::unique_ptr<Layer> make_python_layer(const LayerParameter& param) {
  return std::make_unique<PythonLayer>(param);
}

py::object object_of(const Layer& layer) {
  const auto* const python = dynamic_cast<const PythonLayer*>(&layer);
  return python ? python->object() : py::none();
}

void bind_layer(py::module_& module) {
  py::class_<LayerBlobs, std::shared_ptr<LayerBlobs>>(module, "LayerBlobs",
                                                      "The params of a Python layer.")
      .def("add_blob", [](LayerBlobs& blobs, const py::args& dims) { blobs.add(dims_of(dims)); })
      .def("__len__", &LayerBlobs::size)
      .def("__getitem__", &LayerBlobs::at);
  set_python_layers(make_python_layer);
}

}  // namespace shoal::python
