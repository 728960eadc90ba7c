// One entry a case, sorted by name, each complete in itself: branches that add some are merged line by line.
#include "support/layer_cases.h"

namespace shoal::test {
namespace {

// clang-format off
const std::vector<LayerCase> kCases = {
    {.name = "absval", .type = "AbsVal", .bottoms = {away_from({0}, {2, 3, 4})}},
    {.name = "accuracy", .type = "Accuracy", .bottoms = {no_gradient(distinct({6, 5})), integers(5, {6})}},
    {.name = "accuracy_axis_ignore_per_class", .type = "Accuracy", .param = "accuracy_param { top_k: 2 axis: -2 ignore_label: 1 }", .bottoms = {no_gradient(distinct({3, 4, 5})), integers(4, {3, 5})}, .tops = 2},
    {.name = "argmax", .type = "ArgMax", .param = "argmax_param { top_k: 3 out_max_val: true }", .bottoms = {no_gradient(distinct({3, 2, 4}))}},
    {.name = "argmax_axis", .type = "ArgMax", .param = "argmax_param { top_k: 2 axis: 1 }", .bottoms = {no_gradient(distinct({2, 4, 3}))}},
    {.name = "bnll", .type = "BNLL", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "clip", .type = "Clip", .param = "clip_param { min: -0.5 max: 0.75 }", .bottoms = {away_from({-0.5f, 0.75f}, {2, 3, 4})}},
    {.name = "contrastiveloss", .type = "ContrastiveLoss", .param = "contrastive_loss_param { margin: 3 }", .bottoms = {gaussian({6, 3}), gaussian({6, 3}), integers(2, {6})}},
    {.name = "contrastiveloss_legacy", .type = "ContrastiveLoss", .param = "contrastive_loss_param { margin: 6 legacy_version: true } loss_weight: 0.5", .bottoms = {gaussian({6, 2, 1, 1}), gaussian({6, 2, 1, 1}), integers(2, {6})}},
    {.name = "dropout", .type = "Dropout", .param = "dropout_param { dropout_ratio: 0.3 }", .bottoms = {gaussian({5, 7, 3})}},
    {.name = "dropout_test", .type = "Dropout", .bottoms = {gaussian({2, 3, 4})}, .phase = TEST},
    {.name = "dummydata_constants", .type = "DummyData", .param = "dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 4 } data_filler { value: 2 } }", .tops = 2},
    {.name = "dummydata_random", .type = "DummyData", .param = "dummy_data_param { num: 2 channels: 3 height: 2 width: 2 data_filler { type: 'uniform' } }"},
    {.name = "elu", .type = "ELU", .param = "elu_param { alpha: 0.5 }", .bottoms = {away_from({0}, {2, 3, 4})}},
    {.name = "elu_negative", .type = "ELU", .param = "elu_param { alpha: -0.5 }", .bottoms = {away_from({0}, {2, 3, 4})}},
    {.name = "euclideanloss", .type = "EuclideanLoss", .param = "loss_weight: 0.5", .bottoms = {gaussian({4, 3}), gaussian({4, 3, 1})}},
    {.name = "exp", .type = "Exp", .param = "exp_param { scale: 0.5 shift: -0.25 }", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "exp_base", .type = "Exp", .param = "exp_param { base: 2 }", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "hingeloss_l1", .type = "HingeLoss", .bottoms = {away_from({-1, 1}, {5, 4}), integers(4, {5})}},
    {.name = "hingeloss_l2", .type = "HingeLoss", .param = "hinge_loss_param { norm: L2 } loss_weight: 2", .bottoms = {gaussian({5, 2, 2}), integers(4, {5})}},
    {.name = "infogainloss", .type = "InfogainLoss", .bottoms = {gaussian({5, 3}), integers(3, {5}), no_gradient(uniform(0, 1, {3, 3}))}, .fixed_batch = true},
    {.name = "infogainloss_spatial", .type = "InfogainLoss", .param = "loss_param { ignore_label: 2 normalization: FULL }", .bottoms = {gaussian({2, 3, 2, 2}), integers(3, {2, 2, 2}), no_gradient(uniform(0, 1, {3, 3}))}, .tops = 2, .zero_tops = {1}, .fixed_batch = true},
    {.name = "log", .type = "Log", .param = "log_param { scale: 2 shift: 0.5 }", .bottoms = {uniform(0.5f, 3, {2, 3, 4})}},
    {.name = "log_base", .type = "Log", .param = "log_param { base: 10 }", .bottoms = {uniform(0.5f, 3, {2, 3, 4})}},
    {.name = "multinomiallogisticloss", .type = "MultinomialLogisticLoss", .bottoms = {uniform(0.3f, 1, {5, 4}), integers(4, {5})}},
    {.name = "power", .type = "Power", .param = "power_param { power: 2.5 scale: 0.5 shift: 2 }", .bottoms = {uniform(-2, 2, {2, 3, 4})}},
    {.name = "power_constant", .type = "Power", .param = "power_param { power: 2 scale: 0 shift: 3 }", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "power_linear", .type = "Power", .param = "power_param { scale: -3 shift: 2 }", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "power_square", .type = "Power", .param = "power_param { power: 2 scale: 0.5 shift: -1 }", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "prelu", .type = "PReLU", .bottoms = {away_from({0}, {2, 3, 4, 2})}},
    {.name = "prelu_shared", .type = "PReLU", .param = "prelu_param { channel_shared: true filler { value: 0.1 } }", .bottoms = {away_from({0}, {5, 3})}},
    {.name = "relu", .type = "ReLU", .bottoms = {away_from({0}, {2, 3, 4})}},
    {.name = "relu_leaky", .type = "ReLU", .param = "relu_param { negative_slope: 0.1 }", .bottoms = {away_from({0}, {2, 3, 4})}},
    {.name = "relu_negative", .type = "ReLU", .param = "relu_param { negative_slope: -0.5 }", .bottoms = {away_from({0}, {2, 3, 4})}},
    {.name = "sigmoid", .type = "Sigmoid", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "sigmoidcrossentropyloss", .type = "SigmoidCrossEntropyLoss", .bottoms = {gaussian({4, 3}), no_gradient(uniform(0, 1, {4, 3}))}},
    {.name = "sigmoidcrossentropyloss_ignore", .type = "SigmoidCrossEntropyLoss", .param = "loss_param { ignore_label: 2 normalization: VALID } loss_weight: 3", .bottoms = {gaussian({4, 3, 2}), integers(3, {4, 6})}},
    {.name = "silence", .type = "Silence", .bottoms = {gaussian({2, 3}), gaussian({4})}, .tops = 0},
    {.name = "softmaxwithloss", .type = "SoftmaxWithLoss", .bottoms = {gaussian({5, 4}), integers(4, {5})}},
    {.name = "softmaxwithloss_axis_weight", .type = "SoftmaxWithLoss", .param = "softmax_param { axis: -1 } loss_param { normalization: BATCH_SIZE } loss_weight: 2", .bottoms = {gaussian({3, 2, 4}), integers(4, {3, 2})}},
    {.name = "softmaxwithloss_spatial_ignore_two_tops", .type = "SoftmaxWithLoss", .param = "loss_param { ignore_label: 1 }", .bottoms = {gaussian({2, 3, 2, 4}), integers(3, {2, 2, 4})}, .tops = 2, .zero_tops = {1}},
    {.name = "split", .type = "Split", .bottoms = {gaussian({2, 3, 4})}, .tops = 3},
    {.name = "split_one", .type = "Split", .bottoms = {gaussian({2, 3})}},
    {.name = "split_two", .type = "Split", .bottoms = {gaussian({3, 5})}, .tops = 2},
    {.name = "swish", .type = "Swish", .param = "swish_param { beta: 1.5 }", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "tanh", .type = "TanH", .bottoms = {gaussian({2, 3, 4})}},
    {.name = "threshold", .type = "Threshold", .param = "threshold_param { threshold: 0.25 }", .bottoms = {no_gradient(gaussian({2, 3, 4}))}},
};

constexpr Exempt kExempt[] = {
    {"Data", "reads a database; data tests"},
    {"ImageData", "reads images; data tests"},
    {"Input", "no arithmetic: its caller fills the tops"},
    {"MemoryData", "no arithmetic: its caller gives the records"},
};
// clang-format on

}  // namespace

std::span<const LayerCase> every_layer_case() { return kCases; }
std::span<const Exempt> exempt_layers() { return kExempt; }

}  // namespace shoal::test
