// Numbers from one of oneDNN's orders or types to another.
#pragma once

#include "shoal/ops/dnnl/engine.h"

namespace shoal::ops::dnnl {

// The primitive is made once.
class Reorder {
 public:
  // `adds`: to what is there.
  Reorder(const lib::memory::desc& from, const lib::memory::desc& to, bool adds = false)
      : from_(from), to_(to) {
    lib::primitive_attr attributes = own_scratchpad();
    if (adds) {
      lib::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const lib::reorder::primitive_desc desc(engine(), from, engine(), to, attributes);
    scratchpad_ = desc.scratchpad_desc();
    reorder_ = lib::reorder(desc);
  }
  // Returns bytes.
  std::size_t scratchpad() const { return scratchpad_.get_size(); }
  void run(const void* from, void* to, std::byte* scratchpad) const {
    dnnl::run(reorder_, {{DNNL_ARG_FROM, over(from_, from)},
                         {DNNL_ARG_TO, over(to_, to)},
                         {DNNL_ARG_SCRATCHPAD, over(scratchpad_, scratchpad)}});
  }

 private:
  lib::memory::desc from_, to_, scratchpad_;
  lib::reorder reorder_;
};

}  // namespace shoal::ops::dnnl
