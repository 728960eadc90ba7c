#include "shoal/data/random_sizes.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "shoal/data/image_changes.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

constexpr int kLargest = 1 << 14;  // a side of a picture

struct Bounds {
  const char* name;
  float lower, upper;
};

Error wrong(const std::string& words) { return Error{Code::kConfig, words}; }

Status check_order(const Bounds& bounds) {
  if (bounds.lower <= bounds.upper) return {};
  return wrong(str(bounds.name, ": the lower bound is ", bounds.lower, ", above the upper one, ",
                   bounds.upper));
}

// Returns a whole number from `low` to `high`, both of which may come.
int whole(Random& random, int low, int high) {
  return low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low) + 1));
}

Result<Image> resized(Image image, ResizeParameter resize, int height, int width, Random& random) {
  if (height < 1 || width < 1 || height > kLargest || width > kLargest)
    return Error{Code::kData, str("is ", to_string(image.size), " and would become ", height, " x ",
                                  width, "; a side is from 1 to ", kLargest)};
  if (height == image.size.height && width == image.size.width) return image;
  resize.set_height(static_cast<std::uint32_t>(height));
  resize.set_width(static_cast<std::uint32_t>(width));
  return resize_by(resize, random, std::move(image));
}

// Resizes so that the shorter side has this length.
Result<Image> with_shorter_side(Image image, const ResizeParameter& resize, int side,
                                Random& random) {
  const auto height = static_cast<float>(image.size.height),
             width = static_cast<float>(image.size.width);
  const auto longer = [side](float a, float b) {
    return static_cast<int>(a / b * static_cast<float>(side));
  };
  const bool wide = height < width;
  return resized(std::move(image), resize, wide ? side : longer(height, width),
                 wide ? longer(width, height) : side, random);
}

class Cropping : public RandomSizes {
 public:
  Cropping(const TransformationParameter& param, bool training)
      : side_(static_cast<int>(param.crop_size())), training_(training) {}

 protected:
  int side() const { return side_; }
  Result<Image> crop(const Result<Image>& image, Random& random) const {
    if (!image.ok()) return image.error();
    const ImageSize& size = image.value().size;
    if (size.height < side_ || size.width < side_)
      return Error{Code::kData, str("is ", to_string(size), " once it is resized, smaller than ",
                                    "crop_size ", side_)};
    const int rows = size.height - side_, columns = size.width - side_;
    ImagePart part{rows / 2, columns / 2, side_, side_};
    if (training_) {
      part.top = whole(random, 0, rows);
      part.left = whole(random, 0, columns);
    }
    return cut_out(image.value(), part);
  }

 private:
  int side_;
  bool training_;
};

class RandomResize final : public Cropping {
 public:
  RandomResize(const TransformationParameter& param, bool training)
      : Cropping(param, training), param_(param.random_resize_param()) {}
  Result<Image> apply(Image image, Random random) const override {
    const auto [least, most] = std::minmax(image.size.height, image.size.width);
    const int low = param_.min_size() ? static_cast<int>(param_.min_size()) : least,
              high = param_.max_size() ? static_cast<int>(param_.max_size()) : most;
    if (low > high)
      return Error{Code::kData, str("is ", to_string(image.size), ", and random_resize_param ",
                                    "has no side from ", low, " to ", high, " for it")};
    const int shorter = whole(random, low, high);
    return crop(with_shorter_side(std::move(image), param_.resize_param(), shorter, random),
                random);
  }
  static Status check(const RandomResizeParameter& param) {
    if (param.max_size() > kLargest || param.min_size() > kLargest)
      return wrong(str("random_resize_param: a side is at most ", kLargest));
    return param.max_size()
               ? check_order({"random_resize_param", static_cast<float>(param.min_size()),
                              static_cast<float>(param.max_size())})
               : Status();
  }

 private:
  RandomResizeParameter param_;
};

