// Losses of items that have a class, on a CUDA device.
#include <cmath>
#include <limits>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"
#include "shoal/ops/focal.h"
#include "shoal/ops/loss.h"

namespace shoal::ops::cuda {
namespace {

void check_sizes(const ClassDesc& desc, const Tensor& scores, const Tensor& labels) {
  CHECK(scores.count() == desc.items() * desc.classes && labels.count() == desc.items())
      << "shapes " << scores.shape().str() << " and " << labels.shape().str() << " for "
      << desc.outer << " x " << desc.classes << " x " << desc.inner;
}

// A description and its labels as kernels take them.
struct Items {
  Items(Context& ctx, const ClassDesc& desc, const Tensor& tensor)
      : labels(read(ctx, tensor)),
        count(desc.classes),
        ignore(desc.ignore ? static_cast<float>(*desc.ignore)
                           : std::numeric_limits<float>::quiet_NaN()),
        inner(desc.inner),
        classes(desc.classes) {}

  // Returns the class of an item, or -1 for one that counts nothing.
  __host__ __device__ std::int64_t label(std::int64_t item) const {
    const float value = std::trunc(labels[item]);
    if (value == ignore || !(value >= 0 && value < static_cast<float>(count))) return -1;
    return static_cast<std::int64_t>(value);
  }
  // The number of class c at an item, and the class and the item of a number.
  __host__ __device__ std::int64_t element(std::int64_t item, std::int64_t c) const {
    return (item / inner * count + c) * inner.value() + item % inner;
  }
  __host__ __device__ std::int64_t class_of(std::int64_t i) const { return i / inner % classes; }
  __host__ __device__ std::int64_t item_of(std::int64_t i) const {
    return i / inner / classes * inner.value() + i % inner;
  }

  const float* labels;
  std::int64_t count;
  float ignore;  // NaN: none
  Divisor inner, classes;
};

// Sets loss to the sum of term(item) over divisor.
template <class Term>
void put_loss(Context& ctx, const char* name, const ClassDesc& desc, double divisor, Tensor& loss,
              Term term) {
  float* const out = write(ctx, loss);
  sum(ctx, name, desc.items(), term,
      [=] __host__ __device__(double total) { out[0] = static_cast<float>(total / divisor); });
}

}  // namespace

LabelCheck check_labels(Context& ctx, const ClassDesc& desc, const Tensor& labels) {
  return cpu_backend().elementary->check_labels(ctx, desc, labels);
}

void log_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
              float floor, double divisor, Tensor& loss) {
  check_sizes(desc, probs, labels);
  const Items items(ctx, desc, labels);
  const float* const p = read(ctx, probs);
  put_loss(ctx, "log loss", desc, divisor, loss, [=] __host__ __device__(std::int64_t item) {
    const std::int64_t label = items.label(item);
    if (label < 0) return 0.0;
    const float at = p[items.element(item, label)];
    return -std::log(double{at < floor ? floor : at});
  });
}

void log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                       const Tensor& labels, float floor, float scale, Tensor& dprobs) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dprobs, labels);
  const Items items(ctx, desc, labels);
  const float* const p = read(ctx, probs);
  float* const out = write(ctx, dprobs);
  each(ctx, "log loss's gradient", dprobs.count(), [=] __host__ __device__(std::int64_t i) {
    const bool here = items.label(items.item_of(i)) == items.class_of(i);
    out[i] = here ? -scale / (p[i] < floor ? floor : p[i]) : 0.0f;
  });
}

void softmax_log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                               const Tensor& labels, float scale, Tensor& dscores) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dscores, labels);
  const Items items(ctx, desc, labels);
  const float* const p = read(ctx, probs);
  float* const out = write(ctx, dscores);
  each(ctx, "softmax loss's gradient", dscores.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t label = items.label(items.item_of(i));
    out[i] = label < 0 ? 0.0f : scale * (label == items.class_of(i) ? p[i] - 1.0f : p[i]);
  });
}

void focal_loss(Context& ctx, const ClassDesc& desc, const FocalDesc& focal, const Tensor& probs,
                const Tensor& labels, double divisor, Tensor& loss) {
  check_sizes(desc, probs, labels);
  const Items items(ctx, desc, labels);
  const float* const p = read(ctx, probs);
  put_loss(ctx, "focal loss", desc, divisor, loss, [=] __host__ __device__(std::int64_t item) {
    const std::int64_t label = items.label(item);
    return label < 0 ? 0.0 : focal_term(focal, p[items.element(item, label)]);
  });
}

