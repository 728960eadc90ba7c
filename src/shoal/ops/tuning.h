// Kernels of the CPU's convolutions, chosen by measured times. The choices are a value that is kept
// as text in a file, so that a later run chooses the same and measures what is new.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "shoal/ops/window.h"

namespace shoal::ops {

enum class ConvPass { kForward, kData, kWeights };

struct TunedConv {
  std::string impl;            // as Impl::name
  PassSet winograd = kNoPass;  // passes that go by Winograd's algorithm
  std::string times;           // "onednn 1.2 ms, direct 3.4 ms": what was measured
  bool operator==(const TunedConv&) const = default;
};

// A pass of a kernel that is measured, for a net that calls the passes `use`.
struct Trial {
  const char* impl;
  ConvPass pass;
  PassSet use;
};

// The choices of all processors that have been asked, by processor and shape.
// docs/reference/formats.md has the text. find() may be called from several threads, while no other
// function is.
class ConvTuning {
 public:
  // Returns milliseconds.
  using Measure = std::function<double(ConvKernel&, const ConvDesc&, const Trial&, Context&)>;
  ConvTuning();  // measures by time_pass
  explicit ConvTuning(Measure measure);

  // Takes over the choices of a text, in the place of others for the same. `name` stands in front
  // of errors. Throws ConfigError, which names the line.
  void add(const std::string& text, const std::string& name);
  std::string text() const;
  // Reads a file if there is one, and writes save()'s there. Throws ConfigError.
  void keep_in(const std::string& file);
  // Writes the file, whole or not at all, if there is something new to write. Warns if it fails.
  void save();

  // Measures all kernels that serve the description in this context, for a net that calls these
  // passes, unless a choice is there. Chooses the fastest, but the rule's unless another takes less
  // than 0.9 of its time: less is noise, or lost to images in another order. Warns if the kernel
  // that was chosen is not here.
  void measure(const ConvDesc& desc, const Context& ctx, const PassSet& use);
  // Returns the choice of this processor; null: none is there, or there is no such kernel here.
  // Good until add() or measure().
  const TunedConv* find(const ConvDesc& desc, const Context& ctx, const PassSet& use) const;
  int measured() const { return measured_; }   // shapes, by this object
  double seconds() const { return seconds_; }  // that this took

 private:
  using Key = std::pair<std::string, std::string>;  // a processor, and a shape
  Measure measure_;
  std::map<Key, TunedConv> choices_;
  std::string file_;
  bool is_new_ = false;  // since file_ was read or written
  int measured_ = 0;
  double seconds_ = 0;
};

// Calls the pass once, and then three times: returns the milliseconds of the fastest of these. A
// pass that takes long is called fewer times. Numbers are random; weights are packed anew in each
// forward pass if the net's passes have one to the weights.
double time_pass(ConvKernel& kernel, const ConvDesc& desc, const Trial& trial, Context& ctx);

// Returns the processor and the level of our own kernels, as the text names them.
std::string tuned_processor();

}  // namespace shoal::ops
