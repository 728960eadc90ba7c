// InfogainLoss layer: the softmax loss, weighted by a matrix of classes.
#include "shoal/layers/blob_proto.h"
#include "shoal/layers/softmax_loss.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"

namespace shoal {
namespace {

// -sum_j H[label, j] ln(softmax_j): SoftmaxLossLayer has the shapes. H, C x C for C classes, is the
// file infogain_loss_param.source (a binary BlobProto) or bottom[2]. A probability below 1e-20
// counts as that in the loss only. With H the identity this is SoftmaxWithLoss. Throws ConfigError
// if H is missing, given twice or of another size.
class InfogainLoss final : public SoftmaxLossLayer {
 public:
  explicit InfogainLoss(const LayerParameter& layer)
      : SoftmaxLossLayer(layer, layer.infogain_loss_param().axis()) {}
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 3, .max_tops = 2}; }

  void setup(Context&, Bottoms bottoms, Tops) override {
    const InfogainLossParameter& infogain = param().infogain_loss_param();
    if (infogain.has_source() == (bottoms.size() == 3))
      throw config_error(
          param(),
          infogain.has_source()
              ? "infogain_loss_param.source and a third bottom both give the matrix; drop one"
              : "needs its matrix: infogain_loss_param.source or a third bottom");
    if (!infogain.has_source()) return;
    const BlobProto proto = read_blob_proto(infogain.source());
    const Shape shape = shape_of(proto);
    if (number_count(proto) != shape.count())
      throw config_error(param(), infogain.source(), " holds ", number_count(proto),
                         " numbers for a matrix of shape ", shape.str());
    matrix_.reshape(shape);
    copy_numbers(proto, matrix_);
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    SoftmaxLossLayer::reshape(ctx, bottoms, tops);
    const Shape& shape = matrix(bottoms).shape();
    if (shape.count() != desc().classes * desc().classes)
      throw config_error(param(), "the infogain matrix has shape ", shape.str(), "; bottom '",
                         bottoms[0]->name, "' of shape ", bottoms[0]->shape().str(), " has ",
                         desc().classes, " classes, which want ", desc().classes, " x ",
                         desc().classes);
  }

 private:
  const Tensor& matrix(Bottoms bottoms) const {
    return bottoms.size() == 3 ? bottoms[2]->data : matrix_;
  }
  void put_loss(Context& ctx, const Tensor& probs, Bottoms bottoms, double divisor,
                Tensor& loss) override {
    ops::infogain_loss(ctx, desc(), probs, bottoms[1]->data, matrix(bottoms), 1e-20f, divisor,
                       loss);
  }
  void gradient(Context& ctx, const Tensor& probs, Bottoms bottoms, float scale,
                Tensor& dscores) override {
    ops::softmax_infogain_loss_backward(ctx, desc(), probs, bottoms[1]->data, matrix(bottoms),
                                        scale, dscores);
  }

  Tensor matrix_;  // from the file
};

}  // namespace

std::unique_ptr<Layer> make_InfogainLoss(const LayerParameter& param) {
  return std::make_unique<InfogainLoss>(param);
}

}  // namespace shoal
