// Brings errors across the border between Python and the library.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "shoal/base/error.h"

namespace shoal::python {

namespace py = pybind11;

// Defines shoal.Error, a ValueError and a RuntimeError with the error's code, and lets ConfigError
// and DeviceError be raised as it.
void bind_errors(py::module_& module);

// Keeps an exception of Python for this thread and returns its words. An Error with these words
// that reaches Python from this thread is raised as that exception. Needs the interpreter's lock.
std::string keep_exception(py::error_already_set& exception);

// Returns an Error if a signal's handler has raised an exception (Ctrl-C), which is kept. Takes the
// interpreter's lock.
Status check_signals();

}  // namespace shoal::python
