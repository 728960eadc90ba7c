#include "python/train.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/train_flags.h"
#include "python/callbacks.h"

namespace shoal::python {
namespace {

using OptionalCall = std::optional<py::function>;

// A call of train: what it has to call, and why it is to end.
class Training final : public MetricsSink {
 public:
  Training(OptionalCall before, OptionalCall after, OptionalCall metrics)
      : before_(std::move(before)), after_(std::move(after)), metrics_(std::move(metrics)) {}

  int run(const std::vector<std::string>& words) {
    const int code = [&] {
      const py::gil_scoped_release others;
      return train_by_words(words, hooks());
    }();
    if (!ends_.ok()) or_throw(ends_);
    return code;
  }

  // A function that raises ends the training in order after the iteration.
  Status add(const MetricsRecord& record) override {
    const std::string line = std::visit([](const auto& one) { return line_of(one); }, record);
    const Status status = call([&] { (*metrics_)(line); });
    if (ends_.ok()) ends_ = status;
    return {};
  }

 private:
  // Calls a function and returns what it raised. But Ctrl-C ends the training in order.
  template <class F>
  Status call(F f) {
    const py::gil_scoped_acquire lock;
    try {
      f();
    } catch (py::error_already_set& exception) {
      const bool interrupt = exception.matches(PyExc_KeyboardInterrupt);
      const Error error{Code::kUsage, keep_exception(exception)};
      if (!interrupt) return error;
      ends_ = error;
    }
    return {};
  }
  TrainHooks hooks() {
    Moments moments;
    if (before_)
      moments.begins = [this](std::int64_t iteration, float rate) {
        return call([&] { (*before_)(iteration, rate); });
      };
    if (after_)
      moments.ends = [this](std::int64_t iteration, float rate, float loss) {
        return call([&] { (*after_)(iteration, rate, loss); });
      };
    return {.action = [this] { return wanted(); },
            .metrics = metrics_ ? this : nullptr,
            .wrap =
                [moments](std::unique_ptr<Updater> updater) {
                  return make_calling(std::move(updater), moments);
                }};
  }
  Action wanted() {
    if (ends_.ok()) ends_ = check_signals();
    return ends_.ok() ? Action::kNone : Action::kStop;
  }

  const OptionalCall before_, after_, metrics_;
  Status ends_;
};

int train(const std::vector<std::string>& words, const OptionalCall& before,
          const OptionalCall& after, const OptionalCall& metrics) {
  return Training(before, after, metrics).run(words);
}

}  // namespace

void bind_train(py::module_& module) {
  module.def("train", &train, py::arg("words"), py::arg("before"), py::arg("after"),
             py::arg("metrics"));
}

}  // namespace shoal::python
