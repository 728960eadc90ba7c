#include "shoal/tensor/device.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shoal/base/error.h"

namespace shoal {
namespace {

class HostMemory final : public Memory {
 public:
  explicit HostMemory(std::size_t bytes) : Memory(nullptr, bytes) {
    constexpr std::size_t kAlign = 64;
    block_ = std::calloc(bytes + kAlign, 1);
    if (block_ == nullptr) throw std::bad_alloc();
    data_ = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(block_) + kAlign - 1) /
                                         kAlign * kAlign);
  }
  ~HostMemory() override { std::free(block_); }

 private:
  void* block_;
};

class HostStream final : public Stream {
 public:
  void upload(std::byte* device, const std::byte* host, std::size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void download(std::byte* host, const std::byte* device, std::size_t bytes) override {
    std::memcpy(host, device, bytes);
  }

 private:
  void wait() override {}
};

// Every place has been reached when it is noted.
class HostEvent final : public Event {
 public:
  void record(Stream&) override { noted_ = std::chrono::steady_clock::now(); }
  void hold(Stream&) override {}
  void wait() override {}
  double seconds_since(Event& earlier) override {
    return std::chrono::duration<double>(noted_ - static_cast<HostEvent&>(earlier).noted_).count();
  }

 private:
  std::chrono::steady_clock::time_point noted_{};
};

class Cpu final : public Device {
 public:
  std::string name() const override { return "cpu"; }
  bool is_host() const override { return true; }
  std::shared_ptr<Memory> allocate(std::size_t bytes) const override { return host_memory(bytes); }
  std::shared_ptr<Stream> make_stream() const override { return std::make_shared<HostStream>(); }
};

}  // namespace

std::unique_ptr<Recording> Stream::record(const std::function<void()>& queue) {
  struct Flag {
    bool& on;
    explicit Flag(bool& flag) : on(flag) { on = true; }
    ~Flag() { on = false; }
  } flag(recording_);
  return keep(queue);
}

void Stream::not_recording(const char* why) const {
  if (recording_) throw DeviceError(why);
}

std::unique_ptr<Recording> Stream::keep(const std::function<void()>&) {
  throw DeviceError("this device records nothing");
}

std::unique_ptr<Event> Device::make_event(bool) const { return std::make_unique<HostEvent>(); }

std::shared_ptr<Memory> host_memory(std::size_t bytes) {
  return std::make_shared<HostMemory>(bytes);
}

const Device& cpu_device() {
  static const Cpu device;
  return device;
}

}  // namespace shoal
