// The fixture of tests of WindowData layers: three pictures whose pixels say where they are, and
// window files over them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "shoal/data/image.h"
#include "shoal/proto/blob.pb.h"
#include "support/data_rig.h"

namespace shoal::test {

inline constexpr int kWindowHeight = 12, kWindowWidth = 16;

// The pixels of a picture say where they are: blue 10 x + `id`, green 10 y, red 200 + `id`.
inline int window_pixel(int id, int channel, int y, int x) {
  return channel == 0 ? 10 * x + id : channel == 1 ? 10 * y : 200 + id;
}

class WindowRig : public testing::Test {
 protected:
  void SetUp() override {
    for (int id = 0; id < 3; ++id) {
      Image image{{3, kWindowHeight, kWindowWidth}, {}};
      for (int y = 0; y < kWindowHeight; ++y)
        for (int x = 0; x < kWindowWidth; ++x)
          for (int c = 0; c < 3; ++c)
            image.pixels.push_back(static_cast<std::uint8_t>(window_pixel(id, c, y, x)));
      put_file(picture(id), or_throw(encode_image(image, "png")));
    }
  }
  std::string picture(int id) const { return str(folder_, "/p", id, ".png"); }
  static std::string head(int id, std::size_t windows) {
    return str("# ", id, "\np", id, ".png\n3\n", kWindowHeight, "\n", kWindowWidth, "\n", windows,
               "\n");
  }
  void put_windows(const std::string& text) const { put_file(folder_ + "/w.txt", text); }
  // One window, of foreground.
  void put_window(const std::string& corners) const {
    put_windows(head(0, 1) + "1 0.9 " + corners + "\n");
  }
  // 30 windows of each kind in three pictures; foreground i has the label i + 1.
  void put_many(const std::string& name = "w.txt", int first = 0) const {
    std::string text;
    int label = 1;
    for (int id = 0; id < 3; ++id) {
      text += head(id, 20);
      for (int i = 0; i < 10; ++i, ++label) {
        text += str(first + label, " 0.8 ", i, " 1 ", i + 5, " 8\n");
        text += str("0 0.1 ", i, " 1 ", i + 3, " ", i + 2, "\n");
      }
    }
    put_file(folder_ + "/" + name, text);
  }
  std::string layer(const std::string& fields, const std::string& transform) const {
    return "type: 'WindowData' top: 'data' top: 'label' window_data_param { source: '" + folder_ +
           "/w.txt' root_folder: '" + folder_ + "/' " + fields + " } transform_param { " +
           transform + " }";
  }
  std::string mean_file(int channels, int height, int width) const {
    BlobProto mean;
    for (const int dim : {1, channels, height, width}) mean.mutable_shape()->add_dim(dim);
    for (int i = 0; i < channels * height * width; ++i) mean.add_data(static_cast<float>(i) / 4);
    put_file(folder_ + "/mean", mean.SerializeAsString());
    return "mean_file: '" + folder_ + "/mean' ";
  }
  std::string folder_ = fresh_directory("window_layer");
};

}  // namespace shoal::test
