// The ops that layers call: each goes to the implementation of the context's device.
#include "shoal/ops/backend.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/eltwise.h"
#include "shoal/ops/gemm.h"
#include "shoal/ops/images.h"
#include "shoal/ops/instance_loss.h"
#include "shoal/ops/loss.h"
#include "shoal/ops/pointwise.h"
#include "shoal/ops/rearrange.h"
#include "shoal/ops/recurrent.h"
#include "shoal/ops/reduce.h"
#include "shoal/ops/rois.h"
#include "shoal/ops/rows.h"
#include "shoal/ops/slice.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"

namespace shoal::ops {

const Why kYes;

void copy(Context& ctx, const Tensor& x, Tensor& y) { return elementary(ctx).copy(ctx, x, y); }
void axpy(Context& ctx, float a, const Tensor& x, Tensor& y) {
  return elementary(ctx).axpy(ctx, a, x, y);
}
void add(Context& ctx, const Tensor& x, const Tensor& z, Tensor& y) {
  return elementary(ctx).add(ctx, x, z, y);
}
void fill_all(Context& ctx, float value, std::span<Tensor* const> y) {
  return elementary(ctx).fill_all(ctx, value, y);
}
void scale_all(Context& ctx, float a, std::span<Tensor* const> y) {
  return elementary(ctx).scale_all(ctx, a, y);
}
double asum(Context& ctx, Tensors x) { return elementary(ctx).asum(ctx, x); }
double sum_of_squares(Context& ctx, Tensors x) { return elementary(ctx).sum_of_squares(ctx, x); }
bool all_finite(Context& ctx, Tensors x) { return elementary(ctx).all_finite(ctx, x); }
void gemm(Context& ctx, Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const Tensor& a, const Tensor& b, float beta, Tensor& c) {
  return elementary(ctx).gemm(ctx, trans_a, trans_b, m, n, k, alpha, a, b, beta, c);
}
void add_bias(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& b, Tensor& y) {
  return elementary(ctx).add_bias(ctx, channels, inner, b, y);
}
void add_bias_gradient(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& dy,
                       Tensor& db) {
  return elementary(ctx).add_bias_gradient(ctx, channels, inner, dy, db);
}
bool relu_and_bias_gradient(Context& ctx, float slope, std::int64_t channels, std::int64_t inner,
                            const Tensor& y, Tensor& dy, Tensor* db) {
  return elementary(ctx).relu_and_bias_gradient(ctx, slope, channels, inner, y, dy, db);
}
std::int64_t first_bad_row(Context& ctx, const Tensor& index, std::int64_t rows) {
  return elementary(ctx).first_bad_row(ctx, index, rows);
}
void take_rows(Context& ctx, const Tensor& x, const Tensor& index, Tensor& y) {
  return elementary(ctx).take_rows(ctx, x, index, y);
}
void add_rows(Context& ctx, const Tensor& g, const Tensor& index, Tensor& gx) {
  return elementary(ctx).add_rows(ctx, g, index, gx);
}
void cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  return elementary(ctx).cut(ctx, x, from, y);
}
void add_cut(Context& ctx, const Tensor& x, Offset from, Tensor& y) {
  return elementary(ctx).add_cut(ctx, x, from, y);
}
void paste(Context& ctx, const Tensor& x, Tensor& y, Offset to) {
  return elementary(ctx).paste(ctx, x, y, to);
}
void rearrange(Context& ctx, const Tensor& x, Offset sizes, Offset steps, Tensor& y) {
  return elementary(ctx).rearrange(ctx, x, sizes, steps, y);
}
void spread(Context& ctx, std::int64_t planes, const Tensor& x, const Tensor& mask, Tensor& y,
            Tensor& outside) {
  return elementary(ctx).spread(ctx, planes, x, mask, y, outside);
}
void gather(Context& ctx, std::int64_t planes, const Tensor& g, const Tensor& mask, Tensor& gx) {
  return elementary(ctx).gather(ctx, planes, g, mask, gx);
}
void interpolate(Context& ctx, const InterpolatedAxis& height, const InterpolatedAxis& width,
                 const Tensor& x, Tensor& y) {
  return elementary(ctx).interpolate(ctx, height, width, x, y);
}
void interpolate_backward(Context& ctx, const InterpolatedAxis& height,
                          const InterpolatedAxis& width, const Tensor& g, Tensor& gx) {
  return elementary(ctx).interpolate_backward(ctx, height, width, g, gx);
}
void transform_images(Context& ctx, const ByteImages& images, const std::shared_ptr<Memory>& block,
                      const Tensor& mean, float scale, Tensor& y) {
  return elementary(ctx).transform_images(ctx, images, block, mean, scale, y);
}
void scale_and_shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& factor,
                     const Tensor* shift, Tensor& y) {
  return elementary(ctx).scale_and_shift(ctx, dims, x, factor, shift, y);
}
void shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& shift,
           Tensor& y) {
  return elementary(ctx).shift(ctx, dims, x, shift, y);
}
void scale_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, const Tensor& x,
                    const Tensor& factor, Tensor* gx, SumInto g_factor, SumInto g_shift) {
  return elementary(ctx).scale_backward(ctx, dims, g, x, factor, gx, g_factor, g_shift);
}
void shift_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, SumInto g_shift) {
  return elementary(ctx).shift_backward(ctx, dims, g, g_shift);
}
void reduce_rows(Context& ctx, Reduce kind, float coeff, const Tensor& x, Tensor& y) {
  return elementary(ctx).reduce_rows(ctx, kind, coeff, x, y);
}
void reduce_rows_backward(Context& ctx, Reduce kind, float coeff, const Tensor& g, const Tensor& x,
                          Tensor& gx) {
  return elementary(ctx).reduce_rows_backward(ctx, kind, coeff, g, x, gx);
}
void standardize_rows(Context& ctx, std::int64_t rows, float eps, const Tensor& x, Tensor& y,
                      Tensor& divisor) {
  return elementary(ctx).standardize_rows(ctx, rows, eps, x, y, divisor);
}
void standardize_rows_backward(Context& ctx, std::int64_t rows, const Tensor& g, const Tensor& y,
                               const Tensor& divisor, Tensor& gx) {
  return elementary(ctx).standardize_rows_backward(ctx, rows, g, y, divisor, gx);
}
void weighted_sum(Context& ctx, Tensors x, std::span<const float> weights, Tensor& y,
                  std::optional<float> relu) {
  return elementary(ctx).weighted_sum(ctx, x, weights, y, relu);
}
void product(Context& ctx, Tensors x, Tensor& y) { return elementary(ctx).product(ctx, x, y); }
void product_but_one(Context& ctx, Tensors x, int skip, const Tensor& g, Tensor& y) {
  return elementary(ctx).product_but_one(ctx, x, skip, g, y);
}
void product_over(Context& ctx, const Tensor& g, const Tensor& p, const Tensor& x, Tensor& y) {
  return elementary(ctx).product_over(ctx, g, p, x, y);
}
void maximum(Context& ctx, Tensors x, Tensor& y, Tensor& winner) {
  return elementary(ctx).maximum(ctx, x, y, winner);
}
void take_where(Context& ctx, const Tensor& winner, int index, const Tensor& g, Tensor& y) {
  return elementary(ctx).take_where(ctx, winner, index, g, y);
}
void map(Context& ctx, const Map& map, const Tensor& x, Tensor& y) {
  return elementary(ctx).map(ctx, map, x, y);
}
void map_backward(Context& ctx, const Map& map, const Tensor& read, const Tensor& dy, Tensor& dx) {
  return elementary(ctx).map_backward(ctx, map, read, dy, dx);
}
void prelu(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner, Tensor& y) {
  return elementary(ctx).prelu(ctx, x, slope, inner, y);
}
void prelu_backward(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner,
                    const Tensor& dy, Tensor& dx) {
  return elementary(ctx).prelu_backward(ctx, x, slope, inner, dy, dx);
}
void prelu_slope_backward(Context& ctx, const Tensor& x, std::int64_t inner, const Tensor& dy,
                          Tensor& dslope) {
  return elementary(ctx).prelu_slope_backward(ctx, x, inner, dy, dslope);
}
void dropout(Context& ctx, const Random::State& coins, float ratio, const Tensor& x, Tensor& y) {
  return elementary(ctx).dropout(ctx, coins, ratio, x, y);
}
LabelCheck check_labels(Context& ctx, const ClassDesc& desc, const Tensor& labels) {
  return elementary(ctx).check_labels(ctx, desc, labels);
}
void log_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
              float floor, double divisor, Tensor& loss) {
  return elementary(ctx).log_loss(ctx, desc, probs, labels, floor, divisor, loss);
}
void log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                       const Tensor& labels, float floor, float scale, Tensor& dprobs) {
  return elementary(ctx).log_loss_backward(ctx, desc, probs, labels, floor, scale, dprobs);
}
void softmax_log_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                               const Tensor& labels, float scale, Tensor& dscores) {
  return elementary(ctx).softmax_log_loss_backward(ctx, desc, probs, labels, scale, dscores);
}
void focal_loss(Context& ctx, const ClassDesc& desc, const FocalDesc& focal, const Tensor& probs,
                const Tensor& labels, double divisor, Tensor& loss) {
  return elementary(ctx).focal_loss(ctx, desc, focal, probs, labels, divisor, loss);
}
void softmax_focal_loss_backward(Context& ctx, const ClassDesc& desc, const FocalDesc& focal,
                                 const Tensor& probs, const Tensor& labels, float scale,
                                 Tensor& dscores) {
  return elementary(ctx).softmax_focal_loss_backward(ctx, desc, focal, probs, labels, scale,
                                                     dscores);
}
void infogain_loss(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                   const Tensor& matrix, float floor, double divisor, Tensor& loss) {
  return elementary(ctx).infogain_loss(ctx, desc, probs, labels, matrix, floor, divisor, loss);
}
void softmax_infogain_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& probs,
                                    const Tensor& labels, const Tensor& matrix, float scale,
                                    Tensor& dscores) {
  return elementary(ctx).softmax_infogain_loss_backward(ctx, desc, probs, labels, matrix, scale,
                                                        dscores);
}
void hinge_loss(Context& ctx, const ClassDesc& desc, const Tensor& scores, const Tensor& labels,
                HingeNorm norm, double divisor, Tensor& loss) {
  return elementary(ctx).hinge_loss(ctx, desc, scores, labels, norm, divisor, loss);
}
void hinge_loss_backward(Context& ctx, const ClassDesc& desc, const Tensor& scores,
                         const Tensor& labels, HingeNorm norm, float scale, Tensor& dscores) {
  return elementary(ctx).hinge_loss_backward(ctx, desc, scores, labels, norm, scale, dscores);
}
void sigmoid_cross_entropy(Context& ctx, const Tensor& x, const Tensor& targets,
                           std::optional<int> ignore, double divisor, Tensor& loss) {
  return elementary(ctx).sigmoid_cross_entropy(ctx, x, targets, ignore, divisor, loss);
}
void sigmoid_cross_entropy_backward(Context& ctx, const Tensor& x, const Tensor& targets,
                                    std::optional<int> ignore, float scale, Tensor& dx) {
  return elementary(ctx).sigmoid_cross_entropy_backward(ctx, x, targets, ignore, scale, dx);
}
std::int64_t count_targets(Context& ctx, const Tensor& targets, std::optional<int> ignore) {
  return elementary(ctx).count_targets(ctx, targets, ignore);
}
void squared_distance(Context& ctx, const Tensor& a, const Tensor& b, double divisor,
                      Tensor& loss) {
  return elementary(ctx).squared_distance(ctx, a, b, divisor, loss);
}
void difference(Context& ctx, float scale, const Tensor& a, const Tensor& b, Tensor& y) {
  return elementary(ctx).difference(ctx, scale, a, b, y);
}
void contrastive_loss(Context& ctx, const ContrastiveDesc& desc, const Tensor& a, const Tensor& b,
                      const Tensor& similar, double divisor, Tensor& loss) {
  return elementary(ctx).contrastive_loss(ctx, desc, a, b, similar, divisor, loss);
}
void contrastive_loss_backward(Context& ctx, const ContrastiveDesc& desc, const Tensor& a,
                               const Tensor& b, const Tensor& similar, float scale, Tensor& da) {
  return elementary(ctx).contrastive_loss_backward(ctx, desc, a, b, similar, scale, da);
}
void smooth_l1(Context& ctx, float sigma, const Tensor& a, const Tensor& b, const Tensor* inside,
               const Tensor* outside, Tensor& errors) {
  return elementary(ctx).smooth_l1(ctx, sigma, a, b, inside, outside, errors);
}
void smooth_l1_backward(Context& ctx, float sigma, float scale, const Tensor& a, const Tensor& b,
                        const Tensor* inside, const Tensor* outside, Tensor& da) {
  return elementary(ctx).smooth_l1_backward(ctx, sigma, scale, a, b, inside, outside, da);
}
void sum_channels(Context& ctx, std::int64_t outer, std::int64_t channels, std::int64_t inner,
                  const Tensor& x, Tensor& y) {
  return elementary(ctx).sum_channels(ctx, outer, channels, inner, x, y);
}
void log_losses(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                float floor, Tensor& each) {
  return elementary(ctx).log_losses(ctx, desc, probs, labels, floor, each);
}
void roi_pool(Context& ctx, const RoiDesc& desc, const Tensor& features, const Tensor& rois,
              Tensor& pooled, Tensor& winners) {
  return elementary(ctx).roi_pool(ctx, desc, features, rois, pooled, winners);
}
void roi_pool_backward(Context& ctx, const RoiDesc& desc, const Tensor& dpooled, const Tensor& rois,
                       const Tensor& winners, Tensor& dfeatures) {
  return elementary(ctx).roi_pool_backward(ctx, desc, dpooled, rois, winners, dfeatures);
}
void lstm_step(Context& ctx, const Tensor& cont, const Tensor& gates, const Tensor& c_before,
               Tensor& c, Tensor& h) {
  return elementary(ctx).lstm_step(ctx, cont, gates, c_before, c, h);
}
void lstm_step_backward(Context& ctx, const Tensor& cont, const Tensor& gates,
                        const Tensor& c_before, const Tensor& c, const Tensor* dc, const Tensor& dh,
                        Tensor& dgates, Tensor& dc_before) {
  return elementary(ctx).lstm_step_backward(ctx, cont, gates, c_before, c, dc, dh, dgates,
                                            dc_before);
}
void judge(Context& ctx, Tensors x, float clip, Tensor& verdict) {
  return elementary(ctx).judge(ctx, x, clip, verdict);
}
void update(Context& ctx, std::span<const ParamUpdate> params, const Tensor* verdict) {
  return elementary(ctx).update(ctx, params, verdict);
}

}  // namespace shoal::ops
