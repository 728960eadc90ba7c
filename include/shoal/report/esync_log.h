// A worker's rounds as ESync logs them: <directory>/iter-1.txt, iter-2.txt ..., an object of JSON
// each (docs/reference/metrics.md).
#pragma once

#include <optional>
#include <string>

#include "shoal/base/error.h"
#include "shoal/report/metrics.h"

namespace shoal {

// Says how the test after a clock went, if there was one.
struct Evaluation {
  double seconds = 0;  // that it took
  double time = 0;     // when it was over, as ClockMetrics::time
  std::optional<double> accuracy{};
};

// Returns one file's content. `local`: it is of a scheme with local steps, whose phases have names
// of their own. clock.steps says what each step took.
std::string esync_round(const ClockMetrics& clock, bool local,
                        const std::optional<Evaluation>& evaluation);

class EsyncLog {
 public:
  // Makes the folder; takes rounds of an earlier run from `first` on away. Errors are kUsage.
  static Result<EsyncLog> open(const std::string& directory, bool local, std::int64_t first);
  Status add(const ClockMetrics& clock, const std::optional<Evaluation>& evaluation) const;

 private:
  std::string directory_;
  bool local_ = false;
};

}  // namespace shoal
