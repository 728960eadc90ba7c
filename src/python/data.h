// Records of databases and pictures, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace shoal::python {

void bind_data(pybind11::module_& module);

}  // namespace shoal::python
