// Plain nets out of nets to train: which layers are left, which sizes are found, what is refused.
#include "shoal/net/deploy.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shoal/base/file.h"
#include "shoal/base/text.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/places.h"

namespace shoal::deploy_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kData =
    "layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { backend: DATUMFILE "
    "in_memory: true } "
    "transform_param { crop_size: 5 mean_value: 1 mean_value: 2 mean_value: 3 } }\n";
constexpr const char* kFc =
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'data' top: 'fc' param { lr_mult: 2 } "
    "inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }\n";

NetParameter deployed(const std::string& text, const DeployOptions& options = {}) {
  return deploy_net(parse_net(text, "n.prototxt"), options);
}

// "name:Type(bottoms>tops)" of each layer.
std::string sketch(const NetParameter& net) {
  std::string words;
  for (const LayerParameter& layer : net.layer()) {
    words += str(words.empty() ? "" : " ", layer.name(), ":", layer.type(), "(");
    for (const std::string& bottom : layer.bottom()) words += bottom + ",";
    words += ">";
    for (const std::string& top : layer.top()) words += "," + top;
    words += ")";
  }
  return words;
}

std::string input_dims(const NetParameter& net, int shape = 0) {
  std::string words;
  for (const std::int64_t dim : net.layer(0).input_param().shape(shape).dim())
    words += str(words.empty() ? "" : ",", dim);
  return words;
}

