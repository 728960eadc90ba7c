// Upgrades nets and solvers of old formats.
#include "shoal/proto/upgrade.h"

#include <algorithm>
#include <filesystem>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

constexpr int kOldAxes = 4;         // of an input given by input_dim
constexpr int kBatchNormBlobs = 3;  // mean, variance, factor

// Shapes for all inputs, from input_shape if there are any, else four input_dim each.
InputParameter input_shapes(const NetParameter& net, const std::string& where) {
  const int inputs = net.input_size(), shapes = net.input_shape_size(), dims = net.input_dim_size();
  if (shapes ? shapes != inputs : dims != kOldAxes * inputs)
    throw ConfigError(
        Code::kConfig, where, ": ", inputs, " `input`, but ", shapes ? shapes : dims,
        shapes ? " `input_shape`; each input takes one" : " `input_dim`; each input takes four");
  InputParameter param;
  *param.mutable_shape() = net.input_shape();
  for (int i = 0; shapes == 0 && i < dims; ++i) {
    if (i % kOldAxes == 0) param.add_shape();
    param.mutable_shape(i / kOldAxes)->add_dim(net.input_dim(i));
  }
  return param;
}

// Returns whether a layer of type Input makes every top that `input` names.
bool inputs_are_layers(const NetParameter& net) {
  return std::ranges::all_of(net.input(), [&](const std::string& name) {
    return std::ranges::any_of(net.layer(), [&](const LayerParameter& layer) {
      return layer.type() == "Input" && std::ranges::count(layer.top(), name) > 0;
    });
  });
}

// `input` fields become a layer named "input" in front. Without shapes they only repeat the tops of
// Input layers, or the net is wrong.
void upgrade_input(NetParameter& net, const NetSource& source) {
  if (net.input_size() == 0) return;
  const bool has_shapes = net.input_shape_size() > 0 || net.input_dim_size() > 0;
  if (has_shapes || (source.is_text && !inputs_are_layers(net))) {
    const std::string where = source.input_origin.empty() ? source.name : source.input_origin;
    LayerParameter* layer = net.add_layer();
    *layer->mutable_input_param() = input_shapes(net, where);
    layer->set_name("input");
    layer->set_type("Input");
    *layer->mutable_top() = net.input();
    if (!source.input_origin.empty()) layer->set_origin(source.input_origin);
    for (int i = net.layer_size() - 1; i > 0; --i) net.mutable_layer()->SwapElements(i, i - 1);
    LOG(INFO) << source.name << ": " << net.input_size()
              << " `input` fields read as a layer 'input' of type Input";
  }
  net.clear_input();
  net.clear_input_shape();
  net.clear_input_dim();
}

// The three blobs of a BatchNorm are statistics: no solver changes them. Older nets say so by hand,
// or forgot to.
void upgrade_batch_norm(NetParameter& net, const NetSource& source) {
  int changed = 0;
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() != "BatchNorm" || layer.param_size() != kBatchNormBlobs) continue;
    bool changes = false;
    for (ParamSpec& param : *layer.mutable_param()) {
      changes |= param.lr_mult() != 0 || param.decay_mult() != 0;
      param.set_lr_mult(0);
      param.set_decay_mult(0);
    }
    changed += changes;
  }
  if (changed)
    LOG(INFO) << source.name << ": lr_mult and decay_mult of " << changed
              << " BatchNorm layers set to 0: their blobs are statistics";
}

// A value for the first spatial axis and one for each of the two others.
void set_three(std::uint32_t first, std::uint32_t others,
               google::protobuf::RepeatedField<std::uint32_t>& list) {
  list.Clear();
  list.Add(first);
  list.Add(others);
  list.Add(others);
}

void make_plain_convolution(LayerParameter& layer) {
  ConvolutionParameter& conv = *layer.mutable_convolution_param();
  if (conv.kernel_size_size() != 1 || !conv.has_kernel_depth() || conv.stride_size() > 1 ||
      conv.pad_size() > 1)
    throw config_error(layer,
                       "Convolution3D, of C3D's fork, takes kernel_size and kernel_depth, one "
                       "value each, and perhaps stride, temporal_stride, pad and temporal_pad");
  set_three(conv.kernel_depth(), conv.kernel_size(0), *conv.mutable_kernel_size());
  set_three(conv.temporal_stride(), conv.stride_size() ? conv.stride(0) : 1,
            *conv.mutable_stride());
  set_three(conv.temporal_pad(), conv.pad_size() ? conv.pad(0) : 0, *conv.mutable_pad());
  conv.clear_kernel_depth();
  conv.clear_temporal_stride();
  conv.clear_temporal_pad();
}

