// HDF5Output layer: writes what it is given into an HDF5 file.
#include <utility>

#include "shoal/layers/layer.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/hdf5.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Appends each batch to the datasets "data" and "label" of a file, which is made anew with the
// layer.
//   bottom[0] (N, ...) data   bottom[1] (N, ...) label   no top
// Between two passes the file is closed, and whole. If several nets train together, each writes a
// file of its own, <file_name>_<number of the net>. backward overwrites the bottoms' gradients with
// zeros. Source: BVLC Caffe 1.0's HDF5Output layer, which fails at its second batch.
class HDF5Output final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 2, .max_bottoms = 2, .min_tops = 0, .max_tops = 0};
  }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false}; }

  void setup(Context& ctx, Bottoms, Tops) override {
    if (!why_no_hdf5().empty()) throw config_error(param(), why_no_hdf5());
    path_ = param().hdf5_output_param().file_name();
    if (path_.empty()) throw config_error(param(), "hdf5_output_param gives no file_name");
    if (ctx.share().count() > 1) path_ = str(path_, "_", ctx.share().index());
    Result<Hdf5File> file = Hdf5File::open(path_, Hdf5File::Mode::kCreate, Code::kData);
    const Status status = file.ok() ? file.value().close() : Status(file.error());
    if (!status.ok()) throw config_error(status.error().code, param(), status.error().message);
  }

  void reshape(Context&, Bottoms bottom, Tops) override {
    const Shape &data = bottom[0]->shape(), &label = bottom[1]->shape();
    if (data.axes() == 0 || label.axes() == 0 || data[0] != label[0])
      throw config_error(param(), "its bottoms have the shapes ", data.str(), " and ", label.str(),
                         "; their first axes, the rows, must have the same size");
  }

  void forward(Context& ctx, Bottoms bottom, Tops) override {
    if (Status status = append(bottom); !status.ok()) ctx.fail(status.error());
  }

  void backward(Context& ctx, Tops, const std::vector<bool>& propagate, Bottoms bottom) override {
    for (std::size_t i = 0; i < bottom.size(); ++i)
      if (propagate[i]) ops::fill(ctx, 0, bottom[i]->grad);
  }

 private:
  Status append(Bottoms bottom) const {
    Result<Hdf5File> file = Hdf5File::open(path_, Hdf5File::Mode::kAppend, Code::kData);
    if (!file.ok()) return file.error();
    for (const auto& [blob, name] : {std::pair(bottom[0], "data"), std::pair(bottom[1], "label")}) {
      const Status status = file.value().append(name, blob->shape().dims(), blob->data.host());
      if (!status.ok()) return status;
    }
    return file.value().close();
  }
  std::string path_;
};

}  // namespace

std::unique_ptr<Layer> make_HDF5Output(const LayerParameter& param) {
  return std::make_unique<HDF5Output>(param);
}

}  // namespace shoal
