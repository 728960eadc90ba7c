// Picks one of an op's several implementations.
//
// An op is described by a plain struct (ConvDesc, PoolDesc ...) and carried out by a kernel object
// made for one description. impls.cpp lists the implementations of each op, fastest first, the
// plain CPU one last and for ever; each says why it cannot serve a description. The choice is made
// once, when the layer is set up, and is kept for --explain_ops.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Says why not; empty is yes. kYes is defined once, in dispatch.cpp: it would else be initialized
// before main in each object, those for newer processors among them.
using Why = std::string;
extern const Why kYes;

struct Refusal {
  std::string impl;
  Why why;
};
struct Choice {
  std::string op;    // "conv"
  std::string impl;  // "plain"
  std::vector<Refusal> refused;
  KernelNeeds needs;  // of the chosen kernel
  std::string how{};  // how the chosen kernel computes, if it has a choice
};

// The base of all kernels.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual KernelNeeds needs(const Context&) const { return {}; }
  // Returns the algorithms that it chose among, for --explain_ops: "forward winograd, ...".
  virtual std::string how() const { return {}; }
};

template <class Desc, class Kernel>
struct Impl {
  const char* name;  // "cudnn", "cuda", "direct", "plain": what LayerParameter.engine may say
  Why (*supports)(const Desc&, const Context&);
  std::unique_ptr<Kernel> (*make)(const Desc&, Context&);
};

// The engine that stands for every implementation of our own, whatever its name: Caffe's engine:
// CAFFE.
inline constexpr const char* kOwnEngine = "caffe";
inline bool is_own(const std::string& impl) { return impl != "cudnn" && impl != "onednn"; }
template <class Kernel>
struct Chosen {
  std::unique_ptr<Kernel> kernel;
  Choice choice;
};

// The first implementation that serves `desc` in this context; with a non-empty `engine`, only the
// one of that name, or of our own. Throws ConfigError (kConfig) with every refusal if none does.
template <class Desc, class Kernel>
Chosen<Kernel> choose(const char* op, std::span<const Impl<Desc, Kernel>* const> impls,
                      const Desc& desc, Context& ctx, const std::string& engine) {
  Chosen<Kernel> chosen{nullptr, {op, "", {}, {}}};
  std::string names, reasons;
  for (const Impl<Desc, Kernel>* impl : impls) {
    names += str(names.empty() ? "" : ", ", impl->name);
    const bool allowed =
        engine.empty() || engine == impl->name || (engine == kOwnEngine && is_own(impl->name));
    Why why = allowed ? impl->supports(desc, ctx) : str("engine \"", engine, "\" was asked for");
    if (why.empty()) {
      chosen.choice.impl = impl->name;
      chosen.kernel = impl->make(desc, ctx);
      chosen.choice.needs = chosen.kernel->needs(ctx);
      chosen.choice.how = chosen.kernel->how();
      return chosen;
    }
    reasons += str("; ", impl->name, ": ", why);
    chosen.choice.refused.push_back({impl->name, std::move(why)});
  }
  throw ConfigError(Code::kConfig, "no implementation of ", op,
                    " in this build serves the layer (there are: ", names, reasons, ")");
}

}  // namespace shoal::ops
