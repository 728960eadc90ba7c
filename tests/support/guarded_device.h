// A second device for tests: what a GPU would show as wrong numbers once a week is a failing test.
//
// Its memory is protected against the host but while one of its ops or copies runs. Its ops and
// copies do not run when they are called: they wait in the order of their stream until it is
// synchronised, or until the seeded random numbers run some of them. Its kernels are the CPU's.
// So it finds code of the host that touches device memory, results that are read without waiting,
// and buffers that are changed too early.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shoal/tensor/device.h"

namespace shoal::test {

class GuardedDevice final : public Device {
 public:
  // `threads`: of its kernels. Without `synchronizes`, downloads are not waited for: a broken
  // device.
  explicit GuardedDevice(std::uint64_t seed = 1, int threads = 1, bool synchronizes = true);
  ~GuardedDevice() override;
  std::string name() const override { return "guarded"; }
  bool is_host() const override { return false; }
  std::shared_ptr<Memory> allocate(std::size_t bytes) const override;
  std::shared_ptr<Stream> make_stream() const override;
  std::unique_ptr<Event> make_event(bool timed) const override;
  const ops::Backend* backend() const override;

  // Returns how many ops and copies have run, of all streams.
  std::int64_t done() const;

  struct Guard;  // what memory and streams share

 private:
  std::shared_ptr<Guard> guard_;
  std::uint64_t seed_;
  int threads_;
  bool synchronizes_;
};

}  // namespace shoal::test
