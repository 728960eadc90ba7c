// Reading nets and solvers in text form, and what is said of mistakes in them.
#include <gtest/gtest.h>

#include "shoal/base/random.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/expect.h"

namespace shoal::proto_text_test {
namespace {

// The words of the ConfigError that `run` throws, or "" if it throws none.
template <class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.error().code, Code::kConfig);
    return error.what();
  }
  return "";
}

std::string net_error(const std::string& text) {
  return error_of([&] { parse_net(text, "n.prototxt"); });
}

std::string solver_error(const std::string& text) {
  return error_of([&] { parse_solver(text, "s.prototxt"); });
}

TEST(ProtoText, OriginsNameTheLineOfEachLayer) {
  const NetParameter net = parse_net(
      "name: 'x'\nlayer { name: 'a' type: 'ReLU' }\n\n# comment\nlayer {\n  name: 'b'\n}\n",
      "n.prototxt");
  ASSERT_EQ(net.layer_size(), 2);
  EXPECT_EQ(net.layer(0).origin(), "n.prototxt:2");
  EXPECT_EQ(net.layer(1).origin(), "n.prototxt:5");
  EXPECT_STREQ(config_error(net.layer(0), "kernel ", 7, " is too large").what(),
               "n.prototxt:2: layer 'a' (ReLU): kernel 7 is too large");
  EXPECT_EQ(config_error(Code::kData, net.layer(0), "x").error().code, Code::kData);
  EXPECT_EQ(layer_place(LayerParameter()), "layer '' ()");
}

TEST(ProtoText, AnUnknownFieldIsNamedWithItsPlaceAndTheNearestKnownOne) {
  EXPECT_EQ(net_error("layer {\n  convolution_param {\n    kernal_size: 3\n  }\n}"),
            "n.prototxt:3:5: ConvolutionParameter has no field 'kernal_size'; did you mean "
            "'kernel_size'?");
  EXPECT_EQ(net_error("layer { nme: 'x' }"),
            "n.prototxt:1:9: LayerParameter has no field 'nme'; did you mean 'name'?");
  EXPECT_EQ(net_error("layer { zzzzzzzz: 1 }"),
            "n.prototxt:1:9: LayerParameter has no field 'zzzzzzzz'");
}

TEST(ProtoText, AFieldOfTheWrongMessageIsSentHome) {
  EXPECT_EQ(
      net_error("layer {\n\tdropout_ratio: 0.5\n}"),
      "n.prototxt:2:2: LayerParameter has no field 'dropout_ratio'; it goes inside dropout_param");
  EXPECT_EQ(net_error("layer { kernal_size: 3 }"),
            "n.prototxt:1:9: LayerParameter has no field 'kernal_size'; did you mean 'kernel_size' "
            "inside convolution_param or pooling_param?");
  EXPECT_EQ(net_error("bottom: 'x'"),
            "n.prototxt:1:1: NetParameter has no field 'bottom'; it goes inside layer or layers");
}

TEST(ProtoText, FieldsOfTheOldFormInTheNewOneAreAnsweredWithTheirNewNames) {
  EXPECT_EQ(net_error("layer { blobs_lr: 1\n weight_decay: 0 }"),
            "n.prototxt:1:9: LayerParameter has no field 'blobs_lr'; it belongs to layers, the old "
            "form; in layer it is lr_mult inside param\n"
            "n.prototxt:2:2: LayerParameter has no field 'weight_decay'; it belongs to layers, the "
            "old form; in layer it is decay_mult inside param");
}

TEST(ProtoText, AMissingColonOrBraceIsSaidOfItsOwnField) {
  EXPECT_EQ(solver_error("momentum: 0.9\nbase_lr 0.1"),
            "s.prototxt:2:9: 'base_lr': Expected \":\", found \"0.1\".");
  EXPECT_EQ(net_error("name: 'x'\nlayer ("),
            "n.prototxt:2:7: 'layer': Expected \"{\", found \"(\".");
  EXPECT_EQ(net_error("layers { type: RELU param { lr_mult: 1 } }"),
            "n.prototxt:1:27: 'param': Expected \":\", found \"{\". `layers` takes blobs_lr and "
            "weight_decay (`layer` takes param { })");
  EXPECT_EQ(net_error("name: 'x'\nlayer { name: 'y' convolution_param { num_output: -96 } }"),
            "n.prototxt:2:51: 'num_output' of ConvolutionParameter: it must not be negative");
}

