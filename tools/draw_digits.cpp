// Draws digits as a hand would, for the quickstart and for tests: strokes of a few styles, bent,
// slanted, warped, blurred and noisy.
#include <gflags/gflags.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "common/conversion.h"
#include "common/tool.h"
#include "shoal/base/error.h"
#include "shoal/base/file.h"
#include "shoal/base/random.h"
#include "shoal/proto/blob.pb.h"

DEFINE_string(backend, "datumfile", "datumfile, lmdb or leveldb");
DEFINE_int32(train, 30000, "training images");
DEFINE_int32(test, 2000, "test images");
DEFINE_int32(seed, 1, "the same seed draws the same images");
DEFINE_string(sheet, "",
              "also writes a sheet of the first 400 training images, as PGM, to this file");

namespace shoal {
namespace {

constexpr int kSide = 28;
using Image = std::array<float, kSide * kSide>;  // ink, 0 to 1, row by row

struct Point {
  float x = 0, y = 0;
};
Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator*(float s, Point a) { return {s * a.x, s * a.y}; }

// A style is strokes, parted by '|'; a stroke is points that a smooth curve goes through, each as
// XXYY in hundredths of the digit's box, x to the right and y down. Strokes meet in a corner where
// they share a point.
struct Style {
  int digit;
  std::string_view strokes;
};
constexpr Style kStyles[] = {
    {0, "5003 2217 1050 2283 5097 7883 9050 7817 5003"},
    {0, "6508 3804 1430 1265 3595 6892 8860 8225 6006 3512"},
    {0, "5502 2520 1255 3092 6295 8568 8430 7008"},
    {1, "5003 5097"},
    {1, "2530 5503|5503 5597"},
    {1, "2530 5503|5503 5597|2597 8297"},
    {1, "6003 5050 4597"},
    {2, "1530 2508 5503 8220 7545 4570 1296|1296 9096"},
    {2, "1528 3006 6004 8024 6852 3580 1592 1280 3076 5590 9290"},
    {2, "1812 5003 8018 7245 1094|1094 5088 9294"},
    {3, "1515 4503 7818 7040 4548|4548 8055 8578 5597 1285"},
    {3, "1506 8006|8006 4542|4542 8052 8576 5596 1486"},
    {3, "1810 5503 7520 4046 7862 7588 4598 1088"},
    {4, "2805 1262|1262 9062|6525 6297"},
    {4, "6503 1065|1065 9265|6503 6597"},
    {4, "2003 1835 3055 8050|8203 7850 7497"},
    {5, "8205 2505|2505 2045|2045 5036 8252 8280 5097 1286"},
    {5, "8006 3508 2442 5538 8260 7090 3597 1285"},
    {5, "2808 2242|2242 5838 8062 6892 3297 1288|2808 8504"},
    {6, "7205 3525 1460 2590 5596 8078 7055 4054 1872"},
    {6, "6003 3030 1865 3595 7090 7865 5052 2268"},
    {6, "4803 1555 2590 6098 8575 6055 2570"},
    {7, "1008 8808|8808 6045 4297"},
    {7, "1222 1208|1208 8808|8808 6045 4297|3550 7850"},
    {7, "1012 4506 8610 6550 5097"},
    {8, "7515 4503 2020 3542 7058 8580 5097 1580 3058 6840 8020 7515"},
    {8, "5003 2412 2436 5047 7636 7612 5003|5047 1860 1886 5098 8286 8260 5047"},
    {8, "8208 4806 2024 5048 8474 5098 1676 5048 8022 8208"},
    {9, "8025 5504 2218 2545 5552 8028|8025 7860 6897"},
    {9, "7812 4504 1828 3550 6844 8018|8018 8460 6595 2590"},
    {9, "8222 5003 2030 4852 8030|8222 8097"},
};

using Stroke = std::vector<Point>;

std::vector<Stroke> parse(std::string_view text) {
  std::vector<Stroke> strokes(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '|') strokes.emplace_back();
    if (text[at] < '0' || text[at] > '9') continue;
    const auto digit = [&](std::size_t i) { return static_cast<float>(text[at + i] - '0'); };
    strokes.back().push_back({(10 * digit(0) + digit(1)) / 100, (10 * digit(2) + digit(3)) / 100});
    at += 3;
  }
  return strokes;
}

// Moves every point a little; points at one place stay together.
void unsettle(std::vector<Stroke>& strokes, float amount, Random& random) {
  std::map<std::pair<float, float>, Point> moved;
  for (Stroke& stroke : strokes)
    for (Point& p : stroke) {
      const auto [place, fresh] = moved.try_emplace({p.x, p.y});
      if (fresh) place->second = p + Point{random.gaussian(0, amount), random.gaussian(0, amount)};
      p = place->second;
    }
}

// Returns a polyline of short pieces along the Catmull-Rom spline through the points.
Stroke smooth(const Stroke& points) {
  constexpr int kPieces = 8;
  const auto point = [&](int i) {
    return points[std::clamp(i, 0, static_cast<int>(points.size()) - 1)];
  };
  Stroke out{points.front()};
  for (int i = 0; i + 1 < static_cast<int>(points.size()); ++i) {
    const Point a = point(i - 1), b = point(i), c = point(i + 1), d = point(i + 2);
    for (int k = 1; k <= kPieces; ++k) {
      const float t = static_cast<float>(k) / kPieces, t2 = t * t, t3 = t2 * t;
      out.push_back(0.5f * ((2 * t2 - t - t3) * a + (2 - 5 * t2 + 3 * t3) * b +
                            (t + 4 * t2 - 3 * t3) * c + (t3 - t2) * d));
    }
  }
  return out;
}

// Maps the digit's box to pixels: turned, slanted, stretched, moved off the middle, and bent by
// slow waves.
class Distortion {
 public:
  explicit Distortion(Random& random) {
    const float turn = random.gaussian(0, 0.13f), slant = random.gaussian(0.1f, 0.18f);
    const float width = random.uniform(10.5f, 18.5f), height = random.uniform(15.5f, 21.5f);
    const float c = std::cos(turn), s = std::sin(turn);
    xx_ = c * width, xy_ = -(c * slant + s) * height;
    yx_ = s * width, yy_ = (c - s * slant) * height;
    centre_ = {13.5f + random.gaussian(0, 1.3f), 13.5f + random.gaussian(0, 1.3f)};
    for (Wave& wave : waves_) {
      wave.along = {random.gaussian(0, 0.2f), random.gaussian(0, 0.2f)};
      wave.push = {random.gaussian(0, 0.7f), random.gaussian(0, 0.7f)};
      wave.phase = random.uniform(0, 2 * std::numbers::pi_v<float>);
    }
  }
  Point operator()(Point p) const {
    p = p + Point{-0.5f, -0.5f};
    const Point straight = centre_ + Point{xx_ * p.x + xy_ * p.y, yx_ * p.x + yy_ * p.y};
    Point bent = straight;
    for (const Wave& wave : waves_)
      bent = bent + std::sin(wave.along.x * straight.x + wave.along.y * straight.y + wave.phase) *
                        wave.push;
    return bent;
  }

