// Layers of type Python, whose class is in a module of Python.
#pragma once

#include "python/blob.h"
#include "shoal/layers/layer.h"

namespace shoal::python {

// Makes a layer whose class python_param names. Throws ConfigError. Any thread.
std::unique_ptr<Layer> make_python_layer(const LayerParameter& param);
// Returns the object of the layer, or none if it is of another type.
py::object object_of(const Layer& layer);
// Lets nets of this program have layers of type Python.
void bind_layer(py::module_& module);

}  // namespace shoal::python
