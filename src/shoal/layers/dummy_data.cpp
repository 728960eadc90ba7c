// DummyData layer: makes tops from fillers instead of records.
#include "shoal/layers/filler.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Numbers from fillers instead of records.
//   top[i] the i-th shape of dummy_data_param, filled by the i-th filler (one of either serves all
//   tops; no filler: zeros)
// If all fillers are constant the tops are filled once, else anew at every forward from the
// context's random numbers.
class DummyData final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .max_tops = Arity::kAny};
  }
  bool keeps_tops() const override {
    for (const FillerParameter& filler : dummy().data_filler())
      if (filler.type() != "constant") return false;
    return true;
  }

  Replays replays() const override { return {.forward = false}; }  // the host fills

  void setup(Context&, Bottoms, Tops top) override {
    const int tops = static_cast<int>(top.size());
    const auto check = [&](const char* field, int given, bool none_is_right) {
      if (given != 1 && given != tops && !(given == 0 && none_is_right))
        throw config_error(param(), "dummy_data_param has ", given, " of '", field, "' for ", tops,
                           " tops; give one, or one a top");
    };
    check("data_filler", dummy().data_filler_size(), true);
    const bool old_sizes = dummy().num_size() + dummy().channels_size() + dummy().height_size() +
                               dummy().width_size() >
                           0;
    if (dummy().shape_size() > 0 && old_sizes)
      throw config_error(param(),
                         "dummy_data_param has both 'shape' and the older num, channels, height, "
                         "width; give one of them");
    if (!old_sizes) return check("shape", dummy().shape_size(), false);
    check("num", dummy().num_size(), false);
    check("channels", dummy().channels_size(), false);
    check("height", dummy().height_size(), false);
    check("width", dummy().width_size(), false);
  }

  void reshape(Context&, Bottoms, Tops top) override {
    for (int i = 0; i < static_cast<int>(top.size()); ++i) {
      try {
        top[static_cast<std::size_t>(i)]->reshape(shape_of(i));
        check_filler(filler_of(i), shape_of(i));
      } catch (const ConfigError& error) {
        throw config_error(param(), "top ", i, ": ", error.what());
      }
    }
    filled_ = false;
  }

  void forward(Context& ctx, Bottoms, Tops top) override {
    if (filled_ && keeps_tops()) return;
    for (int i = 0; i < static_cast<int>(top.size()); ++i)
      fill(filler_of(i), ctx.random(), top[static_cast<std::size_t>(i)]->data);
    filled_ = true;
  }
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  const DummyDataParameter& dummy() const { return param().dummy_data_param(); }
  const FillerParameter& filler_of(int top) const {
    const int given = dummy().data_filler_size();
    return given == 0 ? FillerParameter::default_instance()
                      : dummy().data_filler(given == 1 ? 0 : top);
  }
  Shape shape_of(int top) const {
    if (dummy().shape_size() > 0) {
      const BlobShape& shape = dummy().shape(dummy().shape_size() == 1 ? 0 : top);
      return Shape(std::vector<std::int64_t>(shape.dim().begin(), shape.dim().end()));
    }
    const auto size = [top](const auto& sizes) {
      return static_cast<std::int64_t>(sizes.Get(sizes.size() == 1 ? 0 : top));
    };
    return Shape{size(dummy().num()), size(dummy().channels()), size(dummy().height()),
                 size(dummy().width())};
  }
  bool filled_ = false;
};

}  // namespace

std::unique_ptr<Layer> make_DummyData(const LayerParameter& param) {
  return std::make_unique<DummyData>(param);
}

}  // namespace shoal
