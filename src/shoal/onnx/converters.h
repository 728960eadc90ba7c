// The converters of layers, a function each. converters.cpp has the table of types.
#pragma once

#include "shoal/onnx/layer_export.h"

namespace shoal::onnx {

// functions.cpp: one function a number
void convert_abs(LayerExport& x);
void convert_bnll(LayerExport& x);
void convert_clip(LayerExport& x);
void convert_dropout(LayerExport& x);
void convert_elu(LayerExport& x);
void convert_exp(LayerExport& x);
void convert_log(LayerExport& x);
void convert_power(LayerExport& x);
void convert_prelu(LayerExport& x);
void convert_relu(LayerExport& x);
void convert_relu6(LayerExport& x);
void convert_sigmoid(LayerExport& x);
void convert_softmax(LayerExport& x);
void convert_swish(LayerExport& x);
void convert_tanh(LayerExport& x);
void convert_threshold(LayerExport& x);
// sums.cpp: products and sums
void convert_axpy(LayerExport& x);
void convert_bias(LayerExport& x);
void convert_eltwise(LayerExport& x);
void convert_embed(LayerExport& x);
void convert_inner_product(LayerExport& x);
void convert_reduction(LayerExport& x);
void convert_scale(LayerExport& x);
// shapes.cpp: numbers in other places
void convert_arg_max(LayerExport& x);
void convert_batch_reindex(LayerExport& x);
void convert_concat(LayerExport& x);
void convert_crop(LayerExport& x);
void convert_filter(LayerExport& x);
void convert_parameter(LayerExport& x);
void convert_permute(LayerExport& x);
void convert_reorg(LayerExport& x);
void convert_shape(LayerExport& x);  // Flatten, Reshape
void convert_shuffle_channel(LayerExport& x);
void convert_silence(LayerExport& x);
void convert_slice(LayerExport& x);
void convert_tile(LayerExport& x);
// windows.cpp: windows of planes
void convert_convolution(LayerExport& x);
void convert_deconvolution(LayerExport& x);
void convert_im2col(LayerExport& x);
void convert_interp(LayerExport& x);
void convert_upsample(LayerExport& x);
// pools.cpp
void convert_pooling(LayerExport& x);
void convert_spp(LayerExport& x);
// norms.cpp
void convert_batch_norm(LayerExport& x);
void convert_bn(LayerExport& x);
void convert_lrn(LayerExport& x);
void convert_mvn(LayerExport& x);
void convert_normalize(LayerExport& x);
// boxes.cpp, proposal.cpp, detection.cpp, yolo.cpp
void convert_prior_box(LayerExport& x);
void convert_roi_align(LayerExport& x);
void convert_roi_pooling(LayerExport& x);
void convert_proposal(LayerExport& x);
void convert_detection_output(LayerExport& x);
void convert_yolo_detection_output(LayerExport& x);
void convert_yolov3_detection_output(LayerExport& x);
// sequences.cpp
void convert_lstm(LayerExport& x);
void convert_lstm_unit(LayerExport& x);
void convert_rnn(LayerExport& x);

}  // namespace shoal::onnx
