// A blob of a net, as Python sees it.
#pragma once

#include <memory>
#include <vector>

#include "python/arrays.h"
#include "python/errors.h"
#include "shoal/tensor/tensor.h"

namespace shoal::python {

// Notes that a net, or a solver's nets, are at work. Read and written with the interpreter's lock.
class Work {
 public:
  // Throws ConfigError (kUsage) if another thread has the nets at work.
  void check_idle() const;
  // Is held during a pass; throws likewise, and if this thread does.
  class Pass {
   public:
    explicit Pass(Work& work);
    ~Pass() { work_.thread_ = 0; }
    Pass(const Pass&) = delete;

   private:
    Work& work_;
  };

 private:
  unsigned long thread_ = 0;  // that is at work; 0: none
};

class PyBlob {
 public:
  // Says who decides on the shape.
  enum class Resize { kCaller, kLayer };
  PyBlob(Blob& blob, Numbers numbers, Resize resize)
      : blob_(&blob), numbers_(numbers), resize_(resize) {}
  // Keeps the net's owner while it lives, and looks at the net's work.
  void keep(std::shared_ptr<const void> owner, std::shared_ptr<const Work> work) {
    owner_ = std::move(owner);
    work_ = std::move(work);
  }
  // Takes the blob back, which was lent for a call: later uses are a ConfigError.
  void close() { blob_ = nullptr; }

  Blob& blob() const;
  py::array data() const { return array_of(blob().data, numbers_); }
  py::array diff() const { return array_of(blob().grad, Numbers::kTensors); }
  py::tuple shape() const;
  // The sizes of blobs with at most four axes: axis 0 to 3, 1 where there is none.
  std::int64_t size(int axis) const;
  void reshape(const std::vector<std::int64_t>& dims) const;

 private:
  Blob* blob_;
  Numbers numbers_;
  Resize resize_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const Work> work_;
};

// The dims of f(2, 3) and f([2, 3]).
std::vector<std::int64_t> dims_of(const py::args& args);
void bind_blob(py::module_& module);

}  // namespace shoal::python