class RandomAspectRatio final : public Cropping {
 public:
  RandomAspectRatio(const TransformationParameter& param, bool training)
      : Cropping(param, training), param_(param.random_aspect_ratio_param()) {}
  Result<Image> apply(Image image, Random random) const override {
    const ImageSize& size = image.size;
    const float area = static_cast<float>(size.height) * static_cast<float>(size.width);
    for (std::uint32_t i = 0; i < param_.max_attempt(); ++i) {
      const float root =
          std::sqrt(area * random.uniform(param_.min_area_ratio(), param_.max_area_ratio()));
      const float change = param_.aspect_ratio_change();
      const float factor = random.uniform(change, 1 / change);
      ImagePart part{0, 0, static_cast<int>(root * factor), static_cast<int>(root / factor)};
      if (random.unit() < 0.5f) std::swap(part.height, part.width);
      if (part.height > size.height || part.width > size.width || part.height < 1 || part.width < 1)
        continue;
      part.top = whole(random, 0, size.height - part.height);
      part.left = whole(random, 0, size.width - part.width);
      return resized(cut_out(image, part), param_.resize_param(), side(), side(), random);
    }
    return crop(with_shorter_side(std::move(image), param_.resize_param(), side(), random), random);
  }
  static Status check(const RandomAspectRatioParameter& param) {
    constexpr unsigned kMostAttempts = 10000;
    if (!(param.min_area_ratio() > 0 && param.min_area_ratio() <= param.max_area_ratio() &&
          param.max_area_ratio() <= 1))
      return wrong(
          "random_aspect_ratio_param: min_area_ratio and max_area_ratio are parts of the "
          "picture, above 0 and at most 1, and the first is not above the second");
    if (!(param.aspect_ratio_change() > 0 && param.aspect_ratio_change() <= 1))
      return wrong(str("random_aspect_ratio_param: aspect_ratio_change is ",
                       param.aspect_ratio_change(), "; it is above 0 and at most 1"));
    if (param.max_attempt() > kMostAttempts)
      return wrong(str("random_aspect_ratio_param: max_attempt is ", param.max_attempt(),
                       "; it is at most ", kMostAttempts));
    return {};
  }

 private:
  RandomAspectRatioParameter param_;
};

class Stretch final : public Cropping {
 public:
  Stretch(const TransformationParameter& param, bool training)
      : Cropping(param, training), param_(param) {}
  Result<Image> apply(Image image, Random random) const override {
    const ImageSize& size = image.size;
    int shorter = std::min(size.height, size.width);
    const auto scale_of = static_cast<float>(shorter);
    if (param_.img_rand_resize_lower() > 0 && param_.img_rand_resize_upper() > 0)
      shorter = whole(random, static_cast<int>(param_.img_rand_resize_lower()),
                      static_cast<int>(param_.img_rand_resize_upper()));
    const float scale = static_cast<float>(shorter) / scale_of;
    float height = scale * static_cast<float>(size.height),
          width = scale * static_cast<float>(size.width);
    change_ratio(random, height, width);
    if (param_.vertical_stretch_lower() > 0 && param_.vertical_stretch_upper() > 0)
      height *= random.uniform(param_.vertical_stretch_lower(), param_.vertical_stretch_upper());
    if (param_.horizontal_stretch_lower() > 0 && param_.horizontal_stretch_upper() > 0)
      width *= random.uniform(param_.horizontal_stretch_lower(), param_.horizontal_stretch_upper());
    const int new_height = side_of(height, size.height), new_width = side_of(width, size.width);
    return crop(
        resized(std::move(image), method(new_height <= size.height && new_width <= size.width),
                new_height, new_width, random),
        random);
  }
  static Status check(const TransformationParameter& param) {
    if (param.img_rand_resize_lower() > kLargest || param.img_rand_resize_upper() > kLargest)
      return wrong(str("img_rand_resize_lower and _upper are at most ", kLargest));
    const Bounds all[] = {
        {"img_rand_resize", static_cast<float>(param.img_rand_resize_lower()),
         static_cast<float>(param.img_rand_resize_upper())},
        {"rand_resize_ratio", param.rand_resize_ratio_lower(), param.rand_resize_ratio_upper()},
        {"vertical_stretch", param.vertical_stretch_lower(), param.vertical_stretch_upper()},
        {"horizontal_stretch", param.horizontal_stretch_lower(), param.horizontal_stretch_upper()}};
    for (const Bounds& bounds : all)
      if (Status ordered = check_order(bounds); !ordered.ok()) return ordered;
    return {};
  }

