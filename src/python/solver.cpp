#include "python/solver.h"

#include <pybind11/stl.h>

#include "python/callbacks.h"
#include "python/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/solver.h"

namespace shoal::python {
namespace {

class PySolver : public std::enable_shared_from_this<PySolver> {
  // Calls f without the interpreter's lock. Arrays are as new before and after it. Raises what a
  // signal raised meanwhile.
  template <class F>
  auto at_work(F f) {
    const Work::Pass pass(*work_);
    each_net([](const Net& net) { take_writes(net); });
    auto result = [&] {
      const py::gil_scoped_release others;
      return f();
    }();
    each_net([](const Net& net) { show_numbers(net); });
    if (const Status signal = std::exchange(signal_, Status()); !signal.ok()) or_throw(signal);
    return or_throw(std::move(result));
  }

 public:
  PySolver(SolverParameter param, const std::string& name, const Machine& machine)
      : param_(std::move(param)),
        solver_(param_, {.device = device_of(machine.gpu),
                         .threads = machine.threads,
                         .name = name,
                         .action = [this] { return interrupted() ? Action::kStop : Action::kNone; },
                         .make_updater = [this, name](Net& net) { return updater_of(net, name); },
                         .interactive = true}) {}

  void step(std::int64_t iterations) {
    if (iterations < 0)
      throw ConfigError(Code::kUsage, "step(", iterations,
                        "): the number of iterations is below 0");
    at_work([&] { return solver_.step(iterations); });
  }
  void solve() {
    at_work([&] { return solver_.solve(); });
  }
  void snapshot() {
    at_work([&] { return solver_.snapshot(); });
  }
  void restore(const std::string& file) {
    at_work([&] { return solver_.restore(file), Status(); });
  }
  void copy_weights(const std::string& file) {
    at_work([&] { return solver_.copy_weights(file), Status(); });
  }
  py::list test(int index) {
    const auto count = std::ssize(solver_.test_nets());
    if (index < 0 || index >= count)
      throw ConfigError(Code::kUsage, "test(", index, "): the solver has ", count,
                        " test nets, counted from 0");
    py::list scores;
    for (const TestScore& score : at_work([&] { return solver_.test(index); }))
      scores.append(py::make_tuple(score.output, score.mean));
    return scores;
  }
  std::shared_ptr<PyNet> net() {
    return std::make_shared<PyNet>(solver_.net(), shared_from_this(), work_);
  }
  std::vector<std::shared_ptr<PyNet>> test_nets() {
    std::vector<std::shared_ptr<PyNet>> nets;
    for (const auto& net : solver_.test_nets())
      nets.push_back(std::make_shared<PyNet>(*net, shared_from_this(), work_));
    return nets;
  }
  void add_callback(const py::function& before, const py::function& gradients) {
    work_->check_idle();
    before_.push_back(before);
    gradients_.push_back(gradients);
  }
  const Solver& solver() const { return solver_; }
  py::bytes param() const { return py::bytes(param_.SerializePartialAsString()); }

 private:
  std::unique_ptr<Updater> updater_of(Net& net, const std::string& name) {
    return make_calling(make_local_updater(param_, name, net),
                        {.begins = [this](std::int64_t, float) { return call(before_); },
                         .gradients = [this] { return call(gradients_); }});
  }
  // Calls functions, which see the nets' numbers and may change them.
  Status call(const std::vector<py::function>& functions) {
    if (functions.empty()) return {};
    return call_python([&] {
      each_net([](const Net& net) { show_numbers(net); });
      for (const py::function& function : functions) function();
      each_net([](const Net& net) { take_writes(net); });
    });
  }
  // Asks after each iteration, and in a test after each batch.
  bool interrupted() {
    if (signal_.ok()) signal_ = check_signals();
    return !signal_.ok();
  }
  template <class F>
  void each_net(F f) const {
    f(const_cast<Solver&>(solver_).net());
    for (const auto& net : solver_.test_nets()) f(*net);
  }

  const SolverParameter param_;
  std::shared_ptr<Work> work_ = std::make_shared<Work>();
  Status signal_;
  std::vector<py::function> before_, gradients_;
  Solver solver_;
};

std::shared_ptr<PySolver> make_solver(const std::string& source, bool is_text,
                                      const std::string& type, int gpu, int threads,
                                      std::int64_t seed) {
  const py::gil_scoped_release others;
  SolverParameter param = is_text ? parse_solver(source, "solver") : read_solver(source);
  if (!type.empty()) param.set_type(type);
  if (seed >= 0 && param.random_seed() < 0) param.set_random_seed(seed);
  return std::make_shared<PySolver>(std::move(param), is_text ? "solver" : source,
                                    Machine{gpu, threads, seed});
}

}  // namespace

void bind_solver(py::module_& module) {
  py::class_<PySolver, std::shared_ptr<PySolver>>(module, "Solver")
      .def(py::init(&make_solver), py::arg("source"), py::arg("is_text"), py::arg("type"),
           py::arg("gpu"), py::arg("threads"), py::arg("seed"))
      .def("step", &PySolver::step)
      .def("solve", &PySolver::solve)
      .def("snapshot", &PySolver::snapshot)
      .def("restore", &PySolver::restore)
      .def("copy_from", &PySolver::copy_weights)
      .def("test", &PySolver::test)
      .def("add_callback", &PySolver::add_callback)
      .def("net", &PySolver::net)
      .def("test_nets", &PySolver::test_nets)
      .def("param", &PySolver::param)
      .def_property_readonly("iter", [](const PySolver& s) { return s.solver().iteration(); })
      .def_property_readonly("loss", [](const PySolver& s) { return s.solver().last_loss(); })
      .def_property_readonly("smoothed_loss",
                             [](const PySolver& s) { return s.solver().smoothed_loss(); })
      .def_property_readonly("lr", [](const PySolver& s) { return s.solver().rate(); });
}

}  // namespace shoal::python
