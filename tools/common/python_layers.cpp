#include "common/python_layers.h"

#if SHOAL_PYTHON
#include <pybind11/embed.h>

#include "python/layer.h"
#include "python/train.h"
#include "shoal/base/error.h"

extern "C" PyObject* PyInit__shoal();

namespace shoal {

// A tool trains by flags of its own, of which a program has one set.
void python::bind_train(pybind11::module_&) {}

namespace {

namespace py = pybind11;

// Makes the module of this program's own library the one that the package shoal is built on. It
// says how layers are made from then on.
bool start_interpreter() {
  PyImport_AppendInittab("_shoal", &PyInit__shoal);
  Py_InitializeEx(/*signal handlers*/ 0);
  try {
    py::module_::import("sys").attr("modules")["shoal._shoal"] = py::module_::import("_shoal");
    py::module_::import("shoal");
  } catch (const py::error_already_set& error) {
    throw ConfigError(Code::kConfig,
                      "layers of type Python need the package shoal of this version where Python "
                      "finds it (docs/python.md): ",
                      error.what());
  }
  PyEval_SaveThread();
  return true;
}

std::unique_ptr<Layer> make_first_layer(const LayerParameter& param) {
  [[maybe_unused]] static const bool started = start_interpreter();
  return python::make_python_layer(param);
}

}  // namespace

void bring_python_layers() { set_python_layers(make_first_layer); }

}  // namespace shoal
#else
namespace shoal {

void bring_python_layers() {}

}  // namespace shoal
#endif
