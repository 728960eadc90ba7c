// Implements what YOLO's losses have in common.
#include "shoal/layers/yolo_loss.h"

#include <algorithm>
#include <cmath>

#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

constexpr std::int64_t kNumbersOfTruth = 5;

}  // namespace

void YoloLoss::check_biases(const google::protobuf::RepeatedField<float>& biases, int pairs) const {
  if (biases.size() != 2 * pairs)
    throw config_error(param(), "has ", biases.size(), " biases; ", pairs, " boxes need ",
                       2 * pairs, ": width and height of each");
  for (const float bias : biases)
    if (!(bias > 0)) throw config_error(param(), "a bias is ", bias, "; a size is above 0");
}

void YoloLoss::reshape(Context& ctx, Bottoms bottoms, Tops tops) {
  LossLayer::reshape(ctx, bottoms, tops);
  const Shape &shape = bottoms[0]->shape(), &labels = bottoms[1]->shape();
  const std::int64_t numbers = kFirstClass + classes();
  if (shape.axes() != 4 || shape[1] != boxes() * numbers)
    throw config_error(param(), "bottom '", bottoms[0]->name, "' of shape ", shape.str(),
                       " must have ", boxes() * numbers, " channels: ", boxes(),
                       " boxes a place of 5 numbers and ", classes(),
                       " classes; is num_output of the convolution before it right?");
  if (labels.axes() == 0 || labels[0] != shape[0] || labels.count(1) % kNumbersOfTruth != 0)
    throw config_error(param(), "bottom '", bottoms[1]->name, "' of shape ", labels.str(),
                       " must have ", shape[0], " items, of each box 5 numbers: class, x, y, width",
                       ", height",
                       labels.axes() == 4 && labels[3] == 8
                           ? ", as AnnotatedData makes them with yolo_data_type: 1"
                           : "");
  steps_.reshape(shape);
}

std::vector<YoloLoss::Truth> YoloLoss::truths_of(Context& ctx, const Blob& labels,
                                                 std::int64_t item) const {
  const std::size_t each = static_cast<std::size_t>(labels.shape().count(1));
  const std::span<const float> numbers =
      labels.data.host().subspan(static_cast<std::size_t>(item) * each, each);
  std::vector<Truth> truths;
  for (std::size_t at = 0; at + kNumbersOfTruth <= each; at += kNumbersOfTruth) {
    const float *const truth = numbers.data() + at, label = truth[0];
    if (truth[3] == 0) break;
    const auto inside = [](float x) { return x >= 0 && x <= 1; };
    const bool is_class =
        label >= 0 && label < static_cast<float>(classes()) && label == std::floor(label);
    if (is_class && inside(truth[1]) && inside(truth[2]) && truth[3] > 0 && truth[4] > 0) {
      truths.push_back(
          {{truth[1], truth[2], truth[3], truth[4]}, static_cast<std::int64_t>(label)});
      continue;
    }
    ctx.fail(
        {Code::kData, str("box ", at / kNumbersOfTruth, " of '", labels.name, "' at item ", item,
                          " is class ", label, ", centre ", truth[1], ", ", truth[2], ", size ",
                          truth[3], " x ", truth[4], "; a class is in 0..", classes() - 1,
                          ", a centre in 0..1, a size above 0, as parts of the image")},
        item);
    return {};
  }
  return truths;
}

void YoloLoss::forward(Context& ctx, Bottoms bottoms, Tops tops) {
  const Shape& shape = bottoms[0]->shape();
  const std::span<const float> x = bottoms[0]->data.host();
  const std::span<float> steps = steps_.host_out();
  std::ranges::fill(steps, 0.0f);
  begin();
  for (std::int64_t item = 0; item < shape[0]; ++item) {
    const std::vector<Truth> truths = truths_of(ctx, *bottoms[1], item);
    if (ctx.failed()) return;
    const std::int64_t first = item * shape.count(1);
    step({x.data() + first, steps.data() + first, shape[2], shape[3], boxes(), classes()}, truths);
  }
  tops[0]->data.host_out()[0] = static_cast<float>(loss_of(steps) / static_cast<double>(shape[0]));
}

void YoloLoss::backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                        Bottoms bottoms) {
  if (!propagate[0]) return;
  ops::copy(ctx, steps_, bottoms[0]->grad);
  ops::scale(ctx, static_cast<float>(upstream(tops) / static_cast<double>(steps_.shape()[0])),
             bottoms[0]->grad);
}

}  // namespace shoal
