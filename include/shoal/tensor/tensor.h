// Numbers with a shape, and the bytes they live in. Arithmetic is the business of ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shoal/tensor/device.h"
#include "shoal/tensor/layout.h"
#include "shoal/tensor/shape.h"

namespace shoal {

class Context;

// A home is where and how a tensor's numbers are kept: on which device, in which layout.
struct Home {
  const Device* device = nullptr;  // null: the host
  LayoutPtr layout;                // null: plain
  bool is_host() const { return device == nullptr && layout == nullptr; }
  bool operator==(const Home& other) const {
    return device == other.device && same_layout(layout, other.layout);
  }
};

// The bytes that one tensor, or several that share, look at: a plain copy on the host, and a copy
// at a home elsewhere if a device or a kernel library uses one. At least one of the two is current;
// a copy that is not is made current when it is read. Memory comes from a plan (bind) or, without a
// plan, is allocated on first use. One thread at a time.
class Storage {
 public:
  Storage() = default;
  ~Storage();
  Storage(const Storage&) = delete;
  std::size_t required() const { return required_; }
  void require(std::size_t bytes) {
    if (bytes > required_) required_ = bytes;
  }
  // Puts the copy of this kind (on the host in plain order, or at the home that memory and layout
  // name) in `memory` from `offset` on, where `room` bytes must be: required(), or fewer where the
  // layout takes no more. What was in the storage is lost. Numbers that come in a layout without
  // room there take memory of their own.
  void bind(std::shared_ptr<Memory> memory, std::size_t offset, const LayoutPtr& layout = nullptr,
            std::optional<std::size_t> room = {});
  // Puts two copies of the same numbers in memory of the host and of a device, plain, each from an
  // offset on; what was in the storage is lost.
  void bind_copies(std::shared_ptr<Memory> host, std::size_t host_offset,
                   std::shared_ptr<Memory> home, std::size_t home_offset);
  // Forgets memory that was bound, and what is in it; the next use allocates.
  void unbind();
  // Returns when no device reads or writes the copy on the host any more.
  void finish_copies();
  // Begins to bring numbers that are on a device to the host, so that host() only waits for that.
  // They stay where they are, and may be used there and changed meanwhile. Throws DeviceError.
  void begin_download();
  // Puts the copy on the host in memory from which this device's streams copy fastest. Not for one
  // that is bound.
  void pin(const Device& device);
  // Returns the copy on the host; null before host() or bind() made one. A caller that looks
  // at its bytes keeps it, since a larger one may take its place.
  const std::shared_ptr<Memory>& host_memory() const { return host_.memory; }
  // Grows with each write through mut and out, so that what was derived from the numbers (packed
  // weights) can be kept until then.
  std::uint64_t version() const { return version_; }
  // Returns the layout in which the numbers are now; null: plain.
  LayoutPtr layout() const { return away_.current ? home_.layout : nullptr; }
  // Returns the copy at home(); null before at() or bind() made one.
  const std::shared_ptr<Memory>& home_memory() const { return away_.memory; }
  std::byte* home_bytes() const { return away_.memory->data() + away_.offset; }

  enum class Access {
    kRead,   // as they are
    kMut,    // to read and write
    kWrite,  // all of them will be overwritten: what was there need not be fetched
  };
  // Returns as many bytes as required(); old content is kept only while the size is enough.
  std::byte* host(Access access);
  // Returns the same at `home`, whose numbers have this shape; the work that uses them goes on
  // `stream`.
  std::byte* at(const Home& home, const Shape& shape, const std::shared_ptr<Stream>& stream,
                Access access);

 private:
  struct Copy {
    std::shared_ptr<Memory> memory;
    std::size_t offset = 0, room = 0;
    bool planned = false, current = false;
  };
  std::byte* bytes_of(Copy& copy, std::size_t bytes, const Device& device) const;
  void fetch_from_home();
  std::byte* convert_at_home(const LayoutPtr& layout, const Shape& shape);
  bool reorder_at_home(const LayoutPtr& layout, const Shape& shape);
  void send_home(const Shape& shape);

