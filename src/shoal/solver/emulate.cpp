#include "shoal/solver/emulate.h"

#include <chrono>

#include "shoal/base/timer.h"
#include "shoal/solver/sliced_updater.h"

namespace shoal {
namespace {

// Waits in real time until each slice has lasted as long as it should.
class Emulated final : public SlicedUpdater {
 public:
  Emulated(std::unique_ptr<Updater> inner, ComputeSlices slices, double seconds)
      : SlicedUpdater(std::move(inner), std::move(slices)), seconds_(seconds) {}

 private:
  using Clock = std::chrono::steady_clock;

  // Waits for the slice's end. The system wakes later than at a deadline, and the next slice is
  // shorter by that much. A slice that really took longer than it should is not made up for.
  Status finish_slice() override {
    if (due_ == Clock::time_point{}) return {};
    late_ = {};
    if (Clock::now() < due_) {
      wait_until(due_);
      late_ = Clock::now() - due_;
    }
    due_ = {};
    return {};
  }
  Status start_slice(double share) override {
    due_ = Clock::now() - late_ +
           std::chrono::duration_cast<Clock::duration>(
               std::chrono::duration<double>(share * seconds_));
    return {};
  }

  const double seconds_;     // of an iteration
  Clock::time_point due_{};  // the end of the current slice; zero: there is none
  Clock::duration late_{};   // how late the last slice ended
};

}  // namespace

std::unique_ptr<Updater> make_emulated(std::unique_ptr<Updater> inner, const Net& net,
                                       int iter_size, double seconds) {
  return std::make_unique<Emulated>(
      std::move(inner), slices_of(net, estimated_shares(net), iter_size, true), seconds);
}

}  // namespace shoal
