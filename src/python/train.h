// Lets Python do what the program train does.
#pragma once

#include <pybind11/pybind11.h>

namespace shoal::python {

void bind_train(pybind11::module_& module);

}  // namespace shoal::python