TEST(ProtoText, AllUnknownFieldsAreReportedAtOnce) {
  EXPECT_EQ(net_error("layer { a_b: 1 }\nlayer { name: 'q' c_d { e: 2 } top: 't' e_f: [1, 2] }"),
            "n.prototxt:1:9: LayerParameter has no field 'a_b'\n"
            "n.prototxt:2:19: LayerParameter has no field 'c_d'\n"
            "n.prototxt:2:41: LayerParameter has no field 'e_f'");
  std::string many;
  for (int i = 0; i < 13; ++i) many += "qqqqqqqq: 1\n";
  EXPECT_NE(net_error(many).find("n.prototxt: and 3 more"), std::string::npos);
}

TEST(ProtoText, AllUnknownTypesOfV1LayersAreReportedAtOnce) {
  EXPECT_EQ(net_error("layers { name: 'a' type: VIDEO_DATA }\n"
                      "layers { type: RELU ttop: 'a' }\n"
                      "layers { type: BN bn_param { type: BN } }\n"
                      "layers { type: VIDEO_DATA }\n"
                      "layers { type: VOXEL_SOFTMAX a_b: 1 }"),
            "n.prototxt:1:26: BVLC Caffe has no layer type 'VIDEO_DATA'; it belongs to C3D's "
            "fork\n"
            "n.prototxt:2:21: V1LayerParameter has no field 'ttop'; did you mean 'top'?\n"
            "n.prototxt:3:16: BVLC Caffe has no layer type 'BN'; it belongs to DeconvNet's fork\n"
            "n.prototxt:3:19: V1LayerParameter has no field 'bn_param'\n"
            "n.prototxt:5:16: BVLC Caffe has no layer type 'VOXEL_SOFTMAX'; it belongs to C3D's "
            "fork\n"
            "n.prototxt:5:30: V1LayerParameter has no field 'a_b'");
  EXPECT_HAS(net_error("layers { type: BN }\nlayers { type: POLING }"),
             "\nn.prototxt:2:16: 'POLING' is not a value of type; did you mean 'POOLING'?");
  std::string many;
  for (int i = 0; i < 13; ++i) many += "layers { type: UNKNOWN" + std::to_string(i) + " }\n";
  EXPECT_HAS(net_error(many), "n.prototxt: and 3 more");
  // The type of a filler, and one of a layer in the present form, are strings.
  EXPECT_HAS(net_error("layer { type: POLING }"), "`layer` takes a quoted type");
}

TEST(ProtoText, FieldsOfOtherFamiliesAreNamedAsTheirs) {
  EXPECT_EQ(net_error("layer { blobs { raw_data: 'x' } }"),
            "n.prototxt:1:17: BlobProto has no field 'raw_data'; it belongs to NVIDIA's fork");
  EXPECT_EQ(net_error("layer { transform_param { is_flow: true } }"),
            "n.prototxt:1:27: TransformationParameter has no field 'is_flow'; it belongs to "
            "yjxiong's fork (TSN), and changes the pictures of training");
  EXPECT_EQ(net_error("layer { box_output_param { } }"),
            "n.prototxt:1:9: LayerParameter has no field 'box_output_param'; it belongs to "
            "MS-CNN's and Cascade R-CNN's forks");
  EXPECT_EQ(net_error("layer { ceil_mode: true }"),
            "n.prototxt:1:9: LayerParameter has no field 'ceil_mode'; it belongs to OpenCV and "
            "forks (pooling_param only)");
  EXPECT_HAS(net_error("layer { memory_data_param { shared_file_system: true } }"),
             "no field 'shared_file_system'; it belongs to Poseidon (of layers that read a source "
             "only)");
}

TEST(ProtoText, DeepLabsFieldsAreNamedAsTheirs) {
  EXPECT_EQ(net_error("layer { convolution_param { hole: 2 } }"),
            "n.prototxt:1:29: ConvolutionParameter has no field 'hole'; it belongs to DeepLab's "
            "fork; dilation is BVLC's name for it");
}