void softmax_focal_loss_backward(Context& ctx, const ClassDesc& desc, const FocalDesc& focal,
                                 const Tensor& probs, const Tensor& labels, float scale,
                                 Tensor& dscores) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dscores, labels);
  const Items items(ctx, desc, labels);
  const float* const p = read(ctx, probs);
  float* const out = write(ctx, dscores);
  each(ctx, "focal loss's gradient", dscores.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t item = items.item_of(i), label = items.label(item);
    if (label < 0) {
      out[i] = 0;
      return;
    }
    const float slope = focal_slope(focal, p[items.element(item, label)]);
    out[i] = scale * slope * (label == items.class_of(i) ? p[i] - 1.0f : p[i]);
  });
}

void infogain_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                   const Tensor& matrix, float floor, double divisor, Tensor& loss) {
  check_sizes(desc, probs, labels);
  CHECK(matrix.count() == desc.classes * desc.classes)
      << matrix.shape().str() << " for " << desc.classes << " classes";
  const Items items(ctx, desc, labels);
  const float *const p = read(ctx, probs), *const gain = read(ctx, matrix);
  put_loss(ctx, "infogain loss", desc, divisor, loss, [=] __host__ __device__(std::int64_t item) {
    const std::int64_t label = items.label(item);
    double sum = 0;
    for (std::int64_t c = 0; label >= 0 && c < items.count; ++c) {
      const float at = p[items.element(item, c)];
      sum -= gain[label * items.count + c] * std::log(double{at < floor ? floor : at});
    }
    return sum;
  });
}

void softmax_infogain_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                                    const Tensor& labels, const Tensor& matrix, float scale,
                                    Tensor& dscores) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dscores, labels);
  const std::int64_t classes = desc.classes;
  CHECK(matrix.count() == classes * classes)
      << matrix.shape().str() << " for " << classes << " classes";
  const Items items(ctx, desc, labels);
  const float *const p = read(ctx, probs), *const gain = read(ctx, matrix);
  float *const out = write(ctx, dscores), *const row_sums = ctx.scratch(classes).data();
  reduce<double>(
      ctx, "sums of the infogain matrix", classes, classes,
      [=] __host__ __device__(std::int64_t label, std::int64_t c) {
        return double{gain[label * classes + c]};
      },
      Add(),
      [=] __host__ __device__(std::int64_t label, double sum) {
        row_sums[label] = static_cast<float>(sum);
      });
  each(ctx, "infogain loss's gradient", dscores.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t label = items.label(items.item_of(i));
    out[i] = label < 0
                 ? 0.0f
                 : scale * (p[i] * row_sums[label] - gain[label * items.count + items.class_of(i)]);
  });
}

void hinge_loss(Context& ctx, const ClassDesc& desc, const Tensor& scores, const Tensor& labels,
                HingeNorm norm, double divisor, Tensor& loss) {
  check_sizes(desc, scores, labels);
  const Items items(ctx, desc, labels);
  const float* const x = read(ctx, scores);
  put_loss(ctx, "hinge loss", desc, divisor, loss, [=] __host__ __device__(std::int64_t item) {
    const std::int64_t label = items.label(item);
    double sum = 0;
    for (std::int64_t c = 0; label >= 0 && c < items.count; ++c) {
      const float score = x[items.element(item, c)], signed_score = c == label ? -score : score;
      const double margin = signed_score < -1 ? 0.0 : 1.0 + signed_score;  // a NaN stays one
      sum += norm == HingeNorm::kL1 ? margin : margin * margin;
    }
    return sum;
  });
}

void hinge_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& scores,
                         const Tensor& labels, HingeNorm norm, float scale, Tensor& dscores) {
  check_sizes(desc, scores, labels);
  check_sizes(desc, dscores, labels);
  const Items items(ctx, desc, labels);
  const float* const x = read(ctx, scores);
  float* const out = write(ctx, dscores);
  each(ctx, "hinge loss's gradient", dscores.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t label = items.label(items.item_of(i));
    const float t = label == items.class_of(i) ? -1.0f : 1.0f, margin = 1 + t * x[i];
    const float slope = margin <= 0 || label < 0 ? 0.0f
                        : norm == HingeNorm::kL1 ? 1.0f
                                                 : 2 * margin;
    out[i] = scale * t * slope;
  });
}

}  // namespace shoal::ops::cuda
