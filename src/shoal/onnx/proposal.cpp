// Converts Proposal: boxes that may hold objects, of a region proposal network.
#include <cfloat>

#include "shoal/layers/anchors.h"
#include "shoal/onnx/box_values.h"
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// Letters of the shapes: N images, A anchors a place, H W places, B = H W A boxes.
class ProposalExport {
 public:
  explicit ProposalExport(LayerExport& x)
      : x_(x),
        proposal_(x.param().proposal_param()),
        n_(x.bottom_dims(0)[0]),
        anchors_(x.bottom(0)[1] / 2),
        places_(x.bottom(0).count(2)) {}

  void convert() {
    const std::int64_t all = anchors_ * places_,
                       looked_at = std::min<std::int64_t>(all, proposal_.pre_nms_topn());
    read_info();
    const std::string boxes = moved();
    const std::string scores = wanted();
    const Names best =
        x_.add_many("TopK", {scores, x_.integers({looked_at})}, 2, {{"axis", std::int64_t{1}}});
    const std::string chosen =
        x_.add("GatherND", {boxes, with_axis(x_, best[1], 2)}, {{"batch_dims", std::int64_t{1}}});
    // Areas count the pixels of both corners.
    const std::string pixels = x_.add("Add", {chosen, x_.numbers({0, 0, 1, 1}, {4})});
    const std::string kept =
        suppressed(x_, pixels, with_axis(x_, best[0], 1),
                   {proposal_.nms_thresh(), kLeast, proposal_.post_nms_topn()});
    const std::string image = as_floats(x_, cut(x_, kept, 2, 0, 1));
    x_.give("Concat", {image, x_.add("GatherND", {chosen, kept})}, {{"axis", std::int64_t{1}}});
    if (x_.tops() > 1) x_.give("GatherND", {best[0], kept}, {}, 1);
  }

 private:
  // Scores of boxes that are left out lie below this.
  static constexpr float kLeast = -FLT_MAX / 2;

  // Sets the last pixel of the images and the least sides, (N or 1, 1, 1) each: x, y.
  void read_info() {
    const std::int64_t numbers = x_.bottom(2).count(1);
    const std::string info = x_.reshaped(x_.in(2), {x_.bottom_dims(2)[0], {1}, {numbers}});
    const auto number = [&](std::int64_t i) { return cut(x_, info, 3, i, i + 1); };
    last_ = x_.add("Sub", {joined(x_, {number(1), number(0)}), x_.number(1)});
    const std::string scales = joined(x_, {number(numbers > 3 ? 3 : 2), number(2)});
    least_ = x_.add("Mul", {scales, x_.number(static_cast<float>(proposal_.min_size()))});
  }

  // Anchors at all places in the order (h, w, a): centres, or sizes, (1, B, 2): x, y.
  std::string anchors(bool sizes) {
    std::vector<float> numbers;
    const std::int64_t width = x_.bottom(0)[3];
    const auto stride = static_cast<float>(proposal_.feat_stride());
    const std::vector<Box> all = anchors_of(proposal_);
    for (std::int64_t place = 0; place < places_; ++place)
      for (const Box& anchor : all) {
        const std::int64_t row = place / width, column = place % width;
        const float w = anchor.xmax - anchor.xmin + 1, h = anchor.ymax - anchor.ymin + 1;
        numbers.push_back(sizes ? w : static_cast<float>(column) * stride + anchor.xmin + 0.5f * w);
        numbers.push_back(sizes ? h : static_cast<float>(row) * stride + anchor.ymin + 0.5f * h);
      }
    return x_.numbers(std::move(numbers), {1, anchors_ * places_, 2});
  }

  // The anchors moved by the deltas and cut at the borders: (N, B, 4).
  std::string moved() {
    const std::string deltas =
        x_.reshaped(x_.add("Transpose", {x_.reshaped(x_.in(1), {n_, {anchors_}, {4}, {places_}})},
                           {{"perm", Sizes{0, 3, 1, 2}}}),
                    {n_, {anchors_ * places_}, {4}});
    const std::string size = anchors(true), middle = anchors(false);
    const std::string centre =
        x_.add("Add", {x_.add("Mul", {cut(x_, deltas, 3, 0, 2), size}), middle});
    const std::string length = x_.add("Mul", {x_.add("Exp", {cut(x_, deltas, 3, 2, 4)}), size});
    const std::string half = x_.add("Mul", {length, x_.number(0.5f)});
    const auto within = [&](const std::string& at) {
      return x_.add("Max", {x_.number(0), x_.add("Min", {at, last_})});
    };
    low_ = within(x_.add("Sub", {centre, half}));
    high_ = within(x_.add("Add", {centre, half}));
    return joined(x_, {low_, high_});
  }

  // The scores (N, B), with the least number for boxes with a side that is too small.
  std::string wanted() {
    const std::string objects = x_.add("Slice", {x_.in(0), x_.integers({anchors_}),
                                                 x_.integers({2 * anchors_}), x_.integers({1})});
    const std::string scores =
        x_.reshaped(x_.add("Transpose", {x_.reshaped(objects, {n_, {anchors_}, {places_}})},
                           {{"perm", Sizes{0, 2, 1}}}),
                    {n_, {anchors_ * places_}});
    const std::string sides = x_.add("Add", {x_.add("Sub", {high_, low_}), x_.number(1)});
    const std::string enough = as_floats(x_, x_.add("GreaterOrEqual", {sides, least_}));
    const std::string both =
        x_.add("Cast",
               {x_.add("ReduceMin", {enough}, {{"axes", Sizes{2}}, {"keepdims", std::int64_t{0}}})},
               {{"to", kBoolType}});
    return x_.add("Where", {both, scores, x_.number(-FLT_MAX)});
  }

  LayerExport& x_;
  const ProposalParameter& proposal_;
  Dim n_;
  std::int64_t anchors_, places_;
  std::string last_, least_, low_, high_;
};

}  // namespace

void convert_proposal(LayerExport& x) { ProposalExport(x).convert(); }

}  // namespace shoal::onnx
