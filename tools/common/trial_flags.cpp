#include "common/trial_flags.h"

#include <gflags/gflags.h>

#include "shoal/base/error.h"

DEFINE_double(throttle, 0,
              "most bytes a second that this process sends, and that it receives; 0: no limit");
DEFINE_double(
    emulate_step_ms, 0,
    "least milliseconds that a worker of a job computes in an iteration; it waits if it is faster");
DEFINE_string(
    send_order, "priority",
    "priority: earlier clocks are sent first, and of a clock what the next forward pass needs "
    "first; or arrival");

namespace shoal {

TrialFlags trial_flags() {
  constexpr double kMostBytes = 1e15, kMostMilliseconds = 1e9;
  const auto check = [](const char* flag, double value, double most) {
    if (!(value >= 0 && value <= most))
      throw ConfigError(Code::kUsage, "--", flag, "=", value, " is not from 0 to ", most);
  };
  check("throttle", FLAGS_throttle, kMostBytes);
  check("emulate_step_ms", FLAGS_emulate_step_ms, kMostMilliseconds);
  if (FLAGS_send_order != "priority" && FLAGS_send_order != "arrival")
    throw ConfigError(Code::kUsage, "--send_order=", FLAGS_send_order,
                      ": known are priority and arrival");
  return {
      .throttle = FLAGS_throttle,
      .emulate_step_ms = FLAGS_emulate_step_ms,
      .order = FLAGS_send_order == "priority" ? table::Order::kPriority : table::Order::kArrival};
}

}  // namespace shoal
