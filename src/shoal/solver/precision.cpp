#include "shoal/solver/precision.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

namespace shoal {
namespace {

constexpr const char* kApVersions[] = {"11point", "MaxIntegral", "Integral"};
constexpr std::size_t kNumbers = 5;  // of a row
constexpr int kRecalls = 10;         // of 11point, and one at 0

// A point of the curve of precision over recall.
struct CurvePoint {
  double recall = 0, precision = 0;
};

std::vector<CurvePoint> curve_of(std::vector<JudgedDetection> detections, std::int64_t truth) {
  std::ranges::stable_sort(detections, std::greater{}, &JudgedDetection::score);
  std::vector<CurvePoint> curve;
  double right = 0;
  for (const JudgedDetection& one : detections) {
    right += one.right;
    curve.push_back(
        {right / static_cast<double>(truth), right / static_cast<double>(curve.size() + 1)});
  }
  return curve;
}

double at_11_points(const std::vector<CurvePoint>& curve) {
  double sum = 0;
  for (int i = 0; i <= kRecalls; ++i) {
    double best = 0;
    for (const CurvePoint& point : curve)
      if (point.recall >= static_cast<double>(i) / kRecalls) best = std::max(best, point.precision);
    sum += best;
  }
  return sum / (kRecalls + 1);
}

double integral(const std::vector<CurvePoint>& curve) {
  double sum = 0, before = 0;
  for (const CurvePoint& point : curve) {
    sum += point.precision * (point.recall - before);
    before = point.recall;
  }
  return sum;
}

}  // namespace

std::optional<ApVersion> ap_version_named(std::string_view name) {
  const auto* const found = std::ranges::find(kApVersions, name);
  if (found == std::end(kApVersions)) return std::nullopt;
  return static_cast<ApVersion>(found - kApVersions);
}

std::vector<std::string> ap_version_names() {
  return {std::begin(kApVersions), std::end(kApVersions)};
}

double average_precision(std::vector<JudgedDetection> detections, std::int64_t truth,
                         ApVersion version) {
  if (truth == 0 || detections.empty()) return 0;
  std::vector<CurvePoint> curve = curve_of(std::move(detections), truth);
  if (version == ApVersion::k11Point) return at_11_points(curve);
  if (version == ApVersion::kMaxIntegral)
    for (std::size_t i = curve.size() - 1; i > 0; --i)
      curve[i - 1].precision = std::max(curve[i - 1].precision, curve[i].precision);
  return integral(curve);
}

void Judgements::add(std::span<const float> rows) {
  for (; rows.size() >= kNumbers; rows = rows.subspan(kNumbers)) {
    OfClass& own = classes_[static_cast<int>(rows[1])];
    if (rows[0] == -1)
      own.truth += static_cast<std::int64_t>(rows[2]);
    else if (rows[3] != 0 || rows[4] != 0)  // else it found a difficult box, which does not count
      own.detections.push_back({rows[2], rows[3] != 0});
  }
}

std::map<int, double> Judgements::of_classes(ApVersion version) const {
  std::map<int, double> all;
  for (const auto& [label, own] : classes_)
    all[label] = average_precision(own.detections, own.truth, version);
  return all;
}

// The rows again, as floats.
std::string Judgements::save() const {
  std::vector<float> rows;
  for (const auto& [label, own] : classes_) {
    const auto name = static_cast<float>(label);
    rows.insert(rows.end(), {-1, name, static_cast<float>(own.truth), -1, -1});
    for (const JudgedDetection& one : own.detections)
      rows.insert(rows.end(),
                  {0, name, one.score, one.right ? 1.0f : 0.0f, one.right ? 0.0f : 1.0f});
  }
  std::string bytes(rows.size() * sizeof(float), '\0');
  if (!rows.empty()) std::memcpy(bytes.data(), rows.data(), bytes.size());
  return bytes;
}

Status Judgements::merge(std::string_view saved) {
  std::vector<float> rows(saved.size() / sizeof(float));
  if (saved.size() % (kNumbers * sizeof(float)) != 0)
    return Error{Code::kInternal, "the judgements of another worker's detections are cut"};
  if (!rows.empty()) std::memcpy(rows.data(), saved.data(), saved.size());
  add(rows);
  return {};
}

}  // namespace shoal
