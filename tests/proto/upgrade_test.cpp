// Nets and solvers of older Caffe, brought up to date; and the tools that do it.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shoal/base/file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/places.h"

namespace shoal::upgrade_test {
namespace {

namespace fs = std::filesystem;

NetParameter upgraded(const std::string& text) { return parse_net(text, "old.prototxt"); }

// The first layer of an upgraded net, without its origin, in one line of text.
std::string first_layer(const std::string& text) {
  NetParameter net = upgraded(text);
  clear_origins(net);
  EXPECT_EQ(net.layers_size(), 0);
  if (net.layer_size() == 0) return "no layer";
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string line;
  printer.PrintToString(net.layer(0), &line);
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

// Returns the layer that the V0 layer `fields` becomes.
std::string v0(const std::string& fields) {
  return first_layer("layers { layer { " + fields + " } }");
}
std::string v1(const std::string& fields) { return first_layer("layers { " + fields + " }"); }

std::string error_of(const std::string& text) {
  try {
    upgraded(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(UpgradeV0, EveryFieldGoesToItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"type: 'conv' num_output: 3", R"(type: "Convolution" convolution_param { num_output: 3 })"},
      {"type: 'conv' biasterm: false",
       R"(type: "Convolution" convolution_param { bias_term: false })"},
      {"type: 'conv' weight_filler { type: 'xavier' }",
       R"(type: "Convolution" convolution_param { weight_filler { type: "xavier" } })"},
      {"type: 'conv' bias_filler { value: 1 }",
       R"(type: "Convolution" convolution_param { bias_filler { value: 1 } })"},
      {"type: 'conv' pad: 1 kernelsize: 5 stride: 2 group: 4",
       R"(type: "Convolution" convolution_param { pad: 1 kernel_size: 5 group: 4 stride: 2 })"},
      {"type: 'innerproduct' num_output: 3 biasterm: false weight_filler { std: 2 } bias_filler { "
       "value: 1 }",
       R"(type: "InnerProduct" inner_product_param { num_output: 3 bias_term: false weight_filler { std: 2 } bias_filler { value: 1 } })"},
      {"type: 'pool' pool: AVE pad: 1 kernelsize: 3 stride: 2",
       R"(type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 })"},
      {"type: 'dropout' dropout_ratio: 0.25",
       R"(type: "Dropout" dropout_param { dropout_ratio: 0.25 })"},
      {"type: 'lrn' local_size: 3 alpha: 0.5 beta: 0.25 k: 2",
       R"(type: "LRN" lrn_param { local_size: 3 alpha: 0.5 beta: 0.25 k: 2 })"},
      {"type: 'data' source: 'db' batchsize: 7 rand_skip: 9",
       R"(type: "Data" data_param { source: "db" batch_size: 7 rand_skip: 9 })"},
      {"type: 'data' scale: 0.5 meanfile: 'm' cropsize: 3 mirror: true",
       R"(type: "Data" transform_param { scale: 0.5 mirror: true crop_size: 3 mean_file: "m" })"},
      {"type: 'hdf5_data' source: 'l' batchsize: 7",
       R"(type: "HDF5Data" hdf5_data_param { source: "l" batch_size: 7 })"},
      {"type: 'images' source: 'l' batchsize: 7 rand_skip: 9 shuffle_images: true new_height: 5 "
       "new_width: 6",
       R"(type: "ImageData" image_data_param { source: "l" batch_size: 7 rand_skip: 9 shuffle: true new_height: 5 new_width: 6 })"},
      {"type: 'window_data' source: 'w' batchsize: 7 det_fg_threshold: 0.25 det_bg_threshold: 0.75 "
       "det_fg_fraction: 0.125 "
       "det_context_pad: 3 det_crop_mode: 'square'",
       R"(type: "WindowData" window_data_param { source: "w" batch_size: 7 fg_threshold: 0.25 bg_threshold: 0.75 fg_fraction: 0.125 )"
       R"(context_pad: 3 crop_mode: "square" })"},
      {"type: 'infogain_loss' source: 'h'",
       R"(type: "InfogainLoss" infogain_loss_param { source: "h" })"},
      {"type: 'concat' concat_dim: 0", R"(type: "Concat" concat_param { concat_dim: 0 })"},
      {"type: 'hdf5_output' hdf5_output_param { file_name: 'f' }",
       R"(type: "HDF5Output" hdf5_output_param { file_name: "f" })"},
      {"name: 'n' type: 'relu' blobs { data: 1 } blobs_lr: 2 blobs_lr: 3 weight_decay: 0",
       R"(name: "n" type: "ReLU" param { lr_mult: 2 decay_mult: 0 } param { lr_mult: 3 } blobs { data: 1 })"},
      {"type: 'images' new_num: 3 new_channels: 4",
       R"(type: "ImageData")"},  // lost, with an error in the log
      {"type: 'relu' num_output: 3", R"(type: "ReLU")"},
  };
  for (const auto& [fields, want] : cases) EXPECT_EQ(v0(fields), want) << fields;
}

TEST(UpgradeV0, EveryTypeHasItsNewName) {
  const std::pair<const char*, const char*> cases[] = {
      {"accuracy", "Accuracy"},
      {"bnll", "BNLL"},
      {"concat", "Concat"},
      {"conv", "Convolution"},
      {"data", "Data"},
      {"dropout", "Dropout"},
      {"euclidean_loss", "EuclideanLoss"},
      {"flatten", "Flatten"},
      {"hdf5_data", "HDF5Data"},
      {"hdf5_output", "HDF5Output"},
      {"im2col", "Im2col"},
      {"images", "ImageData"},
      {"infogain_loss", "InfogainLoss"},
      {"innerproduct", "InnerProduct"},
      {"lrn", "LRN"},
      {"multinomial_logistic_loss", "MultinomialLogisticLoss"},
      {"pool", "Pooling"},
      {"relu", "ReLU"},
      {"sigmoid", "Sigmoid"},
      {"softmax", "Softmax"},
      {"softmax_loss", "SoftmaxWithLoss"},
      {"split", "Split"},
      {"tanh", "TanH"},
      {"window_data", "WindowData"}};
  for (const auto& [old_name, new_name] : cases)
    EXPECT_EQ(v0(str("type: '", old_name, "'")), str("type: \"", new_name, "\""));
  EXPECT_EQ(
      error_of("\nlayers { layer { name: 'x' type: 'pol' } }").substr(0, 89),
      "old.prototxt:2: layer 'x' (pol): unknown layer type of the V0 form; did you mean 'pool'? ");
}

TEST(UpgradeV0, PaddingMovesIntoTheLayerThatReadsIt) {
  const NetParameter net = upgraded(
      "input: 'data' input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8\n"
      "layers { layer { name: 'pad1' type: 'padding' pad: 2 } bottom: 'data' top: 'pad1' }\n"
      "layers { layer { name: 'conv1' type: 'conv' kernelsize: 5 num_output: 4 } bottom: 'pad1' "
      "top: 'conv1' }\n"
      "layers { layer { name: 'pad2' type: 'padding' pad: 1 } bottom: 'conv1' top: 'pad2' }\n"
      "layers { layer { name: 'pool1' type: 'pool' kernelsize: 3 } bottom: 'pad2' top: 'pool1' "
      "}\n");
  ASSERT_EQ(net.layer_size(), 3);
  EXPECT_EQ(net.layer(0).name(), "input");
  EXPECT_EQ(net.layer(1).name(), "conv1");
  EXPECT_EQ(net.layer(1).bottom(0), "data");
  EXPECT_EQ(net.layer(1).convolution_param().pad(0), 2u);
  EXPECT_EQ(net.layer(1).origin(), "old.prototxt:3");
  EXPECT_EQ(net.layer(2).bottom(0), "conv1");
  EXPECT_EQ(net.layer(2).pooling_param().pad(), 1u);
  EXPECT_EQ(net.layer(2).origin(), "old.prototxt:5");
}

TEST(UpgradeV0, PaddingInFrontOfAnotherTypeIsAnError) {
  EXPECT_EQ(
      error_of("layers { layer { name: 'p' type: 'padding' pad: 2 } bottom: 'data' top: 'p' }\n"
               "layers { layer { name: 'r' type: 'relu' } bottom: 'p' top: 'r' }"),
      "old.prototxt:2: layer 'r' (relu): reads padding layer 'p', which only conv and pool may");
}

TEST(UpgradeV1, FieldsTypesAndRatesBecomeLayers) {
  EXPECT_EQ(
      v1("name: 'c' type: CONVOLUTION bottom: 'a' top: 'b' blobs_lr: 1 blobs_lr: 2 weight_decay: 1 "
         "weight_decay: 0 "
         "convolution_param { num_output: 3 kernel_size: 5 } include { phase: TEST }"),
      R"(name: "c" type: "Convolution" bottom: "a" top: "b" param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 } )"
      R"(include { phase: TEST } convolution_param { num_output: 3 kernel_size: 5 })");
  EXPECT_EQ(
      v1("type: INNER_PRODUCT param: 'w' param: 'b' blob_share_mode: PERMISSIVE"),
      R"(type: "InnerProduct" param { name: "w" share_mode: PERMISSIVE } param { name: "b" })");
  EXPECT_EQ(
      v1("type: SOFTMAX_LOSS loss_weight: 0.5 exclude { stage: 's' } loss_param { ignore_label: 3 "
         "}"),
      R"(type: "SoftmaxWithLoss" loss_weight: 0.5 exclude { stage: "s" } loss_param { ignore_label: 3 })");
  EXPECT_EQ(v1("name: 'none'"), R"(name: "none")");
}

TEST(UpgradeV1, EveryParamMessageIsCarriedOver) {
  const auto& descriptor = *V1LayerParameter::descriptor();
  int messages = 0;
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const std::string& name = descriptor.field(i)->name();
    if (!name.ends_with("_param")) continue;
    ++messages;
    EXPECT_NE(v1("type: RELU " + name + " { }").find(name + " { }"), std::string::npos) << name;
  }
  EXPECT_EQ(messages, 30);
}

TEST(UpgradeV1, EveryTypeHasItsNewName) {
  const google::protobuf::EnumDescriptor& types = *V1LayerParameter::LayerType_descriptor();
  std::string names;
  for (int i = 0; i < types.value_count(); ++i) {
    const std::string type = types.value(i)->name();
    const char* fields =
        type == "CONVOLUTION3D" ? " convolution_param { kernel_size: 1 kernel_depth: 1 } }" : " }";
    const NetParameter net = upgraded("layers { type: " + type + fields);
    names += net.layer(0).type() + " ";
  }
  EXPECT_EQ(names,
            " AbsVal Accuracy ArgMax BNLL Concat ContrastiveLoss Convolution Data Deconvolution "
            "Dropout DummyData EuclideanLoss "
            "Eltwise Exp Flatten HDF5Data HDF5Output HingeLoss Im2col ImageData InfogainLoss "
            "InnerProduct LRN MemoryData "
            "MultinomialLogisticLoss MVN Pooling Power ReLU Sigmoid SigmoidCrossEntropyLoss "
            "Silence Softmax SoftmaxWithLoss "
            "Split Slice TanH WindowData Threshold Convolution Pooling3D ");
}

TEST(UpgradeV1, TransformFieldsOfDataLayersMove) {
  EXPECT_EQ(
      v1("type: DATA data_param { source: 's' scale: 0.5 mean_file: 'm' crop_size: 3 mirror: true "
         "batch_size: 2 }"),
      R"(type: "Data" transform_param { scale: 0.5 mirror: true crop_size: 3 mean_file: "m" } )"
      R"(data_param { source: "s" batch_size: 2 })");
  EXPECT_EQ(v1("type: IMAGE_DATA image_data_param { mirror: true }"),
            R"(type: "ImageData" transform_param { mirror: true } image_data_param { })");
  EXPECT_EQ(v1("type: WINDOW_DATA window_data_param { scale: 2 }"),
            R"(type: "WindowData" transform_param { scale: 2 } window_data_param { })");
  EXPECT_EQ(first_layer("layer { type: 'Data' data_param { mirror: true } }"),
            R"(type: "Data" data_param { mirror: true })");
}

TEST(UpgradeV1, BothFormsInOneNetAreAnError) {
  EXPECT_EQ(error_of("layer { name: 'a' }\nlayers { name: 'b' type: RELU }"),
            "old.prototxt:2: the net has both `layers` and `layer` (old.prototxt:1); write all of "
            "them as `layer`");
}

TEST(UpgradeInput, FieldsBecomeALayerInFront) {
  const NetParameter net = upgraded(
      "layer { name: 'r' type: 'ReLU' }\ninput: 'a'\ninput: 'b'\n"
      "input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 "
      "input_dim: 5 input_dim: 6 input_dim: 7 input_dim: 8");
  ASSERT_EQ(net.layer_size(), 2);
  EXPECT_EQ(net.layer(0).name(), "input");
  EXPECT_EQ(net.layer(0).type(), "Input");
  EXPECT_EQ(net.layer(0).top(1), "b");
  EXPECT_EQ(net.layer(0).origin(), "old.prototxt:2");
  EXPECT_EQ(net.layer(0).input_param().shape(1).dim(3), 8);
  EXPECT_EQ(net.layer(1).name(), "r");
  EXPECT_EQ(net.input_size() + net.input_dim_size(), 0);
  EXPECT_EQ(first_layer("input: 'a' input_shape { dim: 2 dim: 9 }"),
            R"(name: "input" type: "Input" top: "a" input_param { shape { dim: 2 dim: 9 } })");
}

TEST(UpgradeInput, NamesOfInputLayersTopsAreLeftOut) {
  const std::string layer =
      "layer { name: 'd' type: 'Input' top: 'a' input_param { shape { dim: 2 } } }";
  const NetParameter net = upgraded("input: 'a' " + layer);
  EXPECT_EQ(net.layer_size(), 1);
  EXPECT_EQ(net.input_size(), 0);
  EXPECT_EQ(error_of("input: 'a' input: 'b' " + layer),
            "old.prototxt:1: 2 `input`, but 0 `input_dim`; each input takes four");
}

TEST(UpgradeInput, ShapesMustBeAsManyAsInputs) {
  EXPECT_EQ(error_of("input: 'a'"),
            "old.prototxt:1: 1 `input`, but 0 `input_dim`; each input takes four");
  EXPECT_EQ(error_of("input: 'a' input_dim: 1 input_dim: 2"),
            "old.prototxt:1: 1 `input`, but 2 `input_dim`; each input takes four");
  EXPECT_EQ(error_of("input: 'a' input: 'b' input_shape { dim: 1 }"),
            "old.prototxt:1: 2 `input`, but 1 `input_shape`; each input takes one");
}

TEST(UpgradeBatchNorm, ThreeRatesBecomeZero) {
  EXPECT_EQ(
      first_layer("layer { type: 'BatchNorm' param { lr_mult: 1 } param { } param { name: 'f' } }"),
      R"(type: "BatchNorm" param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 decay_mult: 0 } )"
      R"(param { name: "f" lr_mult: 0 decay_mult: 0 })");
  EXPECT_EQ(first_layer("layer { type: 'BatchNorm' param { lr_mult: 1 } }"),
            R"(type: "BatchNorm" param { lr_mult: 1 })");
}

TEST(UpgradeSolver, TypeAndPrefix) {
  const std::pair<const char*, const char*> types[] = {
      {"SGD", "SGD"},         {"NESTEROV", "Nesterov"}, {"ADAGRAD", "AdaGrad"},
      {"RMSPROP", "RMSProp"}, {"ADADELTA", "AdaDelta"}, {"ADAM", "Adam"}};
  for (const auto& [old_name, new_name] : types) {
    const SolverParameter solver = parse_solver(str("solver_type: ", old_name), "a/b.prototxt");
    EXPECT_EQ(solver.type(), new_name);
    EXPECT_FALSE(solver.has_solver_type());
    EXPECT_EQ(solver.snapshot_prefix(), "a/b");
  }
  EXPECT_THROW(parse_solver("solver_type: SGD type: 'SGD'", "s"), ConfigError);
  EXPECT_EQ(parse_solver("snapshot_prefix: 'x/y'", "s.prototxt").snapshot_prefix(), "x/y");
  const std::string folder = fs::temp_directory_path().string();
  EXPECT_EQ(
      parse_solver(str("snapshot_prefix: '", folder, "'"), "a/quick.prototxt").snapshot_prefix(),
      (fs::path(folder) / "quick").string());
  EXPECT_FALSE(parse_solver("", "s.prototxt", SnapshotPrefix::kAsWritten).has_snapshot_prefix());
}

class UpgradeTools : public testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("TOOLS_DIR");
    tools_ = given ? given : (test::repository_root() / "build/release/tools").string();
    if (!fs::exists(tools_ + "/upgrade_proto")) GTEST_SKIP() << "no tools in " << tools_;
    folder_ = fs::path(testing::TempDir()) / ("upgrade_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  // The exit code; what was written to stderr is in errors().
  int run(const std::string& command) const {
    return WEXITSTATUS(std::system(
        (tools_ + "/" + command + " >" + folder_.string() + "/out 2>" + folder_.string() + "/err")
            .c_str()));
  }
  std::string errors() const { return or_throw(read_file((folder_ / "err").string())); }
  std::string output() const { return or_throw(read_file((folder_ / "out").string())); }
  std::string tools_;
  fs::path folder_;
};

TEST_F(UpgradeTools, EachWritesItsKindOfFileInTodaysForm) {
  const std::string net = put("net", "layers { name: 'r' type: RELU }"),
                    solver = put("solver", "net: 'x' solver_type: ADAM");
  NetParameter model;
  model.add_layers()->set_type(V1LayerParameter::RELU);
  const std::string binary = put("model", model.SerializeAsString()),
                    out = (folder_ / "new").string();
  const std::string net_text = "layer {\n  name: \"r\"\n  type: \"ReLU\"\n}\n",
                    solver_text = "net: \"x\"\ntype: \"Adam\"\n";
  for (const char* tool : {"upgrade_proto", "upgrade_net_proto_text"}) {
    EXPECT_EQ(run(str(tool, " ", net, " ", out)), 0) << errors();
    EXPECT_EQ(or_throw(read_file(out)), net_text);
  }
  for (const char* tool : {"upgrade_proto", "upgrade_solver_proto_text"}) {
    EXPECT_EQ(run(str(tool, " ", solver, " ", out)), 0) << errors();
    EXPECT_EQ(or_throw(read_file(out)), solver_text);
  }
  for (const char* tool : {"upgrade_proto", "upgrade_net_proto_binary"}) {
    EXPECT_EQ(run(str(tool, " ", binary, " ", out)), 0) << errors();
    EXPECT_EQ(read_weights(out).layer(0).type(), "ReLU");
  }
}

TEST_F(UpgradeTools, WhatIsWrongIsSaidAndCoded) {
  EXPECT_EQ(run("upgrade_proto"), 2);
  EXPECT_NE(errors().find("two files are needed"), std::string::npos);
  EXPECT_EQ(run("upgrade_proto --verion a b"), 2);
  EXPECT_NE(errors().find("unknown flag --verion; did you mean --version?"), std::string::npos);
  EXPECT_EQ(run("upgrade_proto --help"), 0);
  EXPECT_EQ(output().substr(0, 20), "upgrade_proto IN OUT");
  EXPECT_EQ(run("upgrade_proto --version"), 0);
  EXPECT_EQ(output().substr(0, 6), "shoal ");
  const std::string bad = put("bad", "layers { name: 'r' typ: RELU }");
  EXPECT_EQ(run("upgrade_proto " + bad + " " + (folder_ / "new").string()), 3);
  EXPECT_NE(errors().find("bad:1:20: V1LayerParameter has no field 'typ'; did you mean 'type'?"),
            std::string::npos)
      << errors();
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  EXPECT_EQ(run("upgrade_proto " + put("good", "layer { }") + " " +
                (folder_ / "no/such/folder").string()),
            3);
}

TEST(UpgradeC3d, ItsConvolutionIsOneOfThreeAxes) {
  const std::string three =
      R"(type: "Convolution" convolution_param { num_output: 4 pad: 2 pad: 1 pad: 1 )"
      R"(kernel_size: 5 kernel_size: 3 kernel_size: 3 stride: 1 stride: 2 stride: 2 })";
  const std::string fields =
      "{ num_output: 4 kernel_size: 3 kernel_depth: 5 pad: 1 temporal_pad: 2 stride: 2 }";
  EXPECT_EQ(v1("type: CONVOLUTION3D convolution_param " + fields), three);
  EXPECT_EQ(first_layer("layer { type: 'Convolution3D' convolution3d_param " + fields + " }"),
            three);
  EXPECT_EQ(first_layer("layer { type: 'Convolution3D' convolution_param { kernel_size: 2 "
                        "kernel_depth: 1 temporal_stride: 3 filter_group: 4 } }"),
            R"(type: "Convolution" convolution_param { pad: 0 pad: 0 pad: 0 kernel_size: 1 )"
            R"(kernel_size: 2 kernel_size: 2 stride: 3 stride: 1 stride: 1 })");
  EXPECT_NE(
      error_of("layers { name: 'c' type: CONVOLUTION3D convolution_param { kernel_size: 3 } }")
          .find("layer 'c' (Convolution3D): Convolution3D, of C3D's fork, takes kernel_size "
                "and kernel_depth, one value each"),
      std::string::npos);
  EXPECT_NE(
      error_of("layer { name: 'c' type: 'Convolution' convolution_param { kernel_depth: 3 } }")
          .find("are of Convolution3D, of C3D's fork; kernel_size, stride and pad take a "
                "value for each axis"),
      std::string::npos);
}

TEST(UpgradeC3d, ItsPoolingHasOneMessage) {
  const std::string pooling =
      R"(type: "Pooling3D" pooling_param { kernel_size: 2 stride: 2 kernel_depth: 1 })";
  EXPECT_EQ(v1("type: POOLING3D pooling_param { kernel_size: 2 kernel_depth: 1 stride: 2 }"),
            pooling);
  EXPECT_EQ(first_layer("layer { type: 'Pooling3D' pooling3d_param { kernel_size: 2 kernel_depth: "
                        "1 stride: 2 } }"),
            pooling);
  EXPECT_NE(error_of("layer { name: 'p' type: 'Pooling' pooling_param { temporal_stride: 3 } }")
                .find("kernel_depth and temporal_stride are of Pooling3D"),
            std::string::npos);
}

}  // namespace
}  // namespace shoal::upgrade_test
