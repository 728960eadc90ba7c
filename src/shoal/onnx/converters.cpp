// The types of layers that can be exported.
#include "shoal/onnx/converters.h"

#include <algorithm>

#include "shoal/onnx/export.h"

namespace shoal::onnx {
namespace {

struct Entry {
  std::string_view type;
  Converter convert;
};

constexpr Entry kConverters[] = {
    {"AbsVal", convert_abs},
    {"ArgMax", convert_arg_max},
    {"Axpy", convert_axpy},
    {"BatchNorm", convert_batch_norm},
    {"BatchReindex", convert_batch_reindex},
    {"Bias", convert_bias},
    {"BN", convert_bn},
    {"BNLL", convert_bnll},
    {"Clip", convert_clip},
    {"Concat", convert_concat},
    {"Convolution", convert_convolution},
    {"ConvolutionDepthwise", convert_convolution},
    {"Crop", convert_crop},
    {"Deconvolution", convert_deconvolution},
    {"DepthwiseConvolution", convert_convolution},
    {"DetectionOutput", convert_detection_output},
    {"Dropout", convert_dropout},
    {"Eltwise", convert_eltwise},
    {"ELU", convert_elu},
    {"Embed", convert_embed},
    {"Exp", convert_exp},
    {"Filter", convert_filter},
    {"Flatten", convert_shape},
    {"Im2col", convert_im2col},
    {"InnerProduct", convert_inner_product},
    {"Interp", convert_interp},
    {"Log", convert_log},
    {"LRN", convert_lrn},
    {"LSTM", convert_lstm},
    {"LSTMUnit", convert_lstm_unit},
    {"MVN", convert_mvn},
    {"Normalize", convert_normalize},
    {"Parameter", convert_parameter},
    {"Permute", convert_permute},
    {"Pooling", convert_pooling},
    {"Power", convert_power},
    {"PReLU", convert_prelu},
    {"PriorBox", convert_prior_box},
    {"Proposal", convert_proposal},
    {"Reduction", convert_reduction},
    {"ReLU", convert_relu},
    {"ReLU6", convert_relu6},
    {"Reorg", convert_reorg},
    {"Reshape", convert_shape},
    {"RNN", convert_rnn},
    {"ROIAlign", convert_roi_align},
    {"ROIPooling", convert_roi_pooling},
    {"Scale", convert_scale},
    {"ShuffleChannel", convert_shuffle_channel},
    {"Sigmoid", convert_sigmoid},
    {"Silence", convert_silence},
    {"Slice", convert_slice},
    {"Softmax", convert_softmax},
    {"SPP", convert_spp},
    {"Swish", convert_swish},
    {"TanH", convert_tanh},
    {"Threshold", convert_threshold},
    {"Tile", convert_tile},
    {"Upsample", convert_upsample},
    {"YoloDetectionOutput", convert_yolo_detection_output},
    {"Yolov3DetectionOutput", convert_yolov3_detection_output},
};

}  // namespace

Converter converter_of(std::string_view type) {
  const Entry* const entry = std::ranges::find(kConverters, type, &Entry::type);
  return entry != std::end(kConverters) ? entry->convert : nullptr;
}

std::vector<std::string> exported_types() {
  std::vector<std::string> types;
  for (const Entry& entry : kConverters) types.emplace_back(entry.type);
  return types;
}

}  // namespace shoal::onnx
