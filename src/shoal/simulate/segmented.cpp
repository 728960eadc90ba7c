#include "shoal/simulate/segmented.h"

#include <algorithm>

#include "shoal/base/mutex.h"
#include "shoal/net/net.h"
#include "shoal/simulate/emulate.h"

namespace shoal::simulate {
namespace {

// Waits for each stretch to be as long as it should.
class Emulated final : public Segmented {
 public:
  Emulated(std::unique_ptr<Updater> inner, const Segments& segments, double seconds)
      : Segmented(std::move(inner), segments), seconds_(seconds) {}

 private:
  using Clock = std::chrono::steady_clock;

  // The system wakes earlier or later than at a deadline, and by that much the next stretch is
  // longer or shorter. Who was at work longer than its stretch is not in debt for it.
  Status arrive() override {
    if (due_ == Clock::time_point{}) return {};
    const MutexLock lock(mutex_);
    bool waited = false;
    for (; Clock::now() + std::chrono::milliseconds(1) < due_; waited = true)
      never_.wait_for(mutex_,
                      std::chrono::duration_cast<std::chrono::milliseconds>(due_ - Clock::now()),
                      [] { return false; });
    left_ = due_ - Clock::now();
    if (!waited) left_ = std::max(Clock::duration{}, left_);
    due_ = {};
    return {};
  }
  Status pass(double share) override {
    due_ = Clock::now() + left_ +
           std::chrono::duration_cast<Clock::duration>(
               std::chrono::duration<double>(share * seconds_));
    return {};
  }

  const double seconds_;     // an iteration
  Clock::time_point due_{};  // end of the stretch under way
  Clock::duration left_{};   // of the last one
  Mutex mutex_;
  Condition never_;
};

}  // namespace

// One iteration: the first batch's forward, the batches between, the last one's backward.
Segments segments_of(const Net& net, const LayerShares& shares, int iter_size, bool overlap) {
  const std::size_t layers = net.layers().size();
  Segments segments{0, std::vector<double>(layers), std::vector<double>(layers),
                    std::vector<bool>(layers)};
  for (std::size_t i = 0; i < layers; ++i) segments.acts[i] = !net.layers()[i]->params().empty();
  double* now = &segments.begin;
  for (std::size_t i = 0; i < layers; ++i) {
    if (segments.acts[i]) now = &segments.forward[i];
    *now += shares.forward[i] / iter_size;
  }
  if (!overlap)
    segments.begin = 0, std::ranges::fill(segments.forward, 0), *now = 1;
  else
    *now += 1 - 1.0 / iter_size;
  for (std::size_t i = layers; i-- > 0 && overlap;) {
    *now += shares.backward[i] / iter_size;
    if (segments.acts[i]) now = &segments.backward[i];
  }
  return segments;
}

std::unique_ptr<Updater> make_emulated(std::unique_ptr<Updater> inner, const Net& net,
                                       int iter_size, double seconds) {
  return std::make_unique<Emulated>(std::move(inner),
                                    segments_of(net, shares_of(net, {}), iter_size, true), seconds);
}

}  // namespace shoal::simulate
