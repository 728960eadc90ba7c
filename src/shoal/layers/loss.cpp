// Implements how losses are divided and which label they ignore.
#include "shoal/layers/loss.h"

#include <algorithm>

namespace shoal {

LossParameter::NormalizationMode normalization_of(const LossParameter& param,
                                                  LossParameter::NormalizationMode otherwise) {
  if (param.has_normalization()) return param.normalization();
  if (param.has_normalize())
    return param.normalize() ? LossParameter::VALID : LossParameter::BATCH_SIZE;
  return otherwise;
}

double loss_normalizer(LossParameter::NormalizationMode mode, std::int64_t all,
                       std::int64_t counted, std::int64_t batch) {
  std::int64_t by = 1;
  if (mode == LossParameter::FULL) by = all;
  if (mode == LossParameter::VALID) by = counted;
  if (mode == LossParameter::BATCH_SIZE) by = batch;
  return static_cast<double>(std::max<std::int64_t>(by, 1));
}

std::optional<int> ignored_label(const LossParameter& param) {
  return param.has_ignore_label() ? std::optional<int>(param.ignore_label()) : std::nullopt;
}

}  // namespace shoal
