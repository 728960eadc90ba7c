#include "python/blob.h"

#include <pybind11/stl.h>

namespace shoal::python {

void Work::check_idle() const {
  if (thread_ != 0 && thread_ != PyThread_get_thread_ident())
    throw ConfigError(Code::kUsage, "the net computes on another thread; wait until that is done");
}

Work::Pass::Pass(Work& work) : work_(work) {
  if (work.thread_ != 0)
    throw ConfigError(Code::kUsage,
                      "the net computes already; a pass cannot be begun within another one");
  work.thread_ = PyThread_get_thread_ident();
}

Blob& PyBlob::blob() const {
  if (blob_ == nullptr)
    throw ConfigError(Code::kUsage,
                      "this blob was lent to a Python layer for one call, which is over");
  if (work_) work_->check_idle();
  return *blob_;
}

py::tuple PyBlob::shape() const { return py::tuple(py::cast(blob().shape().dims())); }

std::int64_t PyBlob::size(int axis) const {
  const Shape& shape = blob().shape();
  if (shape.axes() > 4)
    throw ConfigError(Code::kUsage, "blob '", blob().name, "' has ", shape.axes(),
                      " axes; num, channels, height and width are those of four, shape has all");
  return axis < shape.axes() ? shape[axis] : 1;
}

void PyBlob::reshape(const std::vector<std::int64_t>& dims) const {
  Blob& blob = this->blob();
  const Shape shape(dims);
  if (shape == blob.shape()) return;
  if (resize_ == Resize::kLayer)
    throw ConfigError(Code::kUsage, "blob '", blob.name, "' has the shape ", blob.shape().str(),
                      ", which its layer decides; it cannot be made ", shape.str());
  leave_arrays(blob.data);
  leave_arrays(blob.grad);
  blob.reshape(shape);
}

std::vector<std::int64_t> dims_of(const py::args& args) {
  if (args.size() == 1 && py::isinstance<py::sequence>(args[0]))
    return args[0].cast<std::vector<std::int64_t>>();
  return args.cast<std::vector<std::int64_t>>();
}

void bind_blob(py::module_& module) {
  py::class_<PyBlob, std::shared_ptr<PyBlob>>(module, "Blob",
                                              "Numbers of a net and their gradients.")
      .def_property_readonly("data", &PyBlob::data, "The numbers, as an array that looks at them.")
      .def_property_readonly("diff", &PyBlob::diff,
                             "Their gradients, as an array that looks at them.")
      .def_property_readonly("shape", &PyBlob::shape)
      .def_property_readonly("count", [](const PyBlob& b) { return b.blob().data.count(); })
      .def_property_readonly("name", [](const PyBlob& b) { return b.blob().name; })
      .def_property_readonly("num", [](const PyBlob& b) { return b.size(0); })
      .def_property_readonly("channels", [](const PyBlob& b) { return b.size(1); })
      .def_property_readonly("height", [](const PyBlob& b) { return b.size(2); })
      .def_property_readonly("width", [](const PyBlob& b) { return b.size(3); })
      .def(
          "reshape", [](const PyBlob& b, const py::args& dims) { b.reshape(dims_of(dims)); },
          "Gives the blob another shape; arrays that look at it can only be read from then on.")
      .def("__repr__", [](const PyBlob& b) {
        return str("<Blob '", b.blob().name, "' ", b.blob().shape().str(), '>');
      });
}

}  // namespace shoal::python
