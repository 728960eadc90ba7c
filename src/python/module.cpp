// The module shoal._shoal: what the package shoal is built on.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "python/data.h"
#include "python/errors.h"
#include "python/layer.h"
#include "python/net.h"
#include "python/solver.h"
#include "python/train.h"
#include "shoal/base/log.h"
#include "shoal/base/version.h"
#include "shoal/ops/blas_kernels.h"
#include "shoal/ops/cpu_kernels.h"
#include "shoal/ops/gpu.h"

PYBIND11_MODULE(_shoal, module) {
  namespace python = shoal::python;
  python::bind_errors(module);
  python::bind_blob(module);
  python::bind_layer(module);
  python::bind_net(module);
  python::bind_solver(module);
  python::bind_train(module);
  python::bind_data(module);
  module.attr("__version__") = shoal::kVersion;
  module.def("start_log", [] {
    if (!google::IsGoogleLoggingInitialized()) shoal::start_log("shoal");
  });
  module.def("set_log", [](int level, bool to_stderr) {
    FLAGS_minloglevel = level;
    FLAGS_logtostderr = to_stderr;
  });
  module.def("log", [](const std::string& line) { LOG(INFO) << line; });
  module.def("layer_types", &shoal::layer_types);
  module.def("gpu_count", &shoal::ops::gpu_count);
  module.def("why_no_gpu", &shoal::ops::why_no_gpu);
  module.def("describe", [] {
    return shoal::ops::describe_cpu_kernels() + "; " + shoal::ops::describe_blas();
  });
}
