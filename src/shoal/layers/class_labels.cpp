// Checks the labels of loss and accuracy layers against the classes of the scores.
#include "shoal/layers/class_labels.h"

#include <cmath>

#include "shoal/base/log.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

std::string likely_cause(const ops::ClassDesc& desc, const Blob& scores, const Blob& labels) {
  const std::int64_t count = labels.shape().count();
  if (count == desc.items() * desc.classes && desc.classes > 1)
    return "labels here are class numbers, not one number a class";
  if (desc.inner > 1 && count == desc.outer)
    return str(
        "with one label an item, the scores must be one a class: is an InnerProduct or a global "
        "Pooling before '",
        scores.name, "' missing?");
  if (labels.shape().axes() > 0 && scores.shape().axes() > 0 &&
      labels.shape()[0] != scores.shape()[0])
    return "their batches differ in size";
  return "one label an item is needed";
}

// Returns why a label may be no class, with what to do about it.
std::string cause_of(float label, const ops::ClassDesc& desc) {
  const bool mark = label == 255 || label == -1;  // in wide use for what counts nothing
  if (mark && !desc.ignore)
    return str("; if ", label, " marks what is to count nothing, say ignore_label: ", label,
               " in loss_param, or in accuracy_param");
  return label >= static_cast<float>(desc.classes) ? "; is num_output too small?" : "";
}

}  // namespace

ops::ClassDesc class_desc(const LayerParameter& param, const Blob& scores, int axis,
                          const Blob& labels, std::optional<int> ignore) {
  const Shape& shape = scores.shape();
  const ops::ClassDesc desc{shape.count(0, axis), shape[axis], shape.count(axis + 1), ignore};
  if (desc.classes == 0)
    throw config_error(param, "bottom '", scores.name, "' of shape ", shape.str(),
                       " has no classes along axis ", axis);
  if (labels.shape().count() != desc.items())
    throw config_error(param, "bottom '", scores.name, "' of shape ", shape.str(),
                       ", with its classes along axis ", axis, ", has ", desc.items(),
                       " items, but bottom '", labels.name, "' of shape ", labels.shape().str(),
                       " has ", labels.shape().count(), " labels; ",
                       likely_cause(desc, scores, labels));
  return desc;
}

ops::ClassDesc flat_class_desc(const LayerParameter& param, const Blob& scores,
                               const Blob& labels) {
  const Shape& shape = scores.shape();
  if (shape.axes() == 0)
    throw config_error(param, "bottom '", scores.name,
                       "' is a single number; it needs a batch axis");
  const ops::ClassDesc desc{shape[0], shape.count(1), 1, std::nullopt};
  if (desc.classes == 0)
    throw config_error(param, "bottom '", scores.name, "' of shape ", shape.str(),
                       " has no classes");
  if (labels.shape().count() != desc.outer)
    throw config_error(param, "bottom '", scores.name, "' of shape ", shape.str(), " has ",
                       desc.outer, " items, but bottom '", labels.name, "' of shape ",
                       labels.shape().str(), " has ", labels.shape().count(), " labels; ",
                       likely_cause(desc, scores, labels));
  return desc;
}

std::optional<std::int64_t> count_labels(Context& ctx, const ops::ClassDesc& desc,
                                         const Blob& scores, const Blob& labels, bool* warned) {
  const ops::LabelCheck check = ops::check_labels(ctx, desc, labels.data);
  if (check.first_bad < 0) {
    if (check.first_cut >= 0 && warned && !*warned) {
      *warned = true;
      LOG(WARNING) << "label " << labels.data.host()[static_cast<std::size_t>(check.first_cut)]
                   << " of '" << labels.name << "' is not a whole number; such labels are cut to "
                   << "whole ones, as in BVLC Caffe";
    }
    return check.counted;
  }
  const float label = labels.data.host()[static_cast<std::size_t>(check.first_bad)];
  const std::int64_t batch = labels.shape().axes() > 0 ? labels.shape()[0] : 1,
                     each = desc.items() / batch;
  const std::int64_t item = check.first_bad / each;
  const std::string where =
      str("item ", item, each > 1 ? str(", position ", check.first_bad % each) : "");
  ctx.fail(
      {Code::kData, str("label ", label, " of '", labels.name, "' at ", where,
                        std::isfinite(label) ? str(" is outside 0..", desc.classes - 1)
                                             : " is not a whole number",
                        " (bottom '", scores.name, "' has ", desc.classes,
                        desc.classes == 1 ? " class" : " classes", cause_of(label, desc), ")")},
      item);
  return std::nullopt;
}

}  // namespace shoal
