// Window files: what is read, which errors name which line; and where the crop of a window lies,
// worked by hand.
#include <gtest/gtest.h>

#include <cctype>

#include "shoal/base/random.h"
#include "shoal/data/window_crop.h"
#include "support/data_files.h"

namespace shoal::test::data_window_file_test {
namespace {

const std::string kTwo =
    "# 0\n"
    "some folder/a.png\n"
    "3\n20\n30\n"
    "3\n"
    "2 0.7 1 2 29 19\n"
    "5 0.1 0 0 0 0\n"
    "1 0.4 3 4 5 6\n"
    "# 7\r\n"
    "b.png\r\n"
    "1 10 12 2\r\n"
    "4 0.5 0 0 11 9\r\n"
    "-1 0.2999 5 5 6 6";

class DataWindowFile : public testing::Test {
 protected:
  // Reads `text` as a file with thresholds that leave something between them.
  Result<WindowFile> read(const std::string& text,
                          const WindowThresholds& thresholds = {0.5f, 0.3f}) {
    put_file(path_, text);
    return read_window_file(path_, thresholds);
  }
  // The error without the file's name, if it begins with that.
  std::string error(const std::string& text) {
    const Result<WindowFile> file = read(text);
    if (file.ok()) return "";
    EXPECT_EQ(file.error().code, Code::kData);
    const std::string& message = file.error().message;
    return message.starts_with(path_) ? message.substr(path_.size()) : message;
  }
  std::string path_ = fresh_directory("window_file") + "/w.txt";
};

TEST_F(DataWindowFile, SortsWindowsByTheirOverlap) {
  const WindowFile file = or_throw(read(kTwo));
  ASSERT_EQ(file.pictures.size(), 2u);
  EXPECT_EQ(file.pictures[0].path, "some folder/a.png");
  EXPECT_EQ(file.pictures[0].height, 20);
  EXPECT_EQ(file.pictures[0].width, 30);
  EXPECT_EQ(file.pictures[1].path, "b.png");
  EXPECT_EQ(file.pictures[1].line, 10u);
  ASSERT_EQ(file.foreground.size(), 2u);
  EXPECT_EQ(file.foreground[0].label, 2);
  EXPECT_EQ(file.foreground[0].x2, 29);
  EXPECT_EQ(file.foreground[0].y1, 2);
  EXPECT_EQ(file.foreground[0].line, 7u);
  EXPECT_EQ(file.foreground[1].picture, 1u);
  EXPECT_EQ(file.foreground[1].label, 4) << "an overlap at the threshold is foreground";
  ASSERT_EQ(file.background.size(), 2u);
  for (const Window& window : file.background) EXPECT_EQ(window.label, 0);
  EXPECT_EQ(file.background[1].line, 14u);
  EXPECT_EQ(file.neither, 1u);
}

TEST_F(DataWindowFile, AnOverlapAtTheThresholdIsNoBackground) {
  const std::string text = "# 0\np\n3 5 5 1\n1 0.25 0 0 1 1\n";
  EXPECT_EQ(or_throw(read(text, {0.5f, 0.25f})).neither, 1u);
  EXPECT_EQ(or_throw(read(text, {0.5f, 0.2501f})).background.size(), 1u);
  EXPECT_EQ(or_throw(read(text, {0.25f, 0.5f})).foreground.size(), 1u) << "foreground goes first";
}

TEST_F(DataWindowFile, ErrorsNameTheLine) {
  const std::string head = "# 0\np.png\n3 8 10\n";
  EXPECT_EQ(error("# 0\np\n3 5 5 0\nq 1"),
            ":4: \"q\" stands where \"#\" is wanted: the picture of "
            "line 1 has the 0 windows that line 3 says");
  EXPECT_EQ(error("p.png 1\n"), ":1: \"p.png\" stands where \"#\" is wanted");
  EXPECT_EQ(error("# one\n"), ":1: \"one\" stands where the picture's number is wanted");
  EXPECT_EQ(error("# 1\n\n"), ":3: the file ends where the picture's path is wanted");
  EXPECT_EQ(error("# 1\np\n3.5"),
            ":3: \"3.5\" stands where the picture's number of channels is wanted");
  EXPECT_EQ(error("# 1\np\n3 0"), ":3: the picture's height is 0; it is at least 1");
  EXPECT_EQ(error("# 1\np\n3 4"), ":3: the file ends where the picture's width is wanted");
  EXPECT_EQ(error(head + "-2\n"), ":4: the picture's number of windows is -2; it is at least 0");
  EXPECT_EQ(error(head + "2\n1 0.9 0 0 9 7\n# 1\n"),
            ":6: \"#\" stands where the label of window 2 of the 2 that line 4 says is wanted");
  EXPECT_EQ(error(head + "1\n1 0.9 0 0 9 7\n1 0.9 0 0 9 7\n"),
            ":6: \"1\" stands where \"#\" is wanted: the picture of line 1 has the 1 window that "
            "line 4 says");
  EXPECT_EQ(error(head + "1\n1 x 0 0 9 7\n"),
            ":5: \"x\" stands where the overlap of window 1 of the 1 that line 4 says is wanted");
  EXPECT_EQ(error(head + "1\n1 nan 0 0 9 7\n"),
            ":5: the overlap of window 1 of the 1 that line 4 says is not finite");
  EXPECT_EQ(error(head + "1\n1 0.9 0 0 9.5 7\n"),
            ":5: \"9.5\" stands where the x2 of window 1 of the 1 that line 4 says is wanted");
  EXPECT_EQ(error(head + "1\n1 0.9 0 0 9"),
            ":5: the file ends where the y2 of window 1 of the 1 that line 4 says is wanted");
  EXPECT_EQ(error(head + "1\n0 0.9 0 0 9 7\n"),
            ":5: a window with an overlap of 0.9 is foreground, since fg_threshold is 0.5, but its "
            "label is 0; foreground has labels from 1 on");
  for (const std::string corners :
       {"-1 0 9 7", "0 -1 9 7", "0 0 10 7", "0 0 9 8", "5 0 4 7", "0 5 9 4"})
    EXPECT_EQ(error(head + "1\n1 0.4 " + corners + "\n"),
              ":5: the window " + corners +
                  " leaves its picture of 8 x 10 pixels: 0 <= x1 <= x2 <= 9 and 0 <= y1 <= y2 <= "
                  "7 are wanted");
  EXPECT_EQ(error("\n \n"), "the window file " + path_ + " names no pictures");
  EXPECT_FAILS_WITH("/nowhere/w: No such file", read_window_file("/nowhere/w", {}));
  ASSERT_OK(write_records("datumfile", path_ + ".set", small_records(2)));
  EXPECT_FAILS_WITH(path_ + ".set is no window file", read_window_file(path_ + ".set", {}));
}

struct CropCase {
  const char* name;
  Window window;  // picture, label, x1, y1, x2, y2
  int height, width;
  WindowCropOptions options;
  bool mirrored;
  ImagePart from, to;  // top, left, height, width
};
void PrintTo(const CropCase& c, std::ostream* out) { *out << c.name; }
std::string in_words(const ImagePart& part) {
  return str(part.top, ' ', part.left, ' ', part.height, ' ', part.width);
}

// A centre lies at x1 + half the width; the widened window is from round(centre - half x s) to
// round(centre + half x s), s = size / (size - 2 pad), both included.
const CropCase kCrops[] = {
    {"the window itself",
     {0, 1, 3, 2, 7, 5},
     10,
     12,
     {8, 0, false},
     false,
     {2, 3, 4, 5},
     {0, 0, 8, 8}},
    {"mirrored", {0, 1, 3, 2, 7, 5}, 10, 12, {8, 0, false}, true, {2, 3, 4, 5}, {0, 0, 8, 8}},
    // 8 pixels, 4 x 11 / 9 = 4.9: from -0.9 to 8.9 about x1, 11 pixels
    {"context", {0, 1, 3, 2, 10, 9}, 20, 20, {11, 1, false}, false, {1, 2, 11, 11}, {0, 0, 11, 11}},
    {"context beyond the first pixel",
     {0, 1, 0, 0, 7, 7},
     20,
     20,
     {11, 1, false},
     false,
     {0, 0, 10, 10},
     {1, 1, 10, 10}},
    {"the same mirrored",
     {0, 1, 0, 0, 7, 7},
     20,
     20,
     {11, 1, false},
     true,
     {0, 0, 10, 10},
     {1, 0, 10, 10}},
    {"context beyond the last pixel",
     {0, 1, 12, 12, 19, 19},
     20,
     20,
     {11, 1, false},
     false,
     {11, 11, 9, 9},
     {0, 0, 9, 9}},
    {"that mirrored",
     {0, 1, 12, 12, 19, 19},
     20,
     20,
     {11, 1, false},
     true,
     {11, 11, 9, 9},
     {0, 2, 9, 9}},
    // R-CNN's 227 and 16: 50 x 227 / 195 = 58.2
    {"context of R-CNN",
     {0, 1, 100, 50, 199, 149},
     300,
     400,
     {227, 16, false},
     false,
     {42, 92, 117, 117},
     {0, 0, 227, 227}},
    // The centre is (6, 7), half the side 4.
    {"square", {0, 1, 2, 5, 9, 8}, 20, 20, {9, 0, true}, false, {3, 2, 9, 9}, {0, 0, 9, 9}},
    {"square beyond the top",
     {0, 1, 2, 0, 9, 3},
     20,
     20,
     {9, 0, true},
     false,
     {0, 2, 7, 9},
     {2, 0, 7, 9}},
    // x is -3 .. 12, half as many pixels in the input: 1.5 and 6.5 round up, and 2 + 7 is too much.
    {"roundings that do not fit",
     {0, 1, 0, 0, 8, 14},
     30,
     30,
     {8, 0, true},
     false,
     {0, 0, 16, 13},
     {0, 2, 8, 6}},
    {"those mirrored",
     {0, 1, 0, 0, 8, 14},
     30,
     30,
     {8, 0, true},
     true,
     {0, 0, 16, 13},
     {0, 0, 8, 7}},
    // The centre is 4.5, half 5: from -0.5, which becomes -1, to 9.5, which becomes 10.
    {"halves", {0, 1, 0, 0, 8, 9}, 30, 30, {12, 0, true}, false, {0, 0, 11, 11}, {0, 1, 12, 11}},
    // x is -50 .. 51, of which one pixel is there, less than half a pixel of three.
    {"never nothing",
     {0, 1, 0, 0, 0, 100},
     101,
     1,
     {3, 0, true},
     false,
     {0, 0, 101, 1},
     {0, 1, 3, 1}},
    // 5 pixels, 2.5 x 12 / 8 = 3.75 of the wider: x from 2.75 to 10.25, y from 1.75 to 9.25
    {"square with context",
     {0, 1, 4, 4, 8, 6},
     30,
     30,
     {12, 2, true},
     false,
     {2, 3, 8, 8},
     {0, 0, 12, 12}},
};

class DataWindowCrop : public testing::TestWithParam<CropCase> {};

TEST_P(DataWindowCrop, LiesWhereItWasWorkedOut) {
  const CropCase& c = GetParam();
  const WindowPicture picture{"", c.height, c.width};
  const WindowCrop crop = crop_window(c.window, picture, c.options, c.mirrored);
  EXPECT_EQ(in_words(crop.from), in_words(c.from));
  EXPECT_EQ(in_words(crop.to), in_words(c.to));
}

INSTANTIATE_TEST_SUITE_P(Data, DataWindowCrop, testing::ValuesIn(kCrops), [](const auto& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
});

// Windows and options at random: the crop is within the picture and the input, holds the window,
// and the input's empty border is where the picture ends.
TEST(DataWindowCrops, StayWithinPictureAndInput) {
  Random random(11);
  const auto draw = [&](int least, int most) {
    return least + static_cast<int>(random.below(static_cast<std::uint64_t>(most - least + 1)));
  };
  for (int i = 0; i < 20000; ++i) {
    const WindowPicture picture{"", draw(1, 40), draw(1, 40)};
    Window window;
    window.x1 = draw(0, picture.width - 1);
    window.x2 = draw(window.x1, picture.width - 1);
    window.y1 = draw(0, picture.height - 1);
    window.y2 = draw(window.y1, picture.height - 1);
    WindowCropOptions options{.size = draw(1, 30)};
    options.context_pad = draw(0, (options.size - 1) / 2);
    options.square = draw(0, 1) == 1;
    const WindowCrop crop = crop_window(window, picture, options, draw(0, 1) == 1);
    SCOPED_TRACE(str("case ", i));
    ASSERT_TRUE(crop.from.left >= 0 && crop.from.left <= window.x1);
    ASSERT_TRUE(crop.from.top >= 0 && crop.from.top <= window.y1);
    ASSERT_GE(crop.from.left + crop.from.width, window.x2 + 1);
    ASSERT_GE(crop.from.top + crop.from.height, window.y2 + 1);
    ASSERT_LE(crop.from.left + crop.from.width, picture.width);
    ASSERT_LE(crop.from.top + crop.from.height, picture.height);
    ASSERT_TRUE(crop.to.left >= 0 && crop.to.width >= 1);
    ASSERT_TRUE(crop.to.top >= 0 && crop.to.height >= 1);
    ASSERT_LE(crop.to.left + crop.to.width, options.size);
    ASSERT_LE(crop.to.top + crop.to.height, options.size);
    if (crop.from.left > 0 && crop.from.left + crop.from.width < picture.width) {
      ASSERT_EQ(crop.to.left, 0);
      ASSERT_EQ(crop.to.width, options.size);
    }
  }
}

}  // namespace
}  // namespace shoal::test::data_window_file_test