std::string error_of(const std::string& text, const DeployOptions& options = {}) {
  try {
    deployed(text, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Deploy, DataBecomesInputAndTheLossSoftmax) {
  const NetParameter net = deployed(
      str("name: 'x' force_backward: true\n", kData, kFc,
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'loss' "
          "softmax_param { axis: 1 } loss_param { ignore_label: 3 } }\n"
          "layer { name: 'acc' type: 'Accuracy' bottom: 'fc' bottom: 'label' top: 'acc' }\n"));
  EXPECT_EQ(deploy_text(net, FloorField::kRefuse),
            "name: \"x\"\n"
            "layer {\n  name: \"d\"\n  type: \"Input\"\n  top: \"data\"\n"
            "  input_param {\n    shape {\n      dim: 1\n      dim: 3\n      dim: 5\n      dim: "
            "5\n    }\n  }\n}\n"
            "layer {\n  name: \"fc\"\n  type: \"InnerProduct\"\n  bottom: \"data\"\n  top: \"fc\"\n"
            "  inner_product_param {\n    num_output: 4\n  }\n}\n"
            "layer {\n  name: \"prob\"\n  type: \"Softmax\"\n  bottom: \"fc\"\n  top: \"prob\"\n  "
            "softmax_param {\n    axis: 1\n  }\n}\n");
}

TEST(Deploy, RulesAreResolvedForTest) {
  const std::string text =
      str(kData,
          "layer { name: 'a' type: 'ReLU' bottom: 'data' top: 'a' include { phase: TRAIN } }\n"
          "layer { name: 'b' type: 'ReLU' bottom: 'data' top: 'b' include { phase: TEST } }\n"
          "layer { name: 'c' type: 'ReLU' bottom: 'b' top: 'c' include { stage: 'more' min_level: "
          "2 } }\n");
  EXPECT_EQ(sketch(deployed(text)), "d:Input(>,data) b:ReLU(data,>,b)");
  EXPECT_EQ(sketch(deployed(text, {.level = 2, .stages = {"more"}})),
            "d:Input(>,data) b:ReLU(data,>,b) c:ReLU(b,>,c)");
  EXPECT_EQ(to_text(deployed(text)).find("include"), std::string::npos);
}

TEST(Deploy, AuxiliaryHeadsGoWithAllThatLeadsToThem) {
  const std::string text =
      str(kData, kFc,
          "layer { name: 'side' type: 'InnerProduct' bottom: 'data' top: 'side' "
          "inner_product_param { num_output: 4 } }\n"
          "layer { name: 'l1' type: 'SoftmaxWithLoss' bottom: 'side' bottom: 'label' top: 'l1' "
          "loss_weight: 0.3 }\n"
          "layer { name: 'l2' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'l2' }\n");
  EXPECT_EQ(sketch(deployed(text)),
            "d:Input(>,data) fc:InnerProduct(data,>,fc) prob:Softmax(fc,>,prob)");
  EXPECT_EQ(sketch(deployed(text, {.auxiliary = true})),
            "d:Input(>,data) fc:InnerProduct(data,>,fc) side:InnerProduct(data,>,side) "
            "prob:Softmax(side,>,prob) l2:Softmax(fc,>,l2)");
}

TEST(Deploy, OtherLossesLeaveTheirPredictions) {
  EXPECT_EQ(
      sketch(deployed(
          str(kData, kFc,
              "layer { name: 'l' type: 'EuclideanLoss' bottom: 'fc' bottom: 'label' top: 'l' }"))),
      "d:Input(>,data) fc:InnerProduct(data,>,fc)");
  EXPECT_EQ(
      sketch(deployed(
          str(kData, kFc,
              "layer { name: 'l' type: 'SigmoidCrossEntropyLoss' bottom: 'fc' bottom: 'label' }"))),
      "d:Input(>,data) fc:InnerProduct(data,>,fc) prob:Sigmoid(fc,>,prob)");
  // A Softmax that is there already is not made twice; the label's own branch goes.
  EXPECT_EQ(sketch(deployed(str(
                kData, kFc, "layer { name: 's' type: 'Softmax' bottom: 'fc' top: 's' }\n",
                "layer { name: 'n' type: 'Power' bottom: 'label' top: 'n' }\n",
                "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'n' top: 'l' }"))),
            "d:Input(>,data) fc:InnerProduct(data,>,fc) s:Softmax(fc,>,s)");
  // A second top of the loss is the probabilities, and keeps its name.
  EXPECT_EQ(sketch(deployed(str(kData, kFc,
                                "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: "
                                "'label' top: 'l' top: 'p' }"))),
            "d:Input(>,data) fc:InnerProduct(data,>,fc) prob:Softmax(fc,>,p)");
}

// "name: ..." of a layer, short: fc("x", "ip") is an InnerProduct of x.
std::string fc(const std::string& bottom, const std::string& top) {
  return str("layer { name: '", top, "' type: 'InnerProduct' bottom: '", bottom, "' top: '", top,
             "' inner_product_param { num_output: 4 } }\n");
}
std::string in_place(const std::string& type, const std::string& blob, const std::string& name) {
  return str("layer { name: '", name, "' type: '", type, "' bottom: '", blob, "' top: '", blob,
             "' }\n");
}
std::string taking(const std::string& type, const std::string& bottoms, const std::string& more) {
  std::string words = str("layer { name: '", type, "' type: '", type, "' ");
  for (const std::string& bottom : split(bottoms, ',')) words += str("bottom: '", bottom, "' ");
  return str(words, more, " }\n");
}

TEST(Deploy, ANetThatEndsInPlaceKeepsItsEnd) {
  EXPECT_EQ(sketch(deployed(str(kData, fc("data", "ip"), in_place("ReLU", "ip", "r")))),
            "d:Input(>,data) ip:InnerProduct(data,>,ip) r:ReLU(ip,>,ip)");
  EXPECT_EQ(sketch(deployed(str(kData, fc("data", "ip"), in_place("ReLU", "ip", "r"),
                                in_place("Dropout", "ip", "o"), fc("data", "ip2")))),
            "d:Input(>,data) ip:InnerProduct(data,>,ip) r:ReLU(ip,>,ip) o:Dropout(ip,>,ip) "
            "ip2:InnerProduct(data,>,ip2)");
  EXPECT_EQ(sketch(deployed(str(kData, fc("data", "ip"), in_place("Sigmoid", "ip", "s"),
                                taking("EuclideanLoss", "ip,label", "")))),
            "d:Input(>,data) ip:InnerProduct(data,>,ip) s:Sigmoid(ip,>,ip)");
}

TEST(Deploy, WhatOnlyMeasuresAndSinksTakeIsKept) {
  const std::string accuracy = "Accuracy";
  EXPECT_EQ(
      sketch(deployed(str(kData, fc("data", "ip"), taking(accuracy, "ip,label", "top: 'a'")))),
      "d:Input(>,data) ip:InnerProduct(data,>,ip)");
  for (const char* const sink : {"Silence", "HDF5Output"})
    EXPECT_EQ(sketch(deployed(str(kData, fc("data", "ip"), taking(sink, "ip,label", "")))),
              "d:Input(>,data) ip:InnerProduct(data,>,ip)")
        << sink;
  // A Softmax that Accuracy alone takes, beside the loss.
  EXPECT_EQ(sketch(deployed(str(kData, fc("data", "ip"),
                                "layer { name: 's' type: 'Softmax' bottom: 'ip' top: 's' }\n",
                                taking(accuracy, "s,label", "top: 'a'"),
                                taking("SoftmaxWithLoss", "ip,label", "top: 'l'")))),
            "d:Input(>,data) ip:InnerProduct(data,>,ip) s:Softmax(ip,>,s)");
  // Labels that are sliced for a measure, or silenced, are no predictions.
  EXPECT_EQ(sketch(deployed(str(kData, fc("data", "ip"),
                                "layer { name: 'c' type: 'Slice' bottom: 'label' top: 'p' top: 'q' "
                                "}\n",
                                taking("Silence", "q", ""), taking(accuracy, "ip,p", "top: 'a'")))),
            "d:Input(>,data) ip:InnerProduct(data,>,ip)");
}

TEST(Deploy, ALossOfTrainingAloneShowsWhatItLearns) {
  const std::string text =
      str(kData, fc("data", "ip"),
          taking("SoftmaxWithLoss", "ip,label", "top: 'l' include { phase: TRAIN }"),
          taking("Accuracy", "ip,label", "top: 'a' include { phase: TEST }"));
  EXPECT_EQ(sketch(deployed(text)),
            "d:Input(>,data) ip:InnerProduct(data,>,ip) prob:Softmax(ip,>,prob)");
}

TEST(Deploy, APredictionIsTheBottomThatLayersWhichLearnLeadTo) {
  for (const char* const bottoms : {"label,ip", "ip,label"})
    EXPECT_EQ(sketch(deployed(
                  str(kData, fc("data", "ip"), taking("EuclideanLoss", bottoms, "top: 'l'")))),
              "d:Input(>,data) ip:InnerProduct(data,>,ip)")
        << bottoms;
  // Both sides of a Siamese net; of an autoencoder the output alone.
  EXPECT_EQ(sketch(deployed(str(kData, fc("data", "a"), fc("data", "b"),
                                taking("ContrastiveLoss", "a,b,label", "top: 'l'")))),
            "d:Input(>,data) a:InnerProduct(data,>,a) b:InnerProduct(data,>,b)");
  EXPECT_EQ(sketch(deployed(str(kData, fc("data", "code"), fc("code", "back"),
                                taking("EuclideanLoss", "data,back", "top: 'l'")))),
            "d:Input(>,data) code:InnerProduct(data,>,code) back:InnerProduct(code,>,back)");
  // The loss of a fork counts as one of ours.
  EXPECT_EQ(sketch(deployed(
                str(kData, fc("data", "ip"), taking("SmoothL1Loss", "ip,label", "top: 'l'")))),
            "d:Input(>,data) ip:InnerProduct(data,>,ip)");
}

TEST(Deploy, ALossMadeOfOtherLayersShowsWhatItComparesWithLabels) {
  EXPECT_EQ(sketch(deployed(str(
                kData, fc("data", "ip"),
                "layer { name: 'e' type: 'Eltwise' bottom: 'ip' bottom: 'label' top: 'diff' }\n",
                "layer { name: 'r' type: 'Reduction' bottom: 'diff' top: 'l' loss_weight: 1 "
                "reduction_param { operation: SUMSQ } }\n"))),
            "d:Input(>,data) ip:InnerProduct(data,>,ip)");
}

TEST(Deploy, TasksWithLabelsOfTheirOwnAreAllKept) {
  const std::string two =
      str(kData, "layer { name: 'c' type: 'Slice' bottom: 'label' top: 'p' top: 'q' }\n",
          fc("data", "a"), fc("data", "b"),
          "layer { name: 'la' type: 'SoftmaxWithLoss' bottom: 'a' bottom: 'p' loss_weight: 1 }\n",
          "layer { name: 'lb' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'q' loss_weight: 0.5 "
          "}\n");
  EXPECT_EQ(sketch(deployed(two)),
            "d:Input(>,data) a:InnerProduct(data,>,a) b:InnerProduct(data,>,b) "
            "prob:Softmax(a,>,prob) lb:Softmax(b,>,lb)");
}

TEST(Deploy, WhatIsMadeInAnotherStageAloneIsAnError) {
  const std::string data =
      "layer { name: 'd' type: 'DummyData' top: 'data' include { phase: TEST stage: 'seen' } "
      "dummy_data_param { shape { dim: 2 dim: 3 } } }\n";
  const std::string text = data + fc("data", "ip");
  EXPECT_EQ(
      error_of(text),
      "n.prototxt:2: layer 'ip' (InnerProduct): bottom 'data' is made by no layer before this "
      "one; n.prototxt:1: layer 'd' (DummyData) makes it, but its rules leave it out of phase "
      "TEST, level 0, stages ''; with the stage seen n.prototxt:1: layer 'd' (DummyData) makes "
      "it: --stage=seen of a tool, test_state { stage: 'seen' } in a solver");
  EXPECT_EQ(error_of(text, {.stages = {"sen"}}),
            "stage 'sen' is in no rule of net ''; did you mean 'seen'?");
  EXPECT_EQ(sketch(deployed(text, {.stages = {"seen"}})),
            "d:Input(>,data) ip:InnerProduct(data,>,ip)");
}

TEST(Deploy, ANetWithoutPredictionsIsAnError) {
  for (const std::string& text :
       {std::string(kData), str(kData, taking("Silence", "data,label", "")),
        str(kData,
            "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' include { "
            "phase: TRAIN } }")})
    EXPECT_NE(error_of(text).find("predicts nothing in phase TEST"), std::string::npos) << text;
}

TEST(Deploy, AnInputKeepsTheTopsThatAreRead) {
  const NetParameter net = deployed(str(
      "layer { name: 'in' type: 'Input' top: 'label' top: 'data' input_param { shape { dim: 7 } "
      "shape { dim: 7 dim: 3 } } }\n",
      fc("data", "ip"), taking("SoftmaxWithLoss", "ip,label", "top: 'l'")));
  EXPECT_EQ(sketch(net), "in:Input(>,data) ip:InnerProduct(data,>,ip) prob:Softmax(ip,>,prob)");
  EXPECT_EQ(input_dims(net), "7,3");
}

TEST(Deploy, SizesComeFromWhatTheNetTells) {
  const auto with = [](const std::string& data) {
    return str("layer { name: 'd' top: 'data' top: 'label' ", data, " }\n", kFc);
  };
  EXPECT_EQ(
      input_dims(deployed(with(
          "type: 'ImageData' image_data_param { new_height: 6 new_width: 8 is_color: false }"))),
      "1,1,6,8");
  EXPECT_EQ(input_dims(deployed(with("type: 'ImageData' transform_param { crop_size: 4 } "
                                     "image_data_param { new_height: 6 new_width: 8 }"),
                                {.batch = 9})),
            "9,3,4,4");
  EXPECT_EQ(input_dims(deployed(with("type: 'MemoryData' memory_data_param { batch_size: 7 "
                                     "channels: 2 height: 3 width: 4 }"))),
            "1,2,3,4");
  EXPECT_EQ(
      input_dims(deployed(with("type: 'DummyData' dummy_data_param { shape { dim: 7 dim: 2 } }"))),
      "7,2");
  EXPECT_EQ(input_dims(deployed(with("type: 'Input' input_param { shape { dim: 7 dim: 2 } }"),
                                {.batch = 2})),
            "2,2");
  EXPECT_EQ(input_dims(deployed(with("type: 'Data'"), {.shape = {1, 3, 32, 32}})), "1,3,32,32");
  EXPECT_EQ(input_dims(deployed(with("type: 'Data'"), {.shape = {1, 3, 32, 32}, .batch = 5})),
            "5,3,32,32");
  EXPECT_EQ(
      input_dims(deployed(with("type: 'Data' transform_param { crop_size: 8 force_gray: true }"))),
      "1,1,8,8");
}

TEST(Deploy, AMeanFileTellsTheSizeOfItsRecords) {
  BlobProto mean;
  for (const int dim : {1, 3, 2, 4}) mean.mutable_shape()->add_dim(dim);
  for (int i = 0; i < 24; ++i) mean.add_data(0);
  const std::string path = testing::TempDir() + "deploy_mean_" + std::to_string(::getpid());
  ASSERT_TRUE(write_binary(mean, path).ok());
  const std::string data = str(
      "layer { name: 'd' type: 'Data' top: 'data' transform_param { mean_file: '", path, "' } }\n");
  EXPECT_EQ(input_dims(deployed(data + kFc)), "1,3,2,4");
  fs::remove(path);
}

TEST(Deploy, ASizeThatNobodyTellsIsAskedFor) {
  EXPECT_EQ(error_of(str("layer { name: 'd' type: 'Data' top: 'data' }\n", kFc)),
            "n.prototxt:1: layer 'd' (Data): the net does not give the size of 'data'; give it, as "
            "in --shape=1,3,32,32");
}

TEST(Deploy, RoundingDownIsWrittenAsAskedAndOurFieldsAreNot) {
  const std::string text =
      str(kData,
          "layer { name: 'p' type: 'Pooling' bottom: 'data' top: 'p' engine: 'plain' "
          "pooling_param { kernel_size: 2 round_mode: FLOOR } }\n"
          "layer { name: 'q' type: 'Pooling' bottom: 'p' top: 'q' "
          "pooling_param { kernel_size: 2 round_mode: CEIL } }");
  const NetParameter net = deployed(text);
  const std::string for_opencv = deploy_text(net, FloorField::kCeilMode),
                    for_caffe = deploy_text(net, FloorField::kRoundMode);
  EXPECT_NE(for_opencv.find("    kernel_size: 2\n    ceil_mode: false\n  }"), std::string::npos);
  EXPECT_EQ(for_opencv.find("round_mode"), std::string::npos);
  EXPECT_NE(for_caffe.find("    round_mode: FLOOR\n"), std::string::npos);
  EXPECT_EQ(for_caffe.find("CEIL"), std::string::npos);
  EXPECT_EQ(for_opencv.find("engine"), std::string::npos);
  EXPECT_THROW(deploy_text(net, FloorField::kRefuse), ConfigError);
  EXPECT_EQ(parse_net(for_opencv, "again").layer(1).pooling_param().round_mode(),
            PoolingParameter::FLOOR);
}

TEST(Deploy, LayersOfForksKeepTheirParameters) {
  const NetParameter net = deployed(
      str(kData,
          "layer { name: 'r' type: 'Input' top: 'r' input_param { shape { dim: 2 dim: 5 } } }\n"
          "layer { name: 'p' type: 'ROIPooling' bottom: 'data' bottom: 'r' top: 'p' "
          "engine: 'plain' roi_pooling_param { pooled_h: 2 pooled_w: 3 } }\n"
          "layer { name: 'l' type: 'SmoothL1Loss' bottom: 'p' bottom: 'label' top: 'l' }\n"));
  EXPECT_EQ(sketch(net), "d:Input(>,data) r:Input(>,r) p:ROIPooling(data,r,>,p)");
  EXPECT_EQ(net.layer(2).roi_pooling_param().pooled_w(), 3u);
  EXPECT_FALSE(net.layer(2).has_engine());
}

TEST(Deploy, FieldsOfForksInLayersOfCaffeStay) {
  const NetParameter net = deployed(
      std::string(kData) + kFc +
      "layer { name: 'bn' type: 'BatchNorm' bottom: 'fc' top: 'bn' batch_norm_param { scale_bias: "
      "true } } layer { name: 'drop' type: 'Dropout' bottom: 'bn' top: 'drop' dropout_param { "
      "scale_train: false } }");
  EXPECT_TRUE(net.layer(2).batch_norm_param().scale_bias());
  EXPECT_TRUE(net.layer(3).dropout_param().has_scale_train());
}

TEST(Deploy, OurModelsComeOutWithOneHead) {
  for (const char* name : {"lenet", "cifar10_quick", "cifar10_full", "alexnet", "caffenet",
                           "googlenet", "resnet18", "resnet50", "vgg16"}) {
    const std::string path =
        (test::repository_root() / "models" / name / "train_val.prototxt").string();
    const NetParameter net = deploy_net(read_net(path), {.shape = {1, 3, 32, 32}});
    const LayerParameter& last = net.layer(net.layer_size() - 1);
    EXPECT_EQ(net.layer(0).type(), "Input") << name;
    EXPECT_EQ(last.type(), "Softmax") << name;
    EXPECT_EQ(std::ranges::count(net.layer(), "Softmax", &LayerParameter::type), 1) << name;
  }
}

TEST(Deploy, TheToolWritesItAndSaysWhatIsMissing) {
  const char* given = std::getenv("TOOLS_DIR");
  const std::string tool =
      (given ? std::string(given) : (test::repository_root() / "build/release/tools").string()) +
      "/deploy_net ";
  if (!fs::exists(tool.substr(0, tool.size() - 1))) GTEST_SKIP() << "no " << tool;
  const fs::path folder = fs::path(testing::TempDir()) / ("deploy_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string in = (folder / "in").string(), out = (folder / "out").string(),
                    err = (folder / "err").string();
  std::ofstream(in) << "layer { name: 'd' type: 'Data' top: 'data' top: 'label' }\n" << kFc;
  const auto run = [&](const std::string& words) {
    return WEXITSTATUS(std::system((tool + words + " 2>" + err).c_str()));
  };
  EXPECT_EQ(run(in + " " + out), 3);
  EXPECT_NE(or_throw(read_file(err)).find("give it, as in --shape=1,3,32,32"), std::string::npos);
  EXPECT_EQ(run("--shape=1,x " + in + " " + out), 2);
  EXPECT_EQ(run("--floor=up " + in + " " + out), 2);
  EXPECT_EQ(run(""), 2);
  EXPECT_FALSE(fs::exists(out));
  EXPECT_EQ(run("--shape=1,3,4,4 " + in + " " + out), 0);
  EXPECT_EQ(sketch(read_net(out)), "d:Input(>,data) fc:InnerProduct(data,>,fc)");
  EXPECT_EQ(run("--shape=1,3,4,4 --batch=2 " + in + " >" + out), 0);
  EXPECT_EQ(input_dims(read_net(out)), "2,3,4,4");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace shoal::deploy_test