 private:
  void change_ratio(Random& random, float& height, float& width) const {
    if (!(param_.rand_resize_ratio_lower() >= 1 && param_.rand_resize_ratio_upper() > 1)) return;
    const float ratio =
        random.uniform(param_.rand_resize_ratio_lower(), param_.rand_resize_ratio_upper());
    const bool widens = width == height ? random.unit() < 0.5f : width > height;
    if (widens)
      width = height * ratio;
    else
      height = width * ratio;
  }
  int side_of(float wanted, int own) const {
    constexpr float kMost = 1 << 20;  // beyond which no int is asked for
    const int at_least = std::max(side(), static_cast<int>(std::lround(std::min(wanted, kMost))));
    return param_.allow_upscale() ? at_least : std::min(at_least, own);
  }
  ResizeParameter method(bool shrinks) const {
    ResizeParameter resize;
    switch (shrinks ? param_.interpolation_algo_down() : param_.interpolation_algo_up()) {
      case TransformationParameter::INTER_NEAREST:
        resize.add_interp_mode(ResizeParameter::NEAREST);
        break;
      case TransformationParameter::INTER_LINEAR:
        resize.add_interp_mode(ResizeParameter::LINEAR);
        break;
      case TransformationParameter::INTER_CUBIC:
        resize.add_interp_mode(ResizeParameter::CUBIC);
        break;
      case TransformationParameter::INTER_AREA: resize.add_interp_mode(ResizeParameter::AREA);
    }
    return resize;
  }
  TransformationParameter param_;
};

class FixedPlaces final : public Cropping {
 public:
  FixedPlaces(const TransformationParameter& param, bool training)
      : Cropping(param, training),
        param_(param),
        ratios_(param.scale_ratios().begin(), param.scale_ratios().end()) {
    if (ratios_.empty()) ratios_ = {1, 0.875f, 0.75f, 0.66f};
  }
  Result<Image> apply(Image image, Random random) const override {
    const ImageSize& size = image.size;
    if (size.height < side() || size.width < side())
      return Error{Code::kData, str("is ", to_string(size), ", smaller than crop_size ", side())};
    ImagePart part = sized(size, random);
    put(size, random, part);
    if (part.height == side() && part.width == side()) return cut_out(image, part);
    return resize_part(image, part, side(), side());
  }
  static Status check(const TransformationParameter& param) {
    const auto fits = [](float ratio) { return ratio > 0 && ratio <= 1; };
    if (!std::ranges::all_of(param.scale_ratios(), fits))
      return wrong("scale_ratios are parts of the shorter side, above 0 and at most 1");
    if (param.scale_ratios_size() > 0 && !param.multi_scale())
      return wrong("scale_ratios say nothing without multi_scale: true");
    if (param.more_fix_crop() && !param.fix_crop())
      return wrong("more_fix_crop says nothing without fix_crop: true");
    if (param.max_distort() < 0)
      return wrong(str("max_distort is ", param.max_distort(), "; it is 0 or above"));
    return {};
  }

 private:
  // A side that is nearly crop_size is crop_size, so that nothing is resized.
  int near_side(float ratio, int shorter) const {
    constexpr int kNear = 3;
    const int wanted = std::max(1, static_cast<int>(static_cast<float>(shorter) * ratio));
    return std::abs(wanted - side()) < kNear ? side() : wanted;
  }
  ImagePart sized(const ImageSize& size, Random& random) const {
    if (!param_.multi_scale()) return {0, 0, side(), side()};
    const int shorter = std::min(size.height, size.width);
    const auto count = std::ssize(ratios_);
    std::vector<ImagePart> parts;
    for (std::ptrdiff_t y = 0; y < count; ++y)
      for (std::ptrdiff_t x = 0; x < count; ++x)
        if (std::abs(y - x) <= param_.max_distort())
          parts.push_back({0, 0, near_side(ratios_[static_cast<std::size_t>(y)], shorter),
                           near_side(ratios_[static_cast<std::size_t>(x)], shorter)});
    return parts[random.below(parts.size())];
  }
  void put(const ImageSize& size, Random& random, ImagePart& part) const {
    const int rows = size.height - part.height, columns = size.width - part.width;
    if (!param_.fix_crop()) {
      part.top = whole(random, 0, rows);
      part.left = whole(random, 0, columns);
      return;
    }
    // In quarters of the room, rounded down.
    constexpr std::array<std::array<int, 2>, 13> kPlaces = {{{0, 0},
                                                             {0, 4},
                                                             {4, 0},
                                                             {4, 4},
                                                             {2, 2},
                                                             {0, 2},
                                                             {4, 2},
                                                             {2, 0},
                                                             {2, 4},
                                                             {1, 1},
                                                             {1, 3},
                                                             {3, 1},
                                                             {3, 3}}};
    constexpr std::size_t kFew = 5;
    const auto& [y, x] = kPlaces[random.below(param_.more_fix_crop() ? kPlaces.size() : kFew)];
    part.top = y * (rows / 4);
    part.left = x * (columns / 4);
  }
  TransformationParameter param_;
  std::vector<float> ratios_;
};

