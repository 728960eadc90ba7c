// A device for tests: the CPU with a kernel library that keeps images in a layout of its own.
//
// Its convolutions and poolings read and write tensors whose channels are in reverse order, with
// padding at the end; they keep their weights packed for that until these change. All other ops are
// the CPU's, and know the plain layout, or any one layout if they take each number alone.
#pragma once

#include <memory>
#include <string>

#include "shoal/tensor/device.h"

namespace shoal::test {

class LibraryDevice final : public Device {
 public:
  std::string name() const override { return "library"; }
  bool is_host() const override { return true; }
  std::shared_ptr<Memory> allocate(std::size_t bytes) const override { return host_memory(bytes); }
  std::shared_ptr<Stream> make_stream() const override { return cpu_device().make_stream(); }
  const ops::Backend* backend() const override;

  mutable int packed_weights = 0;  // how often weights were packed
};

}  // namespace shoal::test