  Copy host_{nullptr, 0, 0, false, true}, away_;
  Copy spare_;                      // at home too: what away_ is converted into, by turns
  Home home_;                       // of away_
  Shape home_shape_;                // of the numbers in away_
  std::shared_ptr<Stream> stream_;  // on which away_ was used last
  // The stream's waits() when it began to read the host's copy, and to write it.
  std::optional<std::uint64_t> uploading_, downloading_;
  bool downloads_newest_ = false;  // nothing was written at home since
  std::size_t required_ = 0;
  std::uint64_t version_ = 0;
  LayoutPtr spare_layout_;  // of spare_
};

// A use of a tensor's numbers by work on a device.
struct TensorUse {
  std::shared_ptr<Storage> storage;
  Home home;
  Shape shape;
  Storage::Access access = Storage::Access::kRead;
  LayoutPtr before;            // in which the numbers were
  std::byte* bytes = nullptr;  // that the work was given
  bool converted = false;      // they were uploaded or reordered for it
};

// Numbers with a shape, float32 to all but the kernels that chose a layout of 16 bits. Layers and
// solvers hand whole tensors to ops. Code of the host (data, accuracy, tools, tests) looks inside
// through the three spans below; kernels of a device through the functions that take a context.
class Tensor {
 public:
  Tensor();
  explicit Tensor(const Shape& shape);
  // Makes a tensor over bytes that are there already, plain.
  Tensor(const Shape& shape, std::shared_ptr<Memory> memory, std::size_t offset);
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;

  const Shape& shape() const { return shape_; }
  std::int64_t count() const { return shape_.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * sizeof(float); }  // plain
  // Gives it another shape. Bytes are kept while they suffice; a fresh tensor reads as zeros.
  void reshape(const Shape& shape);
  // Makes this look at the bytes of `other`, with a shape of its own (its present one).
  void share(const Tensor& other);
  bool shares_with(const Tensor& other) const { return storage_ == other.storage_; }

  // ---- on the host, in row-major order; waits for the device if the numbers are there ----
  std::span<const float> host() const;  // to read
  std::span<float> host_mut();          // to read and write
  std::span<float> host_out();          // to overwrite
  // Do what Storage's do.
  void begin_download() const { storage_->begin_download(); }
  void pin(const Device& device) { storage_->pin(device); }
  // The same three as plain pointers, for kernels of the CPU.
  float* out() { return host_out().data(); }
  float* mut() { return host_mut().data(); }
  const float* in() const { return host().data(); }

  // ---- on the context's device, in order of its stream; for kernels ----
  // Bytes in `layout`, converted if need be. `write`: in this layout from now on.
  const std::byte* read(Context& ctx, const LayoutPtr& layout = nullptr) const;
  std::byte* mut(Context& ctx, const LayoutPtr& layout = nullptr);
  std::byte* write(Context& ctx, const LayoutPtr& layout = nullptr);
  // Returns the layout in which the numbers are now; null: plain. Ops that take each number alone
  // work in any one.
  LayoutPtr layout() const { return storage_->layout(); }

  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  std::byte* use(Context& ctx, const LayoutPtr& layout, Storage::Access access) const;
  Shape shape_{0};
  std::shared_ptr<Storage> storage_;
};

// The data that flows between layers, and the params that they learn: values and the gradient of
// the loss with respect to them.
struct Blob {
  std::string name;
  Tensor data;
  Tensor grad;
  Blob() = default;
  explicit Blob(std::string blob_name) : name(std::move(blob_name)) {}
  const Shape& shape() const { return data.shape(); }
  // Both tensors.
  void reshape(const Shape& shape) {
    data.reshape(shape);
    grad.reshape(shape);
  }
};

}  // namespace shoal
