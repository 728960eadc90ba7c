// Calls of functions of Python while a solver trains.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "python/errors.h"
#include "shoal/solver/updater.h"

namespace shoal::python {

// Each may be empty. An error ends the training. None has the interpreter's lock.
struct Moments {
  // Called before an iteration, which are counted from 0, with its rate.
  std::function<Status(std::int64_t iteration, float rate)> begins{};
  // Called when the gradients of a step are there, before the update by them.
  std::function<Status()> gradients{};
  // Called after an iteration, with the number of those done, the rate and the loss.
  std::function<Status(std::int64_t iteration, float rate, float loss)> ends{};
};

// Makes an updater that does what `inner` does, and calls at these moments.
std::unique_ptr<Updater> make_calling(std::unique_ptr<Updater> inner, Moments moments);

// Calls code of Python, with the interpreter's lock. Returns the exception, which is kept.
template <class F>
Status call_python(F f) {
  const py::gil_scoped_acquire lock;
  try {
    f();
  } catch (py::error_already_set& exception) {
    return Error{Code::kUsage, keep_exception(exception)};
  }
  return {};
}

}  // namespace shoal::python
