// A shared library that is loaded when it is first needed, so that one binary starts on machines
// with and without it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shoal/ops/op.h"

namespace shoal::ops::cuda {

// Returns the files that lib`name` of CUDA may be, likeliest first: of version `major`, then of
// any; where the loader looks, then in the toolkit's own folder.
std::vector<std::string> library_files(const std::string& name, int major);

// It stays loaded until the program ends.
class Library {
 public:
  // Loads the first of `files` that can be loaded.
  explicit Library(std::span<const std::string> files);

  // Points `function` to the library's function of this name, or notes that there is none.
  template <class F>
  void find(const char* name, F*& function) {
    if (void* const address = look_up(name)) function = reinterpret_cast<F*>(address);
  }
  // Returns why the library cannot be used; empty: all that was looked for is there.
  const Why& why() const { return why_; }

 private:
  void* look_up(const char* name);

  void* handle_ = nullptr;
  Why why_;
};

}  // namespace shoal::ops::cuda
