// A detector of squares, trained from a window file by the train tool.
#include <gtest/gtest.h>

#include <filesystem>

#include "shoal/data/image.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/train_tool.h"

namespace shoal::test::data_window_train_test {
namespace {

constexpr int kPictures = 12, kSide = 32, kSquare = 10;

// Dark, noisy pictures with a bright square each, and a window file `name` beside them: the square
// is of class 1, or of class 2 where it is blue, and there are windows without it.
void make_squares(const std::string& folder, const std::string& name, std::uint64_t seed) {
  std::string text;
  for (int i = 0; i < kPictures; ++i) {
    Random random(seed, static_cast<std::uint64_t>(i));
    const int x1 = static_cast<int>(random.below(kSide - kSquare)),
              y1 = kSide / 2 + static_cast<int>(random.below(kSide / 2 - kSquare)),
              kind = 1 + i % 2;
    Image image{{3, kSide, kSide}, {}};
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x)
        for (int c = 0; c < 3; ++c) {
          const bool square = x >= x1 && x < x1 + kSquare && y >= y1 && y < y1 + kSquare;
          const bool bright = square && (kind == 1) == (c == 2);
          image.pixels.push_back(static_cast<std::uint8_t>((bright ? 180 : 20) + random.below(40)));
        }
    const std::string picture = str(name, i, ".png");
    put_file(folder + "/" + picture, or_throw(encode_image(image, "png")));
    text += str("# ", i, "\n", picture, "\n3\n", kSide, "\n", kSide, "\n3\n");
    text += str(kind, " 1 ", x1, " ", y1, " ", x1 + kSquare - 1, " ", y1 + kSquare - 1, "\n");
    text += str("0 0 ", x1, " 1 ", x1 + kSquare - 1, " ", kSquare, "\n");  // above it
    text += str("0 0.1 0 0 ", kSide / 2, " ", kSide / 4, "\n");
  }
  put_file(folder + "/" + name, text);
}

std::string data_layer(const std::string& folder, const std::string& phase) {
  return "layer { name: 'data' type: 'WindowData' top: 'data' top: 'label' include { phase: " +
         phase + " } window_data_param { source: '" + folder + "/" + phase + "' root_folder: '" +
         folder +
         "/' batch_size: 16 fg_fraction: 0.5 context_pad: 1 } transform_param { crop_size: 8 "
         "mirror: true mean_value: 60 scale: 0.01 } }\n";
}

class DataWindowTrain : public TrainTool {
 protected:
  void SetUp() override {
    TrainTool::SetUp();
    if (IsSkipped()) return;
    make_squares(folder_, "TRAIN", 1);
    make_squares(folder_, "TEST", 2);
    put_file(folder_ + "/net.prototxt",
             data_layer(folder_, "TRAIN") + data_layer(folder_, "TEST") + R"(
      layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
        inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
      layer { name: 'right' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'right'
        include { phase: TEST } }
    )");
  }
};

TEST_F(DataWindowTrain, LearnsWhichWindowsHoldASquare) {
  const Ran whole = train(
      solver("whole", "max_iter: 60 base_lr: 0.02 test_iter: 5 test_interval: 60 display: 30 "));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_HAS(whole.err,
             "TRAIN has 12 pictures with 12 windows of foreground, 24 of background and 0 that are "
             "neither");
  EXPECT_HAS(whole.err, "right = 1\n");
  const std::string model = stem("whole", 60) + ".caffemodel";
  ASSERT_EQ(train(solver("half", "max_iter: 25 base_lr: 0.02 ")).code, 0);
  const Ran rest = train(solver("rest", "max_iter: 60 base_lr: 0.02 "),
                         {"--snapshot=" + stem("half", 25) + ".solverstate"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(get_file(stem("rest", 60) + ".caffemodel"), get_file(model));
}

TEST_F(DataWindowTrain, TheSolverMayNameTheWindowFile) {
  std::filesystem::rename(folder_ + "/TRAIN", folder_ + "/other");
  const Ran ran = train(solver("s", "max_iter: 1 train_source: '" + folder_ + "/other' "));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, folder_ + "/other has 12 pictures");
}

// Each machine has its own place of the files, and its own choice to keep them in memory.
TEST_F(DataWindowTrain, MachinesOfAJobMayHaveTheirPicturesElsewhere) {
  const auto configuration = [](const std::string& folder, bool cached) {
    SolverParameter param = parse_solver("base_lr: 0.1 max_iter: 1", "solver");
    *param.mutable_net_param() = parse_net(data_layer(folder, "TRAIN"), "net");
    param.mutable_net_param()->mutable_layer(0)->mutable_window_data_param()->set_cache_images(
        cached);
    return parallel::configuration_of(parallel::read_job_spec(param, "solver"));
  };
  EXPECT_EQ(configuration("/here", false), configuration("/there", true));
}

TEST_F(DataWindowTrain, ErrorsHaveTheLayersLineAndTheCodeOfData) {
  put_file(folder_ + "/TRAIN", "# 0\nTRAIN0.png\n3 32 32\n1\n1 0.9 0 0 32 31\n");
  const Ran outside = train(solver("s", "max_iter: 2 "));
  EXPECT_EQ(outside.code, 4);
  EXPECT_HAS(outside.err,
             folder_ + "/net.prototxt:1: layer 'data' (WindowData): " + folder_ +
                 "/TRAIN:5: the window 0 0 32 31 leaves its picture of 32 x 32 pixels");
  put_file(folder_ + "/TRAIN",
           "# 0\nTRAIN0.png\n3 32 32\n1\n0 0 0 0 1 1\n# 1\nnone.png\n3 32 32\n1\n1 1 0 0 1 1\n");
  const Ran missing = train(solver("s", "max_iter: 2 "));
  EXPECT_EQ(missing.code, 4);
  EXPECT_HAS(missing.err, "the record none.png (line 10) of " + folder_ +
                              "/TRAIN is bad: cannot "
                              "open " +
                              folder_ + "/none.png: No such file");
}

}  // namespace
}  // namespace shoal::test::data_window_train_test
