// The mean average precision of detections, from what DetectionEvaluate layers say of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

enum class ApVersion {
  k11Point,      // the mean of 11 precisions: at recalls 0, 0.1 ... 1 (VOC 2007)
  kMaxIntegral,  // under the curve of the best precision at that recall or above (VOC 2012, ILSVRC)
  kIntegral,     // under the curve as it is
};
std::optional<ApVersion> ap_version_named(std::string_view name);
std::vector<std::string> ap_version_names();

struct JudgedDetection {
  float score = 0;
  bool right = false;
};
// Returns the average precision of one class that has `truth` true boxes: 0 if it has none. Of
// equal scores the detection that comes first counts as the better one.
double average_precision(std::vector<JudgedDetection> detections, std::int64_t truth,
                         ApVersion version);

// Gathers rows of DetectionEvaluate's top, (any, 5).
class Judgements {
 public:
  void add(std::span<const float> rows);
  // Each class of the rows with its average precision; one without true boxes has 0.
  std::map<int, double> of_classes(ApVersion version) const;
  // All that was added, as bytes, which `merge` adds to another's.
  std::string save() const;
  Status merge(std::string_view saved);

 private:
  struct OfClass {
    std::int64_t truth = 0;
    std::vector<JudgedDetection> detections;
  };
  std::map<int, OfClass> classes_;
};

}  // namespace shoal
