#include "python/errors.h"

namespace shoal::python {
namespace {

constexpr const char* kKept = "shoal.kept_exception";

// Raises the exception that was kept for this thread, if `words` are about it.
bool raise_kept(const std::string& words) {
  PyObject* const of_thread = PyThreadState_GetDict();
  if (of_thread == nullptr) return false;
  const auto dict = py::reinterpret_borrow<py::dict>(of_thread);
  if (!dict.contains(kKept)) return false;
  const py::tuple kept = dict[kKept];
  PyDict_DelItemString(of_thread, kKept);
  if (words.find(kept[0].cast<std::string>()) == std::string::npos) return false;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(py::object(kept[1]).ptr())),
                  py::object(kept[1]).ptr());
  return true;
}

void raise_error(const py::object& type, const Error& error) {
  if (raise_kept(error.message)) return;
  const py::object exception = type(error.message);
  exception.attr("code") = static_cast<int>(error.code);
  PyErr_SetObject(type.ptr(), exception.ptr());
}

}  // namespace

void bind_errors(py::module_& module) {
  const py::object bases =
      py::make_tuple(py::handle(PyExc_ValueError), py::handle(PyExc_RuntimeError));
  const auto type = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
      "shoal.Error",
      "What is wrong, where, and what to do about it. `code` is the exit code with which a tool "
      "of Shoal would end.",
      bases.ptr(), nullptr));
  if (!type) throw py::error_already_set();
  module.attr("Error") = type;
  // The translators need the type for as long as the interpreter runs.
  py::set_shared_data("shoal.Error", py::object(type).release().ptr());
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ConfigError& error) {
      const py::handle type(static_cast<PyObject*>(py::get_shared_data("shoal.Error")));
      raise_error(py::reinterpret_borrow<py::object>(type), error.error());
    }
  });
}

std::string keep_exception(py::error_already_set& exception) {
  const std::string words = exception.what();
  PyObject* const of_thread = PyThreadState_GetDict();
  if (of_thread != nullptr)
    py::reinterpret_borrow<py::dict>(of_thread)[kKept] = py::make_tuple(words, exception.value());
  return words;
}

Status check_signals() {
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() == 0) return {};
  py::error_already_set raised;
  return Error{Code::kInternal, keep_exception(raised)};
}

}  // namespace shoal::python
