// Layers between convolutions that keep images in blocks of channels, of 32 and 16 bits: the same
// numbers as between plain ones.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "shoal/layers/layer.h"
#include "support/choices.h"

namespace shoal::test::choices_layers_test {
namespace {

enum class Ends {
  kConvolution,  // another convolution takes each top
  kSum,          // a loss sums the squares of each top
  kLoss,         // the layer is a loss
  kNothing,      // no gradient comes back
};

struct Case {
  std::string name, type;
  // Names of these blobs: c, d: images that convolutions made (8, n, 10, 13); g, h: these, averaged
  // over each image; wide: 32 channels of c; abs, exp: functions of c; x: plain images with 3
  // channels; numbers of no layer: see kPlain.
  std::string bottoms;
  std::string tops = "t";
  std::string param{};
  Ends ends = Ends::kConvolution;
  bool jumps = false;  // tops are no continuous function of the bottoms
  // The error of 16 bits, as roots of mean squares; more where rounding changes which number wins.
  double rounding = 0.05;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Inputs that are there if a case names them.
struct Plain {
  const char *name, *shape, *filler;
};
constexpr Plain kPlain[] = {
    {"label", "dim: 8", "value: 3"},
    {"labels", "dim: 8 dim: 10 dim: 13", "value: 3"},
    {"index", "dim: 5", "value: 2"},
    {"select", "dim: 8", "type: 'gaussian'"},
    {"alike", "dim: 8", "value: 0"},
    {"like", "dim: 8 dim: N dim: 10 dim: 13", "type: 'uniform'"},
    {"small", "dim: 8 dim: N dim: 6 dim: 9", "value: 0"},
    {"thin", "dim: 8 dim: 9 dim: 6 dim: 9", "value: 0"},
    {"matrix", "dim: 1 dim: 1 dim: N dim: N", "type: 'uniform'"},
    {"continues", "dim: 8 dim: N", "value: 1"},
    {"rois", "dim: 3 dim: 5", "value: 3"},
    {"factor", "dim: N", "type: 'uniform' min: 0.5 max: 1.5"},
};

const std::string kWeights = " weight_filler { type: 'gaussian' std: 0.1 } ";
const std::string kConv = "convolution_param { bias_filler { type: 'uniform' }" + kWeights;

const Case kCases[] = {
    {"AbsVal", "AbsVal", "c"},
    {"Accuracy", "Accuracy", "c labels", "t", "", Ends::kNothing, true},
    {"ArgMax", "ArgMax", "c", "t", "argmax_param { axis: 1 }", Ends::kNothing, true},
    {"BatchNorm", "BatchNorm", "c"},
    {"BatchNormInPlace", "BatchNorm", "c", "c"},
    {"BatchNormOfMeans", "BatchNorm", "g"},
    {"BatchReindex", "BatchReindex", "c index"},
    {"Bias", "Bias", "c", "t", "bias_param { filler { type: 'uniform' } }"},
    {"BiasInPlace", "Bias", "c", "c", "bias_param { filler { type: 'uniform' } }"},
    {"BiasOfABottom", "Bias", "c factor", "t", "bias_param { axis: 1 }"},
    {"BNLL", "BNLL", "c"},
    {"Clip", "Clip", "c", "t", "clip_param { min: -0.5 max: 0.75 }"},
    {"Concat", "Concat", "c d"},
    {"ConcatOfPlain", "Concat", "c x d"},
    {"ConcatOfBatches", "Concat", "c d", "t", "concat_param { axis: 0 }"},
    {"ConcatOfRows", "Concat", "c d", "t", "concat_param { axis: 2 }"},
    {"ConcatOfMeans", "Concat", "g h"},
    {"ConcatOfOne", "Concat", "c"},
    {"ContrastiveLoss", "ContrastiveLoss", "g h alike", "t", "contrastive_loss_param { margin: 3 }",
     Ends::kLoss},
    {"Convolution", "Convolution", "c", "t", kConv + "num_output: 32 kernel_size: 3 pad: 1 }"},
    {"ConvolutionStrides", "Convolution", "c", "t",
     kConv + "num_output: 16 kernel_size: 3 stride: 2 pad: 1 }"},
    {"Convolution1x1", "Convolution", "c", "t", kConv + "num_output: 16 kernel_size: 1 }"},
    {"ConvolutionOfMeans", "Convolution", "g", "t", kConv + "num_output: 16 kernel_size: 1 }"},
    {"ConvolutionDilated", "Convolution", "c", "t",
     kConv + "num_output: 16 kernel_size: 3 dilation: 2 pad: 2 }"},
    {"ConvolutionGroups", "Convolution", "c", "t",
     kConv + "num_output: 16 kernel_size: 3 group: 2 }"},
    {"ConvolutionDepthwise", "Convolution", "c", "t",
     kConv + "num_output: N kernel_size: 3 group: N }"},
    {"ConvolutionOfFew", "Convolution", "c", "t", kConv + "num_output: 5 kernel_size: 3 }"},
    {"ConvolutionNoBias", "Convolution", "c", "t",
     kConv + "num_output: 16 kernel_size: 3 bias_term: false }"},
    {"ConvolutionOfTwo", "Convolution", "c d", "t u", kConv + "num_output: 16 kernel_size: 3 }"},
    {"Crop", "Crop", "c small", "t", "crop_param { offset: 1 offset: 2 }"},
    {"CropChannels", "Crop", "c thin", "t", "crop_param { axis: 1 offset: 3 }"},
    {"Deconvolution", "Deconvolution", "c", "t",
     kConv + "num_output: 16 kernel_size: 3 stride: 2 pad: 1 }"},
    {"DeconvolutionToFew", "Deconvolution", "c", "t",
     kConv + "num_output: 5 kernel_size: 2 stride: 2 }"},
    {"DeconvolutionDepthwise", "Deconvolution", "c", "t",
     kConv + "num_output: N kernel_size: 4 stride: 2 pad: 1 group: N }"},
    {"DeconvolutionNoBias", "Deconvolution", "c", "t",
     kConv + "num_output: 16 kernel_size: 3 pad: 1 bias_term: false }"},
    {"Dropout", "Dropout", "c", "t", "dropout_param { dropout_ratio: 0.3 }"},
    {"DropoutInPlace", "Dropout", "c", "c"},
    {"EltwiseSum", "Eltwise", "c d"},
    {"EltwiseSumOfPlain", "Eltwise", "like c", "t", "eltwise_param { coeff: -2 coeff: 0.5 }"},
    {"EltwiseSumOfThree", "Eltwise", "c d c", "t", "eltwise_param { coeff: 1 coeff: -1 coeff: 2 }"},
    {"EltwiseSumInPlace", "Eltwise", "c d", "c"},
    {"EltwiseMax", "Eltwise", "c d", "t", "eltwise_param { operation: MAX }"},
    {"EltwiseProduct", "Eltwise", "c d", "t", "eltwise_param { operation: PROD }"},
    {"EltwiseOfMeans", "Eltwise", "g h"},
    {"ELU", "ELU", "c"},
    {"ELUInPlace", "ELU", "c", "c", "elu_param { alpha: 0.5 }"},
    {"EuclideanLoss", "EuclideanLoss", "c d", "t", "", Ends::kLoss},
    {"Exp", "Exp", "c", "t", "exp_param { scale: 0.2 shift: 0.25 }"},
    {"Filter", "Filter", "c select"},
    {"Flatten", "Flatten", "c", "t", "", Ends::kSum},
    {"FlattenPlaces", "Flatten", "c", "t", "flatten_param { axis: 2 }", Ends::kSum},
    {"HingeLoss", "HingeLoss", "c label", "t", "hinge_loss_param { norm: L2 }", Ends::kLoss},
    {"Im2col", "Im2col", "c", "t", "convolution_param { kernel_size: 3 pad: 1 stride: 2 }"},
    {"InfogainLoss", "InfogainLoss", "c labels matrix", "t", "", Ends::kLoss},
    {"InnerProduct", "InnerProduct", "c", "t",
     "inner_product_param { num_output: 5" + kWeights + "}", Ends::kSum},
    {"InnerProductOfRows", "InnerProduct", "c", "t",
     "inner_product_param { num_output: 5 axis: -1" + kWeights + "}"},
    {"InnerProductOfMeans", "InnerProduct", "g", "t",
     "inner_product_param { num_output: 5" + kWeights + "}", Ends::kSum},
    {"Log", "Log", "c", "t", "log_param { scale: 0.5 shift: 10 }"},
    {"LRN", "LRN", "c", "t", "lrn_param { alpha: 0.5 }"},
    {"LRNWithin", "LRN", "c", "t",
     "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 2 }"},
    {"LRNOfSquaresAlone", "LRN", "exp", "t", "lrn_param { local_size: 3 k: 0 }"},
    {"LRNBesideRoomLeft", "LRN", "exp", "t", "lrn_param { alpha: 0.5 }"},
    {"LRNOfMeans", "LRN", "g", "t", "lrn_param { alpha: 0.5 local_size: 3 }"},
    {"LSTM", "LSTM", "c continues", "t", "recurrent_param { num_output: 3" + kWeights + "}",
     Ends::kSum},
    {"MultinomialLogisticLoss", "MultinomialLogisticLoss", "p label", "t", "", Ends::kLoss},
    {"MVN", "MVN", "c"},
    {"MVNAcross", "MVN", "c", "t", "mvn_param { across_channels: true }"},
    {"PoolingMax", "Pooling", "c", "t", "pooling_param { kernel_size: 3 stride: 2 }",
     Ends::kConvolution, false, 0.2},
    {"PoolingMaxOverlapping", "Pooling", "c", "t", "pooling_param { kernel_size: 3 pad: 1 }"},
    {"PoolingMaxApart", "Pooling", "c", "t",
     "pooling_param { kernel_h: 1 kernel_w: 2 stride_h: 3 stride_w: 2 }"},
    {"PoolingMaxMask", "Pooling", "c", "t u", "pooling_param { kernel_size: 3 stride: 2 }",
     Ends::kNothing, true},
    {"PoolingMaxGlobal", "Pooling", "c", "t", "pooling_param { global_pooling: true }",
     Ends::kConvolution, false, 0.2},
    {"PoolingAverage", "Pooling", "c", "t",
     "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"},
    {"PoolingAverageGlobal", "Pooling", "c", "t",
     "pooling_param { pool: AVE global_pooling: true }"},
    {"PoolingStochastic", "Pooling", "abs", "t",
     "pooling_param { pool: STOCHASTIC kernel_size: 3 stride: 2 }", Ends::kConvolution, true},
    {"Power", "Power", "c", "t", "power_param { power: 2 scale: 0.5 shift: 2 }"},
    {"PReLU", "PReLU", "c"},
    {"PReLUInPlace", "PReLU", "c", "c"},
    {"PriorBox", "PriorBox", "c x", "t", "prior_box_param { min_size: 4 }", Ends::kNothing},
    {"ReductionOfChannels", "Reduction", "c", "t", "reduction_param { operation: SUMSQ axis: 1 }",
     Ends::kSum},
    {"ReLU", "ReLU", "c"},
    {"ReLUInPlace", "ReLU", "c", "c", "relu_param { negative_slope: 0.1 }"},
    {"ReLUNegative", "ReLU", "c", "c", "relu_param { negative_slope: -0.5 }"},
    {"ReshapePlaces", "Reshape", "c", "t",
     "reshape_param { shape { dim: 0 dim: 0 dim: 13 dim: 10 } }"},
    {"ReshapeChannels", "Reshape", "c", "t",
     "reshape_param { shape { dim: 16 dim: -1 dim: 10 dim: 13 } }"},
    {"ReshapeTwice", "Reshape", "c", "t", "reshape_param { shape { dim: 0 dim: -1 } }", Ends::kSum},
    {"RNN", "RNN", "c continues", "t", "recurrent_param { num_output: 3" + kWeights + "}",
     Ends::kSum},
    {"ROIAlign", "ROIAlign", "c rois", "t", "roi_align_param { pooled_h: 2 pooled_w: 3 }",
     Ends::kSum},
    {"ROIPooling", "ROIPooling", "c rois", "t", "roi_pooling_param { pooled_h: 2 pooled_w: 3 }",
     Ends::kSum, false, 0.2},
    {"PSROIPooling", "PSROIPooling", "wide rois", "t",
     "psroi_pooling_param { spatial_scale: 1 output_dim: 8 group_size: 2 }", Ends::kSum},
    {"Scale", "Scale", "c", "t",
     "scale_param { bias_term: true filler { type: 'uniform' min: -1 } }"},
    {"ScaleInPlace", "Scale", "c", "c", "scale_param { filler { type: 'uniform' min: -1 } }"},
    {"ScaleByABottom", "Scale", "c d", "t", "scale_param { axis: 0 }"},
    {"ScaleByChannels", "Scale", "c factor", "t", "scale_param { axis: 1 }"},
    {"Sigmoid", "Sigmoid", "c", "c"},
    {"SigmoidCrossEntropyLoss", "SigmoidCrossEntropyLoss", "c like", "t", "", Ends::kLoss},
    {"Silence", "Silence", "c", "", "", Ends::kNothing},
    {"Slice", "Slice", "wide", "t u", "slice_param { slice_point: 16 }"},
    {"SliceInBlocks", "Slice", "c", "t u v", "slice_param { slice_point: 3 slice_point: 8 }"},
    {"SliceOfBatches", "Slice", "c", "t u", "slice_param { axis: 0 }"},
    {"SliceOfRows", "Slice", "c", "t u", "slice_param { axis: 2 }"},
    {"SmoothL1Loss", "SmoothL1Loss", "c d", "t", "", Ends::kLoss},
    {"SmoothL1LossOHEM", "SmoothL1LossOHEM", "c d like", "t", "", Ends::kLoss},
    {"Softmax", "Softmax", "c"},
    {"SoftmaxOfMeans", "Softmax", "g"},
    {"SoftmaxWithLoss", "SoftmaxWithLoss", "c labels", "t", "", Ends::kLoss},
    {"SoftmaxWithLossOHEM", "SoftmaxWithLossOHEM", "c labels", "t", "", Ends::kLoss},
    {"Split", "Split", "c", "t u"},
    {"SPP", "SPP", "c", "t", "spp_param { pyramid_height: 3 }", Ends::kSum, false, 0.2},
    {"SPPAverage", "SPP", "c", "t", "spp_param { pyramid_height: 2 pool: AVE }", Ends::kSum},
    {"SPPOfOneLevel", "SPP", "c", "t", "spp_param { pyramid_height: 1 }", Ends::kConvolution, false,
     0.2},
    {"Swish", "Swish", "c"},
    {"TanH", "TanH", "c", "c"},
    {"Threshold", "Threshold", "c", "t", "threshold_param { threshold: 0.1 }", Ends::kNothing,
     true},
    {"Tile", "Tile", "c", "t", "tile_param { axis: 1 tiles: 2 }"},
    {"Axpy", "Axpy", "g c d"},
    {"BN", "BN", "c", "t", "bn_param { slope_filler { type: 'uniform' } momentum: 0.9 }"},
    {"BNInPlace", "BN", "c", "c", "bn_param { bn_mode: LEARN }"},
    {"BNOfScalesAlone", "BN", "c", "t", "bn_param { bn_mode: INFERENCE }"},
    {"CenterLoss", "CenterLoss", "c label", "t",
     "center_loss_param { num_output: 5 center_filler { type: 'uniform' } }", Ends::kLoss},
    {"TypeConvolutionDepthwise", "ConvolutionDepthwise", "c", "t",
     kConv + "kernel_size: 3 pad: 1 }"},
    {"DepthwiseConvolution", "DepthwiseConvolution", "c", "t",
     kConv + "num_output: N group: N kernel_size: 3 stride: 2 }"},
    {"FocalLoss", "FocalLoss", "c labels", "t", "", Ends::kLoss},
    {"Interp", "Interp", "c", "t", "interp_param { zoom_factor: 2 }"},
    {"Normalize", "Normalize", "c", "t", "norm_param { across_spatial: false }"},
    {"Permute", "Permute", "c", "t", "permute_param { order: 0 order: 2 order: 3 order: 1 }",
     Ends::kSum},
    {"ReLU6", "ReLU6", "c"},
    {"ReLU6InPlace", "ReLU6", "c", "c", "relu6_param { negative_slope: 0.1 }"},
    {"Reorg", "Reorg", "wide", "t", "reorg_param { stride: 2 reverse: true }"},
    {"ShuffleChannel", "ShuffleChannel", "wide", "t", "shuffle_channel_param { group: 4 }"},
    {"SoftmaxFocalLoss", "SoftmaxFocalLoss", "c labels", "t", "", Ends::kLoss},
    {"Upsample", "Upsample", "c", "t", "upsample_param { scale: 2 }"},
    {"TileRows", "Tile", "c", "t", "tile_param { axis: 2 tiles: 2 }"},
};

// Layers without a case, and why.
const std::map<std::string, std::string> kExempt = {
    {"Data", "no bottoms"},
    {"DummyData", "no bottoms"},
    {"HDF5Data", "no bottoms"},
    {"ImageData", "no bottoms"},
    {"Input", "no bottoms"},
    {"MemoryData", "no bottoms"},
    {"Parameter", "no bottoms"},
    {"WindowData", "no bottoms"},
    {"Embed", "its bottom is indices"},
    {"LSTMUnit", "takes 3 axes"},
    {"Pooling3D", "takes 5 axes"},
    {"HDF5Output", "no tops"},
    {"DenseImageData", "no bottoms"},
    {"ImageSegData", "no bottoms"},
    {"BoxAnnotatorOHEM", "its bottoms are rows of boxes"},
    {"Proposal", "its bottoms have other channels"},
    {"YoloDetectionOutput", "its bottoms have other channels"},
    {"Yolov3DetectionOutput", "its bottoms have other channels"},
    {"RegionLoss", "its bottoms have other channels"},
    {"Yolov3", "its bottoms have other channels"},
    {"AnnotatedData", "no bottoms"},
    {"DetectionEvaluate", "its bottoms are rows of boxes"},
    {"DetectionOutput", "its bottoms are flattened"},
    {"MultiBoxLoss", "its bottoms are flattened"},
};

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

std::string input(const std::string& name, const std::string& shape, const std::string& filler) {
  return str("layer { name: '", name, "' type: 'DummyData' top: '", name,
             "' dummy_data_param { shape { ", shape, " } data_filler { ", filler, " } } }\n");
}

std::string conv(const std::string& bottom, const std::string& top, const std::string& more) {
  return str("layer { name: 'conv_", top, "' type: 'Convolution' bottom: '", bottom, "' top: '",
             top, "' convolution_param { kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } ",
             more, " } }\n");
}

// A layer of that type from `bottom` to `top`.
std::string between(const std::string& type, const std::string& bottom, const std::string& top,
                    const std::string& param = "") {
  return str("layer { name: '", top, "' type: '", type, "' bottom: '", bottom, "' top: '", top,
             "' ", param, " }\n");
}

// The convolutions in front.
std::string front(const std::set<std::string>& bottoms) {
  const std::string mean = "pooling_param { pool: AVE global_pooling: true }";
  std::string text = input("x", "dim: 8 dim: 3 dim: 10 dim: 13", "type: 'gaussian'");
  text += conv("x", "c", "num_output: N bias_term: false");
  text += conv("x", "d", "num_output: N bias_term: false");
  if (bottoms.contains("wide")) text += conv("c", "wide", "num_output: 32");
  if (bottoms.contains("abs")) text += between("AbsVal", "c", "abs");
  if (bottoms.contains("exp")) text += between("Exp", "c", "exp", "exp_param { scale: 0.2 }");
  if (bottoms.contains("g") || bottoms.contains("p")) text += between("Pooling", "c", "g", mean);
  if (bottoms.contains("h")) text += between("Pooling", "d", "h", mean);
  if (bottoms.contains("p")) text += between("Softmax", "g", "p");
  for (const Plain& plain : kPlain)
    if (bottoms.contains(plain.name)) text += input(plain.name, plain.shape, plain.filler);
  return text;
}

std::string net_text(const Case& c, int channels) {
  const std::vector<std::string> bottoms = words(c.bottoms), tops = words(c.tops);
  std::string text = front({bottoms.begin(), bottoms.end()});
  text += "layer { name: 'tested' type: '" + c.type + "' ";
  for (const std::string& bottom : bottoms) text += "bottom: '" + bottom + "' ";
  for (const std::string& top : tops) text += "top: '" + top + "' ";
  text += c.param + " }\n";
  std::vector<std::string> sums = {"d"};
  for (const std::string& top : tops) {
    if (c.ends == Ends::kConvolution)
      text += conv(top, "e_" + top, "num_output: 16 bias_filler { type: 'uniform' }");
    if (c.ends == Ends::kConvolution) sums.push_back("e_" + top);
    if (c.ends == Ends::kSum) sums.push_back(top);
  }
  for (const std::string& sum : sums)
    text += between("Reduction", sum, "sum_" + sum,
                    "loss_weight: 0.01 reduction_param { operation: SUMSQ }");
  for (std::size_t at; (at = text.find(": N ")) != std::string::npos;)
    text.replace(at, 3, str(": ", channels));
  return text;
}

// One block of channels, or two with room left. (Two threads that wait for each other take most of
// the time where other programs run, too.)
struct Trial {
  int channels;
  Phase phase;
  int threads;  // of AUTO
  bool share_memory;
};
constexpr Trial kTrials[] = {{16, TRAIN, 2, false}, {28, TRAIN, 1, true}, {28, TEST, 1, false}};
constexpr int kPasses = 2;

// Returns the results of `want` that have the names of `got`.
Results of_the_same_names(const Results& want, const Results& got) {
  std::set<std::string> names;
  for (const auto& [name, numbers] : got) names.insert(name);
  Results some;
  for (const auto& result : want)
    if (names.contains(result.first)) some.push_back(result);
  return some;
}

class ChoicesLayers : public testing::TestWithParam<Case> {};

TEST_P(ChoicesLayers, AreTheSameBetweenConvolutions) {
  const Case& c = GetParam();
  for (const auto& [channels, phase, most_threads, share] : kTrials) {
    const NetParameter param = net_of(net_text(c, channels), phase);
    std::vector<Results> want;
    ChosenNet plain(plain_net(param), kDirect, 1, {.share_memory = false});
    for (int pass = 0; pass < kPasses; ++pass) want.push_back(run_pass(plain.net, true));
    for (const Choice& choice : kChoices) {
      if (choice.is_short() ? c.jumps : choice.direct && most_threads > 1) continue;
      const int threads = choice.is_short() ? 1 : most_threads;
      const Tolerance tolerance =
          choice.is_short() ? Tolerance{1, c.rounding} : Tolerance{1e-5, 1e-5};
      SCOPED_TRACE(str(choice.name, ", channels ", channels, ", phase ", Phase_Name(phase),
                       ", threads ", threads, share ? ", shared memory" : ""));
      ChosenNet chosen(param, choice, threads, {.share_memory = share});
      for (const Results& all : want) {
        const Results got = run_pass(chosen.net, !share);
        expect_close(got, of_the_same_names(all, got), tolerance);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChoicesLayers, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Otherwise the cases would compare plain nets with plain nets.
TEST(ChoicesCases, TheirBottomsAreInBlocks) {
  if (!keeps_blocks()) GTEST_SKIP() << "no oneDNN in this build, or not for this processor";
  for (const int channels : {16, 28})
    for (const Choice& choice : kChoices) {
      ChosenNet one(net_of(net_text({"", "ReLU", "c"}, channels), TRAIN), choice);
      int seen = 0;
      one.net.after_forward([&](int layer) {
        const std::string& name = one.net.layers()[static_cast<std::size_t>(layer)]->name();
        if (name != "conv_c" && name != "tested" && name != "conv_e_t") return Status();
        ++seen;
        EXPECT_NE(one.net.tops(layer)[0]->data.layout(), nullptr) << name;
        return Status();
      });
      ASSERT_TRUE(one.net.forward().ok());
      EXPECT_EQ(seen, 3);
    }
}

TEST(ChoicesCases, EveryLayerTypeHasOne) {
  std::set<std::string> tried;
  for (const Case& c : kCases) tried.insert(c.type);
  for (const std::string& type : layer_types())
    EXPECT_NE(tried.contains(type), kExempt.contains(type)) << type;
}

}  // namespace
}  // namespace shoal::test::choices_layers_test