 private:
  struct Wave {
    Point along, push;  // radians a pixel; pixels
    float phase;
  };
  float xx_, xy_, yx_, yy_;
  Point centre_;
  std::array<Wave, 3> waves_;
};

float distance(Point p, Point a, Point b) {
  const Point ab = b + -1.f * a, ap = p + -1.f * a;
  const float length2 = ab.x * ab.x + ab.y * ab.y;
  const float along = length2 > 0 ? std::clamp((ap.x * ab.x + ap.y * ab.y) / length2, 0.f, 1.f) : 0;
  return std::hypot(ap.x - along * ab.x, ap.y - along * ab.y);
}

// Ink within `radius` of the line, fading over a pixel.
void ink(Image& image, const Stroke& line, float radius, float strength) {
  for (std::size_t i = 0; i + 1 < line.size(); ++i) {
    const Point a = line[i], b = line[i + 1];
    const auto from = [&](float low) {
      return std::clamp(static_cast<int>(low - radius - 1), 0, kSide - 1);
    };
    const auto to = [&](float high) {
      return std::clamp(static_cast<int>(high + radius + 2), 0, kSide - 1);
    };
    for (int y = from(std::min(a.y, b.y)); y <= to(std::max(a.y, b.y)); ++y)
      for (int x = from(std::min(a.x, b.x)); x <= to(std::max(a.x, b.x)); ++x) {
        const float cover =
            radius + 0.5f - distance({static_cast<float>(x), static_cast<float>(y)}, a, b);
        float& pixel = image[y * kSide + x];
        pixel = std::max(pixel, strength * std::clamp(cover, 0.f, 1.f));
      }
  }
}

// A piece of a neighbour's stroke that reaches in from an edge.
void smear(Image& image, float radius, Random& random) {
  const float along = random.uniform(0, kSide), edge = random.below(2) ? -1.f : kSide;
  const Point outside = random.below(2) ? Point{along, edge} : Point{edge, along};
  const Point middle{kSide / 2.f + random.gaussian(0, 6), kSide / 2.f + random.gaussian(0, 6)};
  const float reach = random.uniform(0.15f, 0.4f);
  ink(image, {outside, (1 - reach) * outside + reach * middle}, radius, random.uniform(0.5f, 1));
}

// `share` of each pixel goes to its neighbours across, then to those up and down
void blur(Image& image, float share) {
  for (const int step : {1, kSide}) {
    const Image before = image;
    for (int i = 0; i < kSide * kSide; ++i) {
      const int at = step == 1 ? i % kSide : i / kSide;
      const float low = at > 0 ? before[i - step] : 0, high = at + 1 < kSide ? before[i + step] : 0;
      image[i] = (1 - share) * before[i] + share / 2 * (low + high);
    }
  }
}

Image draw(int digit, Random& random) {
  std::vector<std::string_view> styles;
  for (const Style& style : kStyles)
    if (style.digit == digit) styles.push_back(style.strokes);
  std::vector<Stroke> strokes = parse(styles[random.below(styles.size())]);
  unsettle(strokes, 0.03f, random);
  const Distortion distortion(random);
  const float radius = random.uniform(0.45f, 1.5f);
  const float strength = random.uniform(0.7f, 1);
  Image image{};
  for (const Stroke& stroke : strokes) {
    Stroke line = smooth(stroke);
    std::transform(line.begin(), line.end(), line.begin(), distortion);
    ink(image, line, radius * random.uniform(0.85f, 1.15f), strength);
  }
  if (random.below(4) == 0) smear(image, radius, random);
  blur(image, random.uniform(0, 0.5f));
  const float noise = random.uniform(0, 0.1f);
  for (float& pixel : image) pixel = std::clamp(pixel + random.gaussian(0, noise), 0.f, 1.f);
  return image;
}

// The n-th image of a set depends on the seed, the set's name and n alone.
Datum draw_record(const std::string& set, int n) {
  Random random(static_cast<std::uint64_t>(FLAGS_seed), stream_of(str("digits/", set, "/", n)));
  const int digit = static_cast<int>(random.below(10));
  Datum datum;
  datum.set_channels(1);
  datum.set_height(kSide);
  datum.set_width(kSide);
  datum.set_label(digit);
  for (const float pixel : draw(digit, random))
    datum.mutable_data()->push_back(static_cast<char>(std::lround(255 * pixel)));
  return datum;
}

void write_set(const std::string& folder, const std::string& set, int count) {
  Conversion out({.tool = "draw_digits",
                  .backend = FLAGS_backend,
                  .path = folder + "/digits_" + set + "_" + FLAGS_backend,
                  .total = static_cast<std::uint64_t>(count)});
  for (int n = 0; n < count; ++n) {
    out.put(padded(static_cast<std::uint64_t>(n), 8), draw_record(set, n).SerializeAsString());
    out.passed(static_cast<std::uint64_t>(n) + 1);
  }
  out.finish();
}

// 20 by 20 images, edge to edge, in the netpbm form P5 that image viewers know.
void write_sheet(const std::string& path) {
  constexpr int kAcross = 20;
  std::string pixels(kAcross * kAcross * kSide * kSide, '\0');
  for (int n = 0; n < kAcross * kAcross; ++n) {
    const Datum datum = draw_record("train", n);
    for (int y = 0; y < kSide; ++y) {
      const int row = n / kAcross * kSide + y;
      datum.data().copy(pixels.data() + (row * kAcross + n % kAcross) * kSide, kSide, y * kSide);
    }
  }
  or_throw(write_file(path, str("P5 ", kAcross * kSide, " ", kAcross * kSide, " 255\n", pixels),
                      Code::kData));
}

int run(const std::vector<std::string>& words) {
  check_words(words.size(), 1, 1, "draw_digits [flags] FOLDER");
  if (FLAGS_train < 1 || FLAGS_test < 1)
    throw ConfigError(Code::kUsage, "--train and --test must be at least 1");
  write_set(words[0], "train", FLAGS_train);
  write_set(words[0], "test", FLAGS_test);
  if (!FLAGS_sheet.empty()) write_sheet(FLAGS_sheet);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "draw_digits [flags] FOLDER\n\n"
                         "Draws grey 28 x 28 digits as a hand would, 10 classes, and writes them "
                         "to FOLDER/digits_train_<backend> and\n"
                         "FOLDER/digits_test_<backend>, with Datum records as Caffe's. The same "
                         "seed draws the same images.",
                         shoal::run);
}
