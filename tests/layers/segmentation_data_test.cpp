// DenseImageData and ImageSegData: small pictures with a label for each pixel, read as batches.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <utility>

#include "shoal/data/image.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/layers.pb.h"
#include "support/data_files.h"
#include "support/layer_rig.h"

namespace shoal::test::segmentation_data_test {
namespace {

// Pixel (y, x) of picture k is 50 k + 10 y + x, one more a channel; its label k + y + x.
class SegmentationData : public testing::Test {
 protected:
  SegmentationData() : folder_(fresh_directory("segmentation")) {
    for (int k = 0; k < 3; ++k) write(k, 3, 4);
    list("list", "im0.png lab0.png\r\n\nim1.png \t lab1.png\nim2.png lab2.png\n");
  }
  void write(int k, int height, int width) {
    Image image{{3, height, width}, {}}, labels{{1, height, width}, {}};
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < 3; ++c)
          image.pixels.push_back(static_cast<std::uint8_t>(50 * k + 10 * y + x + c));
        labels.pixels.push_back(static_cast<std::uint8_t>(k + y + x));
      }
    put_file(str(folder_, "/im", k, ".png"), encode_image(image, "png").value());
    put_file(str(folder_, "/lab", k, ".png"), encode_image(labels, "png").value());
  }
  void list(const std::string& name, const std::string& text) {
    put_file(folder_ + "/" + name, text);
  }
  LayerParameter layer(const std::string& type, const std::string& param,
                       const std::string& rest = "", Phase phase = TEST, int tops = 2) const {
    const std::string message =
        type == "DenseImageData" ? "dense_image_data_param" : "image_data_param";
    std::string text = str("layer { name: 'it' type: '", type, "' ", rest, " ", message,
                           " { root_folder: '", folder_, "/' ", param, " } ");
    if (param.find("source") == param.npos)
      text = text.substr(0, text.size() - 2) + str("source: '", folder_, "/list' } ");
    for (int i = 0; i < tops; ++i) text += str("top: 't", i, "' ");
    LayerParameter parsed = parse_layer(text + "}");
    parsed.set_phase(phase);
    return parsed;
  }
  // Runs the next batch of a rig; returns the failure's words, "" if there is none.
  static std::string next(LayerRig& rig) {
    std::vector<Blob*> tops;
    for (int i = 0; i < rig.tops(); ++i) tops.push_back(&rig.top(i));
    rig.layer().follow_input(rig.context(), tops);
    std::optional<Failure> failure = rig.context().take_failure();
    if (failure) return failure->error.message;
    rig.layer().forward(rig.context(), {}, tops);
    return "";
  }
  static float data(LayerRig& rig, int n, int c, int h, int w) {
    const Shape& shape = rig.top(0).data.shape();
    return rig.top(0)
        .data.host()[static_cast<std::size_t>(((n * shape[1] + c) * shape[2] + h) * shape[3] + w)];
  }
  static float label(LayerRig& rig, int n, int h, int w) {
    const Shape& shape = rig.top(1).data.shape();
    return rig.top(1).data.host()[static_cast<std::size_t>((n * shape[2] + h) * shape[3] + w)];
  }
  std::string refusal(const LayerParameter& param) const {
    try {
      LayerRig rig(param, {});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  std::string folder_;
};

TEST_F(SegmentationData, BatchesGoRoundAndRoundTheList) {
  LayerRig rig(layer("DenseImageData", "batch_size: 2",
                     "transform_param { mean_value: 1 mean_value: 2 mean_value: 3 scale: 0.5 }"),
               {});
  EXPECT_EQ(rig.top(0).data.shape(), (Shape{2, 3, 3, 4}));
  EXPECT_EQ(rig.top(1).data.shape(), (Shape{2, 1, 3, 4}));
  for (const auto& [first, second] : {std::pair(0, 1), {2, 0}, {1, 2}}) {
    ASSERT_EQ(next(rig), "");
    for (int n = 0; n < 2; ++n)
      for (int h = 0; h < 3; ++h)
        for (int w = 0; w < 4; ++w) {
          const int k = n == 0 ? first : second;
          for (int c = 0; c < 3; ++c)
            ASSERT_EQ(data(rig, n, c, h, w), 0.5f * static_cast<float>(50 * k + 10 * h + w - 1));
          ASSERT_EQ(label(rig, n, h, w), static_cast<float>(k + h + w));
        }
  }
  EXPECT_EQ(rig.layer().record_name(0), "im1.png (line 3) of " + folder_ + "/list");
}

TEST_F(SegmentationData, AStateGoesOnAtTheNextRecord) {
  const LayerParameter param = layer("DenseImageData", "batch_size: 1 shuffle: true", "", TRAIN);
  LayerRig rig(param, {}), other(param, {});
  ASSERT_EQ(next(rig), "");
  ASSERT_TRUE(other.layer().load_state(rig.layer().save_state()).ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(next(rig), "");
    ASSERT_EQ(next(other), "");
    EXPECT_EQ(data(rig, 0, 0, 0, 0), data(other, 0, 0, 0, 0)) << i;
  }
}

TEST_F(SegmentationData, BothPicturesAreCroppedAndMirroredAlike) {
  LayerRig rig(layer("DenseImageData", "crop_height: 2 crop_width: 3 mirror: true", "", TRAIN), {});
  std::set<std::pair<float, bool>> seen;
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(next(rig), "");
    const bool mirrored = data(rig, 0, 0, 0, 0) > data(rig, 0, 0, 0, 1);
    const int k = i % 3;
    for (int h = 0; h < 2; ++h)
      for (int w = 0; w < 3; ++w) {
        const int at = static_cast<int>(data(rig, 0, 0, h, w)) - 50 * k;
        ASSERT_EQ(label(rig, 0, h, w), static_cast<float>(k + at / 10 + at % 10));
      }
    seen.insert({data(rig, 0, 0, 0, mirrored ? 2 : 0) - static_cast<float>(50 * k), mirrored});
  }
  EXPECT_EQ(seen.size(), 8u);  // two rows, two columns, mirrored or not
}

TEST_F(SegmentationData, TheTestPhaseTakesTheMiddle) {
  LayerRig rig(layer("DenseImageData", "", "transform_param { crop_size: 2 }"), {});
  ASSERT_EQ(next(rig), "");
  EXPECT_EQ(values(rig.top(1).data), (Numbers{1, 2, 2, 3}));  // from row 0, column 1
}

TEST_F(SegmentationData, LabelsOfResizedPicturesAreNotMixed) {
  LayerRig rig(layer("ImageSegData", "new_height: 6 new_width: 2"), {});
  ASSERT_EQ(next(rig), "");
  EXPECT_EQ(values(rig.top(1).data), (Numbers{0, 2, 0, 2, 1, 3, 1, 3, 2, 4, 2, 4}));
}

TEST_F(SegmentationData, ACropIsFilledUpWithTheMeanAndTheIgnoredLabel) {
  LayerRig rig(layer("ImageSegData", "ignore_label: 254",
                     "transform_param { crop_size: 5 mean_value: 7 scale: 2 }", TRAIN, 3),
               {});
  ASSERT_EQ(next(rig), "");
  for (int h = 0; h < 5; ++h)
    for (int w = 0; w < 5; ++w) {
      const bool inside = h < 3 && w < 4;
      EXPECT_EQ(label(rig, 0, h, w), inside ? static_cast<float>(h + w) : 254.0f);
      EXPECT_EQ(data(rig, 0, 1, h, w), inside ? 2.0f * static_cast<float>(10 * h + w + 1 - 7) : 0);
    }
  EXPECT_EQ(values(rig.top(2).data), (Numbers{3, 4}));
  EXPECT_EQ(rig.top(2).data.shape(), (Shape{1, 1, 1, 2}));
}

TEST_F(SegmentationData, OneLabelOrNoneServesAllPixels) {
  list("numbers", "im0.png 9\n");
  list("images", "im1.png\n");
  LayerRig one(layer("ImageSegData", str("source: '", folder_, "/numbers' label_type: IMAGE")), {});
  ASSERT_EQ(next(one), "");
  EXPECT_EQ(values(one.top(1).data), Numbers(12, 9.0f));
  LayerRig none(layer("ImageSegData", str("source: '", folder_, "/images' label_type: NONE")), {});
  ASSERT_EQ(next(none), "");
  EXPECT_EQ(values(none.top(1).data), Numbers(12, 255.0f));
}

TEST_F(SegmentationData, PicturesOfAnotherSizeMakeAnotherBatchButDoNotShareOne) {
  write(1, 2, 2);
  LayerRig single(layer("DenseImageData", "batch_size: 1"), {});
  ASSERT_EQ(next(single), "");
  ASSERT_EQ(next(single), "");
  EXPECT_EQ(single.top(1).data.shape(), (Shape{1, 1, 2, 2}));
  LayerRig pair(layer("DenseImageData", "batch_size: 2"), {});
  EXPECT_HAS(next(pair), "the record im1.png (line 3) of " + folder_ +
                             "/list is 3 x 2 x 2 where 3 x 3 x 4 is wanted, the size of its batch");
}

TEST_F(SegmentationData, ABadPictureIsLeftOutOrReplacedIfTheLayerSaysSo) {
  put_file(folder_ + "/im1.png", "no picture");
  LayerRig stops(layer("ImageSegData", "batch_size: 2"), {});
  EXPECT_HAS(next(stops), "the record im1.png (line 3) of " + folder_ + "/list is bad: ");
  LayerRig skips(layer("ImageSegData", "batch_size: 2 on_bad_record: SKIP"), {});
  ASSERT_EQ(next(skips), "");
  EXPECT_EQ(data(skips, 1, 0, 0, 0), 100);  // of picture 2, which moves up
  EXPECT_EQ(label(skips, 1, 2, 3), 7);
  ASSERT_EQ(next(skips), "");
  EXPECT_EQ(data(skips, 0, 0, 0, 0), 0);
  LayerRig replaces(layer("ImageSegData", "batch_size: 3 on_bad_record: REPLACE"), {});
  ASSERT_EQ(next(replaces), "");
  for (const int n : {1, 2}) {
    EXPECT_EQ(data(replaces, n, 0, 0, 0), 100);
    EXPECT_EQ(label(replaces, n, 0, 0), 2);
  }
}

TEST_F(SegmentationData, BadInputIsNamedWithItsLine) {
  const auto with = [&](const std::string& text, const std::string& more = "") {
    list("bad", text);
    return refusal(layer("ImageSegData", str("source: '", folder_, "/bad' ", more)));
  };
  EXPECT_HAS(with("im0.png\n"),
             "layer 'it' (ImageSegData): " + folder_ +
                 "/bad:1: no label; a line is \"image label_image\": \"im0.png\"");
  EXPECT_HAS(with("\n"), "names no images");
  EXPECT_HAS(with("\nno.png lab0.png"),
             "the record no.png (line 2) of " + folder_ + "/bad is bad: ");
  EXPECT_HAS(with("im0.png 256", "label_type: IMAGE"),
             "the label \"256\" is no whole number from 0 to 255");
  EXPECT_HAS(with("im0.png lab0.png", "ignore_label: 300"),
             "ignore_label is 300; labels are bytes");
  EXPECT_HAS(with("im0.png lab0.png", "new_height: 3"), "new_height is 3 and new_width 0");
  write(2, 2, 2);
  EXPECT_HAS(with("im0.png lab2.png"), "is 3 x 4, its labels ");
  EXPECT_HAS(refusal(layer("DenseImageData", "crop_height: 4 crop_width: 2")),
             "is 3 x 4, smaller than the crop, 4 x 2");
  EXPECT_HAS(refusal(layer("ImageSegData", "", "transform_param { mean_file: 'm' }")),
             "mean_file does not go with ImageSegData");
}

}  // namespace
}  // namespace shoal::test::segmentation_data_test
