// The primitives of a convolution's three passes, and how images lie for them.
#pragma once

#include <optional>

#include "shoal/ops/dnnl/reorder.h"
#include "shoal/ops/window.h"

namespace shoal::ops::dnnl {

// The images of a pass where they lie in 16 bits and the primitive computes in float32: copies.
class Widened {
 public:
  Widened() = default;  // as they lie
  Widened(const lib::memory::desc& lying, const lib::memory::desc& wide)
      : bytes_(wide.get_size()), widen_(Reorder(lying, wide)), narrow_(Reorder(wide, lying)) {}
  // Returns the bytes of a copy; 0: none is made.
  std::size_t room() const { return bytes_; }
  // Returns the numbers for the primitive: those of `images`, or copies of them in `copy`.
  const std::byte* read(const std::byte* images, std::byte* copy) const {
    if (!widen_) return images;
    widen_->run(images, copy, nullptr);
    return copy;
  }
  // Returns where the primitive writes; write() then brings it to `images`.
  std::byte* place(std::byte* images, std::byte* copy) const { return narrow_ ? copy : images; }
  void write(const std::byte* copy, std::byte* images) const {
    if (narrow_) narrow_->run(copy, images, nullptr);
  }

 private:
  std::size_t bytes_ = 0;
  std::optional<Reorder> widen_, narrow_;
};

// A pass of a convolution. first, second: the two sets of images, in the order of the primitive's
// arguments.
template <class Primitive>
struct Pass {
  typename Primitive::primitive_desc desc;
  Primitive primitive;
  bool by_winograd;
  Widened first{}, second{};
  std::string name() const {
    return str(by_winograd ? "winograd" : "direct", first.room() > 0 ? " in float32" : "");
  }
};

// Images as tensors keep them, and as the library describes that.
struct Images {
  LayoutPtr layout;
  lib::memory::desc desc;
};

// The fastest passes that the library has on this processor.
struct ConvPasses {
  ConvPasses(const ConvDesc& conv, const Context& ctx);
  bool are_there() const { return forward && weights && data; }

  Images x, y;       // for the forward pass and that to the weights; an x of few channels is plain
  Images blocked_x;  // dx
  std::optional<Pass<lib::convolution_forward>> forward;
  std::optional<Pass<lib::convolution_backward_data>> data;
  std::optional<Pass<lib::convolution_backward_weights>> weights;
  lib::memory::desc plain_w;
};

}  // namespace shoal::ops::dnnl
