// Implements how losses are divided and which label they ignore.
#include "shoal/layers/loss.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/proto/config_error.h"

namespace shoal {

LossParameter::NormalizationMode normalization_of(const LossParameter& param,
                                                  LossParameter::NormalizationMode otherwise) {
  if (param.has_normalization()) return param.normalization();
  if (param.has_normalize())
    return param.normalize() ? LossParameter::VALID : LossParameter::BATCH_SIZE;
  return otherwise;
}

double loss_normalizer(const LossParameter& param, LossParameter::NormalizationMode mode,
                       const LossItems& items) {
  double by = 1;
  if (mode == LossParameter::FULL) by = static_cast<double>(items.all);
  if (mode == LossParameter::VALID) by = static_cast<double>(items.counted);
  if (mode == LossParameter::BATCH_SIZE) by = static_cast<double>(items.batch);
  if (mode == LossParameter::PRE_FIXED) by = param.pre_fixed_normalizer();
  return std::max(by, 1.0);
}

void check_loss_param(const LayerParameter& layer) {
  const LossParameter& loss = layer.loss_param();
  if (!loss.has_pre_fixed_normalizer()) return;
  if (!(loss.pre_fixed_normalizer() > 0))
    throw config_error(layer, "pre_fixed_normalizer is ", loss.pre_fixed_normalizer(),
                       "; the loss is divided by it, so it must be above 0");
  if (loss.normalization() != LossParameter::PRE_FIXED)
    LOG(WARNING) << layer_place(layer)
                 << ": pre_fixed_normalizer has no effect without normalization: PRE_FIXED";
}

std::optional<int> ignored_label(const LossParameter& param) {
  return param.has_ignore_label() ? std::optional<int>(param.ignore_label()) : std::nullopt;
}

}  // namespace shoal