TEST(ProtoText, FieldsThatTuneAForksProgramArePassedOver) {
  // Nothing inside such a field is looked at, and nothing behind it is lost.
  const NetParameter net = parse_net(
      "name: 'x' default_forward_type: FLOAT16 default_backward_math: FLOAT\n"
      "global_grad_scale: 1000. global_grad_scale_adaptive: true reduce_buckets: 6\n"
      "default_conv_algos_override: '0,-1,-1' eltwise_mem_sharing: false\n"
      "bn_stats_batch_size: 32 engine: 'MKLDNN'\n"
      "layer { name: 'a' forward_type: FLOAT backward_math: FLOAT engine: 'MKLDNN:DLA'\n"
      "  quantization_param { bw_layer_in: 8 engine: MKLDNN scale_in: [1, 2] } type: 'ReLU'\n"
      "  relu_param { engine: MKL2017 negative_slope: 0.5 } eltwise_param { engine: CAFFE } }\n"
      "layer { name: 'b' engine: 'plain' batch_norm_param { engine: MKL2017 eps: 0.5 }\n"
      "  data_param { threads: 2 parser_threads: 3 batch_size: 4 }\n"
      "  convolution_param { engine: CUDNN cudnn_convolution_algo_seeker: FINDEX stride: 2 } }\n"
      "layer { name: 'c' engine: 'CAFFE' }",
      "n.prototxt");
  ASSERT_EQ(net.layer_size(), 3);
  EXPECT_EQ(net.layer(2).engine(), "");
  EXPECT_EQ(net.layer(0).type(), "ReLU");
  EXPECT_EQ(net.layer(0).engine(), "");
  EXPECT_EQ(net.layer(0).relu_param().engine(), ReLUParameter::DEFAULT);
  EXPECT_EQ(net.layer(0).relu_param().negative_slope(), 0.5f);
  EXPECT_EQ(net.layer(1).engine(), "plain");
  EXPECT_EQ(net.layer(1).batch_norm_param().eps(), 0.5f);
  EXPECT_EQ(net.layer(1).data_param().batch_size(), 4u);
  EXPECT_EQ(net.layer(1).convolution_param().engine(), ConvolutionParameter::CUDNN);
  EXPECT_EQ(net.layer(1).convolution_param().stride(0), 2u);
  // Lines and columns of errors are those of the file.
  EXPECT_EQ(net_error("default_forward_type: FLOAT16\nlayer { forward_type: FLOAT a_b: 1 }"),
            "n.prototxt:2:29: LayerParameter has no field 'a_b'");
}

TEST(ProtoText, FieldsOfForksThatHaveAnotherNameHereAreReadByIt) {
  const NetParameter net = parse_net(
      "layer { data_param { cache: true shuffle: true } }\n"
      "layer { data_param { cache: false shuffle_pool_size: 10 } }\n"
      "layer { data_param { shuffle_pool_size: 1 } image_data_param { cache: true } }",
      "n.prototxt");
  ASSERT_EQ(net.layer_size(), 3);
  EXPECT_TRUE(net.layer(0).data_param().in_memory());
  EXPECT_TRUE(net.layer(0).data_param().shuffle());
  EXPECT_FALSE(net.layer(1).data_param().in_memory());
  EXPECT_TRUE(net.layer(1).data_param().shuffle());
  EXPECT_FALSE(net.layer(2).data_param().shuffle());
}

TEST(ProtoText, ALongFileOfThemIsReadInOneGo) {
  std::string text;
  for (int i = 0; i < 40000; ++i)
    text += "layer { forward_type: FLOAT pooling_param { ceil_mode: true engine: MKLDNN } }\n";
  EXPECT_EQ(parse_net(text, "n.prototxt").layer_size(), 40000);  // a square would take minutes
}

TEST(ProtoText, AnUnknownValueIsAnsweredWithTheKnownOnes) {
  EXPECT_EQ(net_error("layer {\n  pooling_param { pool: MAXX\n  }\n}"),
            "n.prototxt:2:25: 'MAXX' is not a value of pool; did you mean 'MAX'? Known: MAX, AVE, "
            "STOCHASTIC");
  EXPECT_EQ(net_error("layer { include { phase: train_val } }"),
            "n.prototxt:1:26: 'train_val' is not a value of phase; known: TRAIN, TEST");
}

TEST(ProtoText, ValuesOfAnotherTypeNameTheirField) {
  EXPECT_EQ(net_error("layer { type: CONVOLUTION }"),
            "n.prototxt:1:15: 'type' of LayerParameter: Expected string, got: CONVOLUTION; "
            "`layer` takes a quoted type, like \"InnerProduct\" (`layers` the other form)");
  EXPECT_NE(net_error("layers { type: 'Conv' }").find("`layers` takes a type like INNER_PRODUCT"),
            std::string::npos);
  EXPECT_EQ(net_error("layer { pooling_param { stride: -1 } }"),
            "n.prototxt:1:33: 'stride' of PoolingParameter: it must not be negative");
  EXPECT_EQ(net_error("layer { pooling_param { stride: 5000000000 } }"),
            "n.prototxt:1:33: 'stride' of PoolingParameter: Integer out of range (5000000000)");
  EXPECT_EQ(net_error("layer { name: 'a'\nname: 'b' }"),
            "n.prototxt:2:1: 'name' is given twice, but takes one value");
  EXPECT_EQ(net_error("layer { name: 'a }"),
            "n.prototxt:1:15: 'name' of LayerParameter: Unexpected end of string.");
}