struct Field {
  bool given;
  const char* name;
};

std::vector<Field> nvidias(const TransformationParameter& p) {
  return {{p.has_img_rand_resize_lower(), "img_rand_resize_lower"},
          {p.has_img_rand_resize_upper(), "img_rand_resize_upper"},
          {p.has_rand_resize_ratio_lower(), "rand_resize_ratio_lower"},
          {p.has_rand_resize_ratio_upper(), "rand_resize_ratio_upper"},
          {p.has_vertical_stretch_lower(), "vertical_stretch_lower"},
          {p.has_vertical_stretch_upper(), "vertical_stretch_upper"},
          {p.has_horizontal_stretch_lower(), "horizontal_stretch_lower"},
          {p.has_horizontal_stretch_upper(), "horizontal_stretch_upper"}};
}

std::vector<Field> yjxiongs(const TransformationParameter& p) {
  return {{p.multi_scale(), "multi_scale"},
          {p.scale_ratios_size() > 0, "scale_ratios"},
          {p.fix_crop(), "fix_crop"},
          {p.more_fix_crop(), "more_fix_crop"}};
}

std::string first(const std::vector<Field>& fields) {
  const auto found = std::ranges::find_if(fields, &Field::given);
  return found == fields.end() ? "" : found->name;
}

template <class Sizes, class Param>
Result<std::shared_ptr<const RandomSizes>> made(const TransformationParameter& param,
                                                const Param& checked, bool training) {
  if (Status good = Sizes::check(checked); !good.ok()) return good.error();
  return std::shared_ptr<const RandomSizes>(std::make_shared<Sizes>(param, training));
}

}  // namespace

std::string RandomSizes::first_field(const TransformationParameter& param) {
  if (param.has_random_resize_param()) return "random_resize_param";
  if (param.has_random_aspect_ratio_param()) return "random_aspect_ratio_param";
  const std::string of_nvidia = first(nvidias(param));
  return of_nvidia.empty() ? first(yjxiongs(param)) : of_nvidia;
}

Result<std::shared_ptr<const RandomSizes>> RandomSizes::create(const TransformationParameter& param,
                                                               bool training) {
  std::vector<std::string> families;
  for (const auto& [given, name] :
       {Field{param.has_random_resize_param(), "random_resize_param"},
        Field{param.has_random_aspect_ratio_param(), "random_aspect_ratio_param"}})
    if (given) families.push_back(name);
  for (const std::vector<Field>& fields : {nvidias(param), yjxiongs(param)})
    if (!first(fields).empty()) families.push_back(first(fields));
  if (families.empty()) return std::shared_ptr<const RandomSizes>();
  if (families.size() > 1)
    return wrong(str(families[0], " and ", families[1],
                     " are of two ways to draw a picture's size; keep one"));
  if (param.crop_size() == 0)
    return wrong(str(families[0], " wants crop_size, so that all pictures get one size"));
  if (param.has_mean_file() && first(nvidias(param)).empty())
    return wrong(str(families[0], ": a picture whose size is drawn has no place in mean_file; ",
                     "give mean_value"));
  if (param.has_random_resize_param())
    return made<RandomResize>(param, param.random_resize_param(), training);
  if (param.has_random_aspect_ratio_param())
    return made<RandomAspectRatio>(param, param.random_aspect_ratio_param(), training);
  if (!first(nvidias(param)).empty()) return made<Stretch>(param, param, training);
  Result<std::shared_ptr<const RandomSizes>> fixed = made<FixedPlaces>(param, param, training);
  if (!fixed.ok() || training) return fixed;
  return std::shared_ptr<const RandomSizes>();
}

}  // namespace shoal
