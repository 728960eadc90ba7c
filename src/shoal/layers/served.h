// A layer's op: its description, the kernel that carries it out, and why that one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/ops/op.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Which implementations the prototxt allows, for ops::choose: the layer's field `engine`, or
// Caffe's enum of its own message (all of which count DEFAULT 0, CAFFE 1, CUDNN 2). Throws
// ConfigError if both are given and differ.
std::string engine_of(const LayerParameter& param, int caffe_engine = 0);

template <class Desc, class Kernel>
class Served {
 public:
  // Makes a kernel for `desc` unless the present one is for the same. Throws ConfigError if nothing
  // serves it.
  void serve(const char* op, std::span<const ops::Impl<Desc, Kernel>* const> impls,
             const Desc& desc, Context& ctx, const std::string& engine) {
    if (kernel_ && desc == desc_) return;
    auto chosen = ops::choose<Desc, Kernel>(op, impls, desc, ctx, engine);
    kernel_ = std::move(chosen.kernel);
    choice_ = std::move(chosen.choice);
    desc_ = desc;
  }
  Kernel* operator->() const { return kernel_.get(); }
  const Desc& desc() const { return desc_; }
  std::vector<ops::Choice> choices() const {
    if (!kernel_) return {};
    return {choice_};
  }

 private:
  Desc desc_{};
  std::unique_ptr<Kernel> kernel_;
  ops::Choice choice_;
};

}  // namespace shoal
