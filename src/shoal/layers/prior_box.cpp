// PriorBox layer: boxes of several sizes and shapes around each place of a feature map.
#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

struct Sides {
  float width = 0, height = 0;  // pixels of the image
};

constexpr float kSameRatio = 1e-6f;  // ratios that are nearer are one

// The prior boxes of SSD, as parts of the image's width and height.
//   bottom[0] feature map (N, C, H, W)   bottom[1] image (N, C', h, w): only their shapes count
//   top[0] (1, 2, H W P 4): boxes (xmin, ymin, xmax, ymax), then four variances of each
// At each place, row by row, P boxes: for each min_size, whole pixels of it (3.7 is 3), a square of
// it; one of sqrt(min_size max_size), if there are max_sizes; one of each aspect_ratio, and of its
// inverse with flip, with the area of the first. A place's middle is (its number + offset) steps.
// The numbers are made on the host when the shapes change. Throws ConfigError for sizes, steps and
// variances that are not above 0. Source: SSD's PriorBoxLayer.
class PriorBox final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2}; }
  Propagates propagates(int) const override { return Propagates::kNothing; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false, .backward = false}; }

  void setup(Context&, Bottoms, Tops) override {
    check_sizes();
    check_variances();
    const PriorBoxParameter& prior = param().prior_box_param();
    only_one(prior.has_img_size(), prior.has_img_h() || prior.has_img_w(), "img_size",
             "img_h and img_w");
    only_one(prior.has_step(), prior.has_step_h() || prior.has_step_w(), "step",
             "step_h and step_w");
    if (prior.has_img_h() != prior.has_img_w() || prior.has_step_h() != prior.has_step_w())
      throw config_error(param(), "prior_box_param has one of img_h and img_w, or of step_h and ",
                         "step_w, without the other; give both");
    if ((prior.has_step() && !(prior.step() > 0)) || (prior.has_img_size() && !prior.img_size()) ||
        (prior.has_step_h() && !(prior.step_h() > 0 && prior.step_w() > 0)) ||
        (prior.has_img_h() && (!prior.img_h() || !prior.img_w())))
      throw config_error(param(), "steps and sizes of the image in prior_box_param must be above ",
                         "0; leave them out to take those of the bottoms");
    list_boxes();
  }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    for (const Blob* blob : bottom)
      if (blob->shape().axes() != 4)
        throw config_error(param(), "bottom '", blob->name, "' has shape ", blob->shape().str(),
                           "; it must be (N, C, H, W)");
    const Shape& map = bottom[0]->shape();
    top[0]->reshape(Shape{1, 2, map[2] * map[3] * static_cast<std::int64_t>(boxes_.size()) * 4});
  }

  void forward(Context&, Bottoms bottom, Tops top) override {
    const PriorBoxParameter& prior = param().prior_box_param();
    const Shape &map = bottom[0]->shape(), &image = bottom[1]->shape();
    const auto map_h = map[2], map_w = map[3];
    float image_h = static_cast<float>(image[2]), image_w = static_cast<float>(image[3]);
    if (prior.has_img_size()) image_h = image_w = static_cast<float>(prior.img_size());
    if (prior.has_img_h()) {
      image_h = static_cast<float>(prior.img_h());
      image_w = static_cast<float>(prior.img_w());
    }
    float step_h = image_h / static_cast<float>(map_h),
          step_w = image_w / static_cast<float>(map_w);
    if (prior.has_step()) step_h = step_w = prior.step();
    if (prior.has_step_h()) {
      step_h = prior.step_h();
      step_w = prior.step_w();
    }
    const std::span<float> out = top[0]->data.host_out();
    std::size_t at = 0;
    for (std::int64_t h = 0; h < map_h; ++h)
      for (std::int64_t w = 0; w < map_w; ++w) {
        const float x = (static_cast<float>(w) + prior.offset()) * step_w;
        const float y = (static_cast<float>(h) + prior.offset()) * step_h;
        for (const Sides& box : boxes_) {
          out[at++] = (x - box.width / 2) / image_w;
          out[at++] = (y - box.height / 2) / image_h;
          out[at++] = (x + box.width / 2) / image_w;
          out[at++] = (y + box.height / 2) / image_h;
        }
      }
    if (prior.clip())
      for (float& x : out.first(at)) x = std::clamp(x, 0.0f, 1.0f);
    for (std::size_t i = at; i < out.size(); ++i) out[i] = variances_[i % variances_.size()];
  }

  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  void only_one(bool one, bool other, const char* field, const char* fields) const {
    if (one && other)
      throw config_error(param(), "prior_box_param has ", field, " and ", fields,
                         "; give one or the other");
  }

  void check_sizes() const {
    const PriorBoxParameter& prior = param().prior_box_param();
    if (prior.min_size_size() == 0)
      throw config_error(param(), "prior_box_param has no min_size, the side of the first box in ",
                         "pixels; give one");
    if (prior.max_size_size() > 0 && prior.max_size_size() != prior.min_size_size())
      throw config_error(param(), "prior_box_param has ", prior.min_size_size(), " min_size and ",
                         prior.max_size_size(), " max_size; give one max_size for each, or none");
    for (int i = 0; i < prior.min_size_size(); ++i) {
      if (!(prior.min_size(i) > 0))
        throw config_error(param(), "min_size is ", prior.min_size(i), "; it must be above 0");
      if (prior.max_size_size() > 0 && !(prior.max_size(i) > prior.min_size(i)))
        throw config_error(param(), "max_size ", prior.max_size(i), " is not above its min_size ",
                           prior.min_size(i));
    }
    for (const float ratio : prior.aspect_ratio())
      if (!(ratio > 0))
        throw config_error(param(), "aspect_ratio is ", ratio, "; it must be above 0");
  }

  void check_variances() {
    const PriorBoxParameter& prior = param().prior_box_param();
    variances_.assign(prior.variance().begin(), prior.variance().end());
    if (variances_.empty()) variances_.push_back(0.1f);
    if (variances_.size() != 1 && variances_.size() != 4)
      throw config_error(param(), "prior_box_param has ", variances_.size(),
                         " variances; give one, or four: of x, y, width and height");
    for (const float variance : variances_)
      if (!(variance > 0))
        throw config_error(param(), "variance is ", variance, "; it must be above 0");
  }

  // Puts the ratio, and its inverse with flip, at the end, unless the ratio is there.
  static void add_ratio(float ratio, bool flip, std::vector<float>& ratios) {
    for (const float other : ratios)
      if (std::fabs(ratio - other) < kSameRatio) return;
    ratios.push_back(ratio);
    if (flip) ratios.push_back(1 / ratio);
  }

  void list_boxes() {
    const PriorBoxParameter& prior = param().prior_box_param();
    std::vector<float> ratios{1};
    for (const float ratio : prior.aspect_ratio()) add_ratio(ratio, prior.flip(), ratios);
    for (int i = 0; i < prior.min_size_size(); ++i) {
      const float side = std::trunc(prior.min_size(i));
      boxes_.push_back({side, side});
      if (prior.max_size_size() > 0) {
        const float larger = std::sqrt(side * std::trunc(prior.max_size(i)));
        boxes_.push_back({larger, larger});
      }
      for (const float ratio : ratios)
        if (std::fabs(ratio - 1) >= kSameRatio)
          boxes_.push_back({side * std::sqrt(ratio), side / std::sqrt(ratio)});
    }
  }

  std::vector<Sides> boxes_;  // of each place
  std::vector<float> variances_;
};

}  // namespace

std::unique_ptr<Layer> make_PriorBox(const LayerParameter& param) {
  return std::make_unique<PriorBox>(param);
}

}  // namespace shoal