// C3D's convolution is a Convolution with three spatial axes, and has a message of its own in the
// fork's newer form, as its pooling has.
void upgrade_c3d(NetParameter& net, const NetSource& source) {
  int convolutions = 0;
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.has_convolution3d_param()) {
      layer.mutable_convolution_param()->MergeFrom(layer.convolution3d_param());
      layer.clear_convolution3d_param();
    }
    if (layer.has_pooling3d_param()) {
      layer.mutable_pooling_param()->MergeFrom(layer.pooling3d_param());
      layer.clear_pooling3d_param();
    }
    if (layer.type() == "Convolution3D") {
      // A model of the fork's has the fields under numbers that mean nothing here.
      if (source.is_text || layer.has_convolution_param()) make_plain_convolution(layer);
      layer.set_type("Convolution");
      ++convolutions;
    }
    const ConvolutionParameter& conv = layer.convolution_param();
    if (conv.has_kernel_depth() || conv.has_temporal_stride() || conv.has_temporal_pad())
      throw config_error(layer,
                         "kernel_depth, temporal_stride and temporal_pad are of Convolution3D, of "
                         "C3D's fork; kernel_size, stride and pad take a value for each axis");
    if (layer.type() != "Pooling3D" &&
        (layer.pooling_param().has_kernel_depth() || layer.pooling_param().has_temporal_stride()))
      throw config_error(layer, "kernel_depth and temporal_stride are of Pooling3D, of C3D's fork");
  }
  if (convolutions)
    LOG(INFO) << source.name << ": " << convolutions
              << " Convolution3D layers (of C3D's fork) read as Convolution with three axes";
}

// These fields work in V1 nets, where they are moved. Caffe reads them nowhere else but for the
// scale of WindowData, and says nothing.
template <class Param>
void warn_ignored(const LayerParameter& layer, const Param& param, const char* name) {
  const bool reads_scale = layer.type() == "WindowData";
  if ((param.has_scale() && !reads_scale) || param.has_mean_file() || param.has_crop_size() ||
      param.has_mirror())
    LOG(WARNING) << layer_place(layer) << ": " << (reads_scale ? "" : "scale, ")
                 << "mean_file, crop_size and mirror of " << name
                 << " have no effect; they belong in transform_param";
}

void check_transforms(const NetParameter& net) {
  for (const LayerParameter& layer : net.layer()) {
    if (reads_data_param(layer)) warn_ignored(layer, layer.data_param(), "data_param");
    if (layer.type() == "ImageData")
      warn_ignored(layer, layer.image_data_param(), "image_data_param");
    if (layer.type() == "WindowData")
      warn_ignored(layer, layer.window_data_param(), "window_data_param");
  }
}

const char* solver_name(SolverParameter::SolverType type) {
  switch (type) {
    case SolverParameter::SGD: return "SGD";
    case SolverParameter::NESTEROV: return "Nesterov";
    case SolverParameter::ADAGRAD: return "AdaGrad";
    case SolverParameter::RMSPROP: return "RMSProp";
    case SolverParameter::ADADELTA: return "AdaDelta";
    case SolverParameter::ADAM: return "Adam";
  }
  return "SGD";
}

}  // namespace

void upgrade_net(NetParameter& net, NetSource source) {
  upgrade_v0(net, source);
  upgrade_v1(net, source);
  upgrade_input(net, source);
  upgrade_batch_norm(net, source);
  upgrade_c3d(net, source);
  if (source.is_text) check_transforms(net);
}

void upgrade_solver_type(SolverParameter& solver, const std::string& name) {
  if (!solver.has_solver_type()) return;
  if (solver.has_type())
    throw ConfigError(Code::kConfig, name, ": both type and solver_type are set; keep type");
  solver.set_type(solver_name(solver.solver_type()));
  solver.clear_solver_type();
  LOG(INFO) << name << ": solver_type read as type: \"" << solver.type() << "\"";
}

void complete_snapshot_prefix(SolverParameter& solver, const std::string& name) {
  const std::filesystem::path path(name);
  if (solver.snapshot_prefix().empty()) {
    solver.set_snapshot_prefix(std::filesystem::path(path).replace_extension().string());
    LOG(INFO) << name << ": no snapshot_prefix; snapshots go to " << solver.snapshot_prefix()
              << "_iter_N";
  } else if (std::error_code ignored;
             std::filesystem::is_directory(solver.snapshot_prefix(), ignored)) {
    solver.set_snapshot_prefix(
        (std::filesystem::path(solver.snapshot_prefix()) / path.stem()).string());
    LOG(INFO) << name << ": snapshot_prefix is a folder; snapshots go to "
              << solver.snapshot_prefix() << "_iter_N";
  }
}

}  // namespace shoal
