#include "shoal/ops/cuda/library.h"

#include <dlfcn.h>

namespace shoal::ops::cuda {

std::vector<std::string> library_files(const std::string& name, int major) {
  constexpr const char* kFolder = "/usr/local/cuda/lib64/";
  const std::string any = str("lib", name, ".so"), exact = str(any, ".", major);
  return {exact, kFolder + exact, any, kFolder + any};
}

Library::Library(std::span<const std::string> files) {
  for (const std::string& file : files) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      why_.clear();
      return;
    }
    // Keeps the error of the likeliest file: the loader names it, and what is wrong with it.
    if (why_.empty()) why_ = dlerror();
  }
}

void* Library::look_up(const char* name) {
  void* const address = handle_ == nullptr ? nullptr : dlsym(handle_, name);
  if (address == nullptr && why_.empty()) why_ = str("it has no function ", name);
  return address;
}

}  // namespace shoal::ops::cuda