TEST(ProtoText, BracesThatDoNotMatchAreFound) {
  EXPECT_EQ(net_error("layer { name: 'a' }\n}"),
            "n.prototxt:2:1: this } closes nothing: one too many, or a { is missing");
  EXPECT_NE(net_error("layer {\n  pooling_param { stride: 1\n")
                .find("the text ends inside layer.pooling_param: a } is missing"),
            std::string::npos);
}

TEST(ProtoText, AMissingRequiredFieldIsNamedWithItsLine) {
  EXPECT_EQ(net_error("layer { name: 'a' }\nlayer {\n  clip_param { min: 0 }\n}"),
            "n.prototxt:3: ClipParameter needs a value for 'max'");
}

TEST(ProtoText, CeilModeIsRoundModeInPooling) {
  const NetParameter net = parse_net(
      "layer { pooling_param { ceil_mode: false } }\nlayer { pooling_param { ceil_mode: true } }",
      "n");
  EXPECT_EQ(net.layer(0).pooling_param().round_mode(), PoolingParameter::FLOOR);
  EXPECT_TRUE(net.layer(1).pooling_param().has_round_mode());
  EXPECT_EQ(net.layer(1).pooling_param().round_mode(), PoolingParameter::CEIL);
  EXPECT_EQ(net.layer(1).origin(), "n:2");
}

TEST(ProtoText, TabsMarksAndWindowsLinesAreFine) {
  const NetParameter net = parse_net(
      "\xef\xbb\xbfname: 'x'\r\n\tlayer\t{\tpooling_param\t{\tceil_mode:\tfalse\t}\t}\r\n", "n");
  EXPECT_EQ(net.layer(0).pooling_param().round_mode(), PoolingParameter::FLOOR);
  EXPECT_EQ(net_error("\tlayer\t{\tnme: 'x' }"),
            "n.prototxt:1:10: LayerParameter has no field 'nme'; did you mean 'name'?");
}

TEST(ProtoText, CharactersThatWereCopiedFromAPageAreNamed) {
  const auto error = [](const std::string& more) {
    return net_error("layer { name: 'r' type: 'ReLU'\n" + more + " bottom: 'x' top: 'y' }");
  };
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"\xc2\xa0", "n.prototxt:2:1: a no-break space (U+00A0)"},
      {"\xe2\x80\x8b", "an invisible character (U+200B)"},
      {"top: \xe2\x80\x9cz\xe2\x80\x9d", "n.prototxt:2:6: a typographic quotation mark (U+201C)"},
      {"\ttop\xef\xbc\x9a 'z'", "n.prototxt:2:5: a full-width colon (U+FF1A)"},
      {"power_param { shift: \xe2\x88\x92 1 }", "a mathematical minus (U+2212)"},
      {"\xe2\x80\x93", "a dash for a minus (U+2013)"},
      {"\xe3\x80\x80", "a wide blank (U+3000)"},
      {"\xef\xbb\xbf", "a byte order mark, which belongs at the beginning alone (U+FEFF)"},
      {"\xc3\xa9", "the character U+00E9"},
      {"\xd6\xd0", "a byte that is neither ASCII nor UTF-8"}};
  for (const auto& [text, words] : cases) EXPECT_HAS(error(text), words);
  EXPECT_HAS(error("\xc2\xa0 \xef\xbc\x8c"), "U+FF0C)");  // all of them at once
  // Strings and comments may hold any.
  const NetParameter net = parse_net(
      "layer { name: '\xe5\xb1\x82' type: 'ReLU' }  # \xe2\x80\x9c \xd6\xd0 it's\n", "n.prototxt");
  EXPECT_EQ(net.layer(0).name(), "\xe5\xb1\x82");
}

