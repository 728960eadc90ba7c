// Keeps the kernel that carries out a layer's op, its description, and why it was chosen.
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

// Returns which implementations the prototxt allows, for ops::choose: the layer's field `engine`,
// or the enum `engine` of the message of its type (its numbers are the same in all of Caffe's
// messages), whose CUDNN is DEFAULT: cuDNN where it is there and the fastest. Throws ConfigError if
// both are given and differ.
std::string engine_of(const LayerParameter& param, int caffe_engine = 0);

template <class Desc, class Kernel>
class SelectedKernel {
 public:
  // Makes a kernel for `desc` unless the present one is for the same, or there is nothing to do.
  // Returns whether it made one. Throws ConfigError if nothing serves it.
  bool select(const char* op, std::span<const ops::Impl<Desc, Kernel>* const> impls,
              const Desc& desc, Context& ctx, const std::string& engine) {
    if (kernel_ && ((desc == desc_ && engine == engine_) || desc.is_empty())) return false;
    auto chosen = ops::choose<Desc, Kernel>(op, impls, desc, ctx, engine);
    kernel_ = std::move(chosen.kernel);
    choice_ = std::move(chosen.choice);
    desc_ = desc;
    engine_ = engine;
    return true;
  }
  // Explains the choice by these times of all candidates, and not by the engine that they led to.
  void explain_by(const std::string& times) {
    choice_.how += str(choice_.how.empty() ? "" : "; ", "measured: ", times);
    std::erase_if(choice_.refused,
                  [](const ops::Refusal& refusal) { return refusal.why.starts_with("engine "); });
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
  std::string engine_;
};

}  // namespace shoal
