// Measures how long each layer of a net takes, by the clock of its device.
#pragma once

#include <memory>
#include <vector>

#include "shoal/net/net.h"

namespace shoal {

// Notes events around each layer's passes, for which nothing waits while the net computes. It has
// the net's hooks until stop().
class LayerTimes {
 public:
  explicit LayerTimes(Net& net);  // outlives it
  ~LayerTimes() { stop(); }
  LayerTimes(const LayerTimes&) = delete;

  // Adds the times of the passes since the last call, at most one forward and one backward; waits
  // for them.
  void add();
  void clear();
  void stop();

  struct Seconds {
    double forward = 0, backward = 0;
  };
  const std::vector<Seconds>& layers() const { return layers_; }  // sums

 private:
  // The events around one pass of a layer.
  struct Marks {
    std::unique_ptr<Event> begin, end;
    bool noted = false;
    double take();
  };
  void begin(Marks& marks) { marks.begin->record(*net_.context().stream()); }
  void end(Marks& marks) {
    marks.end->record(*net_.context().stream());
    marks.noted = true;
  }

  Net& net_;
  std::vector<Marks> forward_, backward_;  // by layer
  std::vector<Seconds> layers_;
};

}  // namespace shoal
