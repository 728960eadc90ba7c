#include <cmath>
#include <limits>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/focal.h"
#include "shoal/ops/loss.h"

namespace shoal::ops::cpu {
namespace {

void check_sizes(const ClassDesc& desc, const Tensor& scores, const Tensor& labels) {
  CHECK(scores.count() == desc.items() * desc.classes && labels.count() == desc.items())
      << "shapes " << scores.shape().str() << " and " << labels.shape().str() << " for "
      << desc.outer << " x " << desc.classes << " x " << desc.inner;
}

// The class of an item, or -1 for one that counts nothing.
struct LabelReader {
  const float* labels;
  std::int64_t classes;
  float ignore;  // NaN: none
  LabelReader(const ClassDesc& desc, const Tensor& tensor)
      : labels(tensor.in()),
        classes(desc.classes),
        ignore(desc.ignore ? static_cast<float>(*desc.ignore)
                           : std::numeric_limits<float>::quiet_NaN()) {}
  bool ignored(std::int64_t item) const { return std::trunc(labels[item]) == ignore; }
  bool is_cut(std::int64_t item) const { return labels[item] != std::trunc(labels[item]); }
  std::int64_t operator()(std::int64_t item) const {
    const float label = std::trunc(labels[item]);
    if (label == ignore || !(label >= 0 && label < static_cast<float>(classes))) return -1;
    return static_cast<std::int64_t>(label);
  }
};

// Calls f(o, c, first item, first element) for each row of `inner` numbers of one class.
template <class F>
void for_rows(Context& ctx, const ClassDesc& desc, F f) {
  const std::int64_t rows = desc.outer * desc.classes, inner = desc.inner, classes = desc.classes;
  parallel_for(ctx.threads(), rows, grain_of(inner),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   f(row % classes, row / classes * inner, row * inner);
               });
}

// Returns the number of class c at an item.
std::int64_t element(const ClassDesc& desc, std::int64_t item, std::int64_t c) {
  return (item / desc.inner * desc.classes + c) * desc.inner + item % desc.inner;
}

}  // namespace

LabelCheck check_labels(Context&, const ClassDesc& desc, const Tensor& labels) {
  CHECK(labels.count() == desc.items())
      << labels.shape().str() << " labels for " << desc.items() << " items";
  const LabelReader read(desc, labels);
  LabelCheck check;
  for (std::int64_t item = 0; item < desc.items(); ++item) {
    const bool counts = read(item) >= 0;
    if (counts && check.first_cut < 0 && read.is_cut(item)) check.first_cut = item;
    if (counts)
      ++check.counted;
    else if (check.first_bad < 0 && !read.ignored(item))
      check.first_bad = item;
  }
  return check;
}

void log_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
              float floor, double divisor, Tensor& loss) {
  check_sizes(desc, probs, labels);
  const LabelReader read(desc, labels);
  const float* p = probs.in();
  put_loss(ctx, desc.items(), divisor, loss, [=](std::int64_t item) {
    const std::int64_t label = read(item);
    if (label < 0) return 0.0;
    const float at = p[element(desc, item, label)];
    return -std::log(double{at < floor ? floor : at});
  });
}

void log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                       const Tensor& labels, float floor, float scale, Tensor& dprobs) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dprobs, labels);
  const LabelReader read(desc, labels);
  const float* p = probs.in();
  float* out = dprobs.out();
  for_rows(ctx, desc, [=](std::int64_t c, std::int64_t item, std::int64_t at) {
    for (std::int64_t i = 0; i < desc.inner; ++i)
      out[at + i] = read(item + i) == c ? -scale / (p[at + i] < floor ? floor : p[at + i]) : 0.0f;
  });
}

void softmax_log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                               const Tensor& labels, float scale, Tensor& dscores) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dscores, labels);
  const LabelReader read(desc, labels);
  const float* p = probs.in();
  float* out = dscores.out();
  for_rows(ctx, desc, [=](std::int64_t c, std::int64_t item, std::int64_t at) {
    for (std::int64_t i = 0; i < desc.inner; ++i) {
      const std::int64_t label = read(item + i);
      out[at + i] = label < 0 ? 0.0f : scale * (label == c ? p[at + i] - 1.0f : p[at + i]);
    }
  });
}

