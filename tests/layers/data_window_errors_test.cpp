// Params of a WindowData layer: its two scales, and errors with their layer, file and line.
#include <gtest/gtest.h>

#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/solver_rig.h"
#include "support/window_rig.h"

namespace shoal::test::data_window_errors_test {
namespace {

class DataWindowErrors : public WindowRig {};

// Old nets have the scale in window_data_param, from which reading moves it; Caffe reads it there
// alone.
TEST_F(DataWindowErrors, ScaleOfEitherMessage) {
  put_window("4 3 9 8");
  const std::string fields = "fg_fraction: 1 batch_size: 1 ";
  for (const auto& [window, transform] :
       {std::pair("", "scale: 0.25 "), {"scale: 0.25 ", ""}, {"scale: 0.25 ", "scale: 0.25 "}}) {
    DataRig rig(layer(fields + window, std::string("crop_size: 6 ") + transform));
    ASSERT_EQ(rig.forward(), "");
    EXPECT_EQ(rig.data()[0], 10.0f);
  }
  EXPECT_EQ(trouble(layer(fields + "scale: 2", "crop_size: 6 scale: 3")),
            "layer 'd' (WindowData): scale is 3 in transform_param and 2 in window_data_param; "
            "give one");
  const std::string of_old = "window_data_param { source: '" + folder_ + "/w.txt' root_folder: '" +
                             folder_ + "/' " + fields + " scale: 0.25 crop_size: 6 }";
  LogLines lines;
  NetParameter old = parse_net(
      "layers { name: 'd' type: WINDOW_DATA top: 'd' top: 'l' " + of_old + " }", "old.prototxt");
  EXPECT_FALSE(lines.has(".*have no effect.*"));
  Context context({.seed = 1});
  Net net(old, context);
  ASSERT_OK(net.forward());
  EXPECT_EQ(net.blob("d")->data.host()[0], 10.0f);
  parse_net("layer { name: 'd' type: 'WindowData' top: 'd' top: 'l' " + of_old + " }",
            "new.prototxt");
  EXPECT_TRUE(
      lines.has(".*layer 'd' .WindowData.: mean_file, crop_size and mirror of "
                "window_data_param have no effect; they belong in transform_param"));
}

TEST_F(DataWindowErrors, Parameters) {
  put_many();
  const std::string here = "layer 'd' (WindowData): ", batch = "batch_size: 4 ";
  const auto says = [&](const std::string& fields, const std::string& transform,
                        const std::string& words) {
    EXPECT_EQ(trouble(layer(fields, transform)), here + words);
  };
  says(batch, "",
       "crop_size of transform_param is 0; windows are resized to it, so that it must "
       "be from 1 to 16384");
  says(batch + "context_pad: 3", "crop_size: 6",
       "context_pad 3 on both sides leaves nothing of crop_size 6 for the window");
  EXPECT_EQ(trouble(layer(batch + "context_pad: 3", "crop_size: 7")), "");
  says(batch + "context_pad: 4000000000", "crop_size: 7",
       "context_pad 4000000000 on both sides leaves nothing of crop_size 7 for the window");
  says(batch + "crop_mode: 'sqare'", "crop_size: 6",
       "unknown crop_mode 'sqare'; it is 'warp' or 'square'");
  says(batch + "fg_fraction: 1.5", "crop_size: 6",
       "fg_fraction is 1.5; it is a part of a batch, from 0 to 1");
  says(batch, "crop_size: 6 force_gray: true", "force_gray is set; windows are read in colour");
  says("", "crop_size: 6", "batch_size is 0; it must be from 1 to 2147483647");
  says(batch, "crop_size: 6 mean_value: 1 mean_value: 2",
       "mean_value is given 2 times: give one, or one a channel, 3");
  const std::string tail =
      "; of its 3 channels 6 x 6 pixels are wanted, from row and column (width "
      "- crop_size) / 2 on";
  for (const auto& [c, h, w] : {std::tuple{3, 6, 5}, {1, 6, 6}, {3, 6, 8}})
    says(batch, "crop_size: 6 " + mean_file(c, h, w),
         str("the mean file ", folder_, "/mean is ", c, " x ", h, " x ", w, tail));
  EXPECT_EQ(trouble(layer(batch, "crop_size: 6 " + mean_file(3, 7, 8))), "");
}

TEST_F(DataWindowErrors, WindowsOfEachKindAreNeeded) {
  put_windows(head(0, 3) + "1 0.4 0 0 1 1\n1 0.9 0 0 1 1\n1 0.9 0 0 1 1\n");
  const std::string batch = "batch_size: 8 bg_threshold: 0.3 ";
  EXPECT_EQ(trouble(layer(batch, "crop_size: 2")),
            "layer 'd' (WindowData): " + folder_ +
                "/w.txt has no background windows, and of a batch of 8 6 are background "
                "(fg_fraction 0.25): of 1 pictures 2 windows are foreground by fg_threshold, 0 "
                "background by bg_threshold, 1 neither");
  EXPECT_EQ(trouble(layer(batch + "fg_fraction: 1", "crop_size: 2")), "");
  put_windows(head(0, 1) + "1 0.1 0 0 1 1\n");
  EXPECT_HAS(trouble(layer(batch, "crop_size: 2")),
             "/w.txt has no foreground windows, and of a batch of 8 2 are foreground");
  EXPECT_EQ(trouble(layer(batch + "fg_fraction: 0.1", "crop_size: 2")), "") << "0.8 of a window";
  put_windows("# 0\n");
  EXPECT_EQ(trouble(layer(batch, "crop_size: 2")),
            "layer 'd' (WindowData): " + folder_ +
                "/w.txt:2: the file ends where the picture's path is wanted");
}

TEST_F(DataWindowErrors, ABadPictureStopsTheRun) {
  const std::string fields = "fg_fraction: 0.5 batch_size: 2 ";
  const auto put_two = [&](const std::string& second) {
    put_windows(head(0, 1) + "0 0 0 0 1 1\n# 1\n" + second + "\n1\n1 0.9 0 0 1 1\n");
  };
  const auto says = [&](const std::string& more, const std::string& words) {
    const std::string error = trouble(layer(fields + more, "crop_size: 2"));
    EXPECT_HAS(error, words);
  };
  const std::string record = "the record gone.png (line 14) of " + folder_ + "/w.txt is bad: ";
  put_two("gone.png\n3\n5\n5");
  says("", record + "cannot open " + folder_ + "/gone.png: No such file");
  says("cache_images: true", "layer 'd' (WindowData): " + folder_ + "/w.txt:8: cannot open " +
                                 folder_ + "/gone.png: No such file");
  put_file(folder_ + "/gone.png", "no picture");
  says("", record + "the image " + folder_ + "/gone.png is no picture that OpenCV can decode");
  says("cache_images: true",
       record + "the image " + folder_ + "/gone.png is no picture that OpenCV can decode");
  put_two("p1.png\n3\n16\n12");
  says("", "the record p1.png (line 14) of " + folder_ + "/w.txt is bad: the image " + folder_ +
               "/p1.png has 12 x 16 pixels, height first, and the window file says 16 x 12 at "
               "line 8");
}

}  // namespace
}  // namespace shoal::test::data_window_errors_test
