// A solver, as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

namespace shoal::python {

void bind_solver(pybind11::module_& module);

}  // namespace shoal::python