TEST(ProtoText, ABackslashThatDividesFoldersIsNamed) {
  const auto error = [](const std::string& path) {
    return test::message_of([&] { parse_solver("\nnet: \"" + path + "\"", "s.prototxt"); });
  };
  EXPECT_HAS(error("data\\net.prototxt"),
             "s.prototxt:2:6: 'net' holds a backslash: in \"data\\net.prototxt\" \\n would be a "
             "line end. Folders are divided by /");
  for (const char* const path : {"C:\\Users\\me", "a\\test", "a\\x12", "a\\01.txt", "a\\b"})
    EXPECT_HAS(error(path), "'net' holds a backslash") << path;
  // Our own writer escapes UTF-8 by bytes; that is read, as a doubled backslash is.
  EXPECT_EQ(parse_solver("net: 'a\\\\b \\345\\261\\202 \\''", "s").net(), "a\\b \xe5\xb1\x82 '");
}

TEST(ProtoText, TheSolverOfPoseidonIsUnderstood) {
  const SolverParameter solver = parse_solver(
      "device_id: \"0,1\"\nlayer_blobs_global_idx { layer_name: 'conv1' table_id: 3\n table_id: 4 "
      "}\nbase_lr: 0.5\n",
      "s.prototxt");
  EXPECT_EQ(solver.device_list(), "0,1");
  EXPECT_FALSE(solver.has_device_id());
  EXPECT_FLOAT_EQ(solver.base_lr(), 0.5f);
  EXPECT_EQ(parse_solver("device_id: 3", "s").device_id(), 3);
  EXPECT_FLOAT_EQ(parse_solver("layer_blobs_global_idx: 3 base_lr: 2", "s").base_lr(), 2);
  EXPECT_FLOAT_EQ(parse_solver("layer_blobs_global_idx: < table_id: 3 > base_lr: 2", "s").base_lr(),
                  2);
  EXPECT_EQ(solver_error("layer_blobs_global_idx { layer_name: 'a'\n}\nbase_lrr: 1"),
            "s.prototxt:3:1: SolverParameter has no field 'base_lrr'; did you mean 'base_lr'?");
}

// Whatever is done to a text, it is read or refused with words.
TEST(ProtoText, DamagedTextIsReadOrRefused) {
  const std::string whole =
      "name: 'x'\nlayers { name: 'c' type: CONVOLUTION blobs_lr: 1 convolution_param { pad: 1 } }\n"
      "layers { layer { name: 'p' type: 'pool' } bottom: 'c' }\ninput: 'a' input_dim: [1, 2, 3, "
      "4]\n"
      "layers { type: POOLING pooling_param { ceil_mode: true pool: AVE } } # end";
  const std::string letters = "{}<>:;,'\"#\n\t \\[]-.0a_";
  Random random(11);
  int refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = whole;
    for (int i = 0; i < 3; ++i) {
      const std::size_t at = random.below(text.size());
      if (random.below(2))
        text.insert(at, 1, letters[random.below(letters.size())]);
      else
        text.erase(at, 1 + random.below(12));
    }
    try {
      parse_net(text, "n");
    } catch (const ConfigError& error) {
      ++refused;
      EXPECT_TRUE(std::string(error.what()).starts_with("n")) << error.what();
    }
  }
  EXPECT_GT(refused, 1500);
}

TEST(ProtoText, FieldsNotBuiltYetAreErrorsRatherThanIgnored) {
  for (const char* field : {"lr_scale", "warmup_iter", "early_stop"})
    EXPECT_NE(solver_error(str(field, ": 1")).find(str("has no field '", field, "'")),
              std::string::npos)
        << field;
  for (const char* field : {"comm", "codec"})
    EXPECT_NE(net_error(str("layer { ", field, ": 'x' }")).find(str("has no field '", field, "'")),
              std::string::npos)
        << field;
}

TEST(ProtoText, ANetInsideASolverIsReadLikeAnyOther) {
  const SolverParameter solver = parse_solver(
      "net_param {\n layers { name: 'r' type: RELU }\n}\ntest_net_param {\n}\n"
      "test_net_param { layer { name: 't' } }",
      "s.prototxt");
  ASSERT_EQ(solver.net_param().layer_size(), 1);
  EXPECT_EQ(solver.net_param().layer(0).type(), "ReLU");
  EXPECT_EQ(solver.net_param().layer(0).origin(), "s.prototxt:2");
  EXPECT_EQ(solver.test_net_param(1).layer(0).origin(), "s.prototxt:6");
  EXPECT_EQ(to_text(solver).find("origin"), std::string::npos);
}

}  // namespace
}  // namespace shoal::proto_text_test