void focal_loss(Context& ctx, const ClassDesc& desc, const FocalDesc& focal, const Tensor& probs,
                const Tensor& labels, double divisor, Tensor& loss) {
  check_sizes(desc, probs, labels);
  const LabelReader read(desc, labels);
  const float* p = probs.in();
  put_loss(ctx, desc.items(), divisor, loss, [=](std::int64_t item) {
    const std::int64_t label = read(item);
    return label < 0 ? 0.0 : focal_term(focal, p[element(desc, item, label)]);
  });
}

void softmax_focal_loss_backward(Context& ctx, const ClassDesc& desc, const FocalDesc& focal,
                                 const Tensor& probs, const Tensor& labels, float scale,
                                 Tensor& dscores) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dscores, labels);
  const LabelReader read(desc, labels);
  const float* p = probs.in();
  float* out = dscores.out();
  for_rows(ctx, desc, [=](std::int64_t c, std::int64_t item, std::int64_t at) {
    for (std::int64_t i = 0; i < desc.inner; ++i) {
      const std::int64_t label = read(item + i);
      if (label < 0) {
        out[at + i] = 0;
        continue;
      }
      const float slope = focal_slope(focal, p[element(desc, item + i, label)]);
      out[at + i] = scale * slope * (label == c ? p[at + i] - 1.0f : p[at + i]);
    }
  });
}

void infogain_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                   const Tensor& matrix, float floor, double divisor, Tensor& loss) {
  check_sizes(desc, probs, labels);
  CHECK(matrix.count() == desc.classes * desc.classes)
      << matrix.shape().str() << " for " << desc.classes << " classes";
  const LabelReader read(desc, labels);
  const float *p = probs.in(), *gain = matrix.in();
  put_loss(ctx, desc.items(), divisor, loss, [=](std::int64_t item) {
    const std::int64_t label = read(item);
    double sum = 0;
    for (std::int64_t c = 0; label >= 0 && c < desc.classes; ++c) {
      const float at = p[element(desc, item, c)];
      sum -= gain[label * desc.classes + c] * std::log(double{at < floor ? floor : at});
    }
    return sum;
  });
}

void softmax_infogain_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                                    const Tensor& labels, const Tensor& matrix, float scale,
                                    Tensor& dscores) {
  check_sizes(desc, probs, labels);
  check_sizes(desc, dscores, labels);
  CHECK(matrix.count() == desc.classes * desc.classes)
      << matrix.shape().str() << " for " << desc.classes << " classes";
  const LabelReader read(desc, labels);
  const float *p = probs.in(), *gain = matrix.in();
  std::vector<float> row_sums;
  for (std::int64_t label = 0; label < desc.classes; ++label) {
    double sum = 0;
    for (std::int64_t c = 0; c < desc.classes; ++c) sum += gain[label * desc.classes + c];
    row_sums.push_back(static_cast<float>(sum));
  }
  float* out = dscores.out();
  for_rows(
      ctx, desc, [=, sums = row_sums.data()](std::int64_t c, std::int64_t item, std::int64_t at) {
        for (std::int64_t i = 0; i < desc.inner; ++i) {
          const std::int64_t label = read(item + i);
          out[at + i] =
              label < 0 ? 0.0f : scale * (p[at + i] * sums[label] - gain[label * desc.classes + c]);
        }
      });
}

void hinge_loss(Context& ctx, const ClassDesc& desc, const Tensor& scores, const Tensor& labels,
                HingeNorm norm, double divisor, Tensor& loss) {
  check_sizes(desc, scores, labels);
  const LabelReader read(desc, labels);
  const float* x = scores.in();
  put_loss(ctx, desc.items(), divisor, loss, [=](std::int64_t item) {
    const std::int64_t label = read(item);
    double sum = 0;
    for (std::int64_t c = 0; label >= 0 && c < desc.classes; ++c) {
      const float score = x[element(desc, item, c)], signed_score = c == label ? -score : score;
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
  const LabelReader read(desc, labels);
  const float* x = scores.in();
  float* out = dscores.out();
  for_rows(ctx, desc, [=](std::int64_t c, std::int64_t item, std::int64_t at) {
    for (std::int64_t i = 0; i < desc.inner; ++i) {
      const std::int64_t label = read(item + i);
      const float t = label == c ? -1.0f : 1.0f, margin = 1 + t * x[at + i];
      const float slope = margin <= 0 || label < 0 ? 0.0f
                          : norm == HingeNorm::kL1 ? 1.0f
                                                   : 2 * margin;
      out[at + i] = scale * t * slope;
    }
  });
}

}  // namespace shoal::ops::cpu
