// A device: where arithmetic runs, with memory of its own and streams that order its work.
//
// The CPU is a device whose memory the host reads and writes directly. The host touches nothing of
// any other device but through a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace shoal {

class Device;
namespace ops {
struct Backend;
}

// A block of a device's memory, zeroed, 64-byte aligned; freed with the object. Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Returns null for memory of the host, which may read and write data() directly.
  const Device* device() const { return device_; }

 protected:
  Memory(const Device* device, std::size_t bytes) : bytes_(bytes), device_(device) {}
  std::byte* data_ = nullptr;  // set by the constructor of the derived class

 private:
  std::size_t bytes_;
  const Device* device_;
};

// Host memory. Big blocks take pages only when touched.
std::shared_ptr<Memory> host_memory(std::size_t bytes);

// Counts how often tensors were converted so that they could be used elsewhere.
struct Conversions {
  std::int64_t uploads = 0;    // host to device
  std::int64_t downloads = 0;  // device to host
  std::int64_t reorders = 0;   // between the plain layout and a library's
  bool operator==(const Conversions&) const = default;
};

// Work of a stream that was kept, to be queued again and again. The stream outlives it.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;  // queues the work on its stream
};

// An ordered queue of a device's work: what is queued first is done first. A Context has one. One
// thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Copies `bytes` bytes, when the work queued before has been done. The host's side must stay as
  // it is until synchronize() returns.
  virtual void upload(std::byte* device, const std::byte* host, std::size_t bytes) = 0;
  virtual void download(std::byte* host, const std::byte* device, std::size_t bytes) = 0;
  // Returns when all that was queued has been done.
  void synchronize() {
    not_recording("it waits for the device");
    wait();
    ++waits_;
  }
  // Returns how often the stream was synchronized: what was queued at an earlier count has been
  // done.
  std::uint64_t waits() const { return waits_; }

  // Returns whether the stream can record.
  virtual bool records() const { return false; }
  // Calls `queue`, whose work on this stream is kept and not done. Throws DeviceError, and keeps
  // nothing, if the device refuses or if `queue` waits, copies from or to the host, converts a
  // tensor or takes memory of the device.
  std::unique_ptr<Recording> record(const std::function<void()>& queue);
  // Throws DeviceError, which says why, while it records.
  void not_recording(const char* why) const;

  Conversions conversions;  // so far, of tensors used on this stream
  // Counts the replacements of memory that its kernels share (scratch) by larger; what was recorded
  // before uses the old.
  std::uint64_t replacements = 0;

 private:
  virtual void wait() = 0;
  virtual std::unique_ptr<Recording> keep(const std::function<void()>& queue);
  std::uint64_t waits_ = 0;
  bool recording_ = false;
};

// A place in the order of a stream's work, for which other streams of its device and the host can
// wait. One thread at a time.
class Event {
 public:
  virtual ~Event() = default;
  // Notes the place to which the stream's queue reaches now.
  virtual void record(Stream& stream) = 0;
  // Makes all that is queued on `stream` from now on come after the place that was noted last.
  virtual void hold(Stream& stream) = 0;
  // Returns when the place that was noted last has been reached; at once if none was.
  virtual void wait() = 0;
  // Returns the seconds from the place that `earlier` noted last to this one's, by the device's
  // clock, when both have been reached. Both must be timed.
  virtual double seconds_since(Event& earlier) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "cpu"
  // Returns whether its memory is the host's: tensors have one copy, and a stream works at once.
  virtual bool is_host() const = 0;
  // Throws std::bad_alloc.
  virtual std::shared_ptr<Memory> allocate(std::size_t bytes) const = 0;
  // Returns the most bytes of its memory that this process had in use at one time, counted from the
  // last reset_peak_bytes() on, or else from the start; none if the device does not count. Both:
  // any thread; throw DeviceError.
  virtual std::optional<std::size_t> peak_bytes() const { return std::nullopt; }
  virtual void reset_peak_bytes() const {}
  virtual std::shared_ptr<Stream> make_stream() const = 0;
  // Makes an event for its streams. Events of a device that does not override this work at once.
  virtual std::unique_ptr<Event> make_event(bool timed) const;
  // Memory of the host from which its streams copy fastest. Any thread.
  virtual std::shared_ptr<Memory> allocate_on_host(std::size_t bytes) const {
    return host_memory(bytes);
  }
  // Returns its implementations of the ops (ops/backend.h); null: those of the CPU.
  virtual const ops::Backend* backend() const { return nullptr; }
};

// Returns the processors of this machine.
const Device& cpu_device();

}  // namespace shoal
