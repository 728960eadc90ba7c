// Queues iterations on a device before the outcome of the last one is known, so that the device
// does not wait for the host between two iterations.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "shoal/proto/run.pb.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

// Runs ahead of the host. The device itself refuses an update if a number of the loss or of a
// gradient is not finite, and from then on every update: the params stay as they were before that
// iteration. The host learns it an iteration later, goes back and makes the iteration again,
// waiting for each of its numbers. If these are finite after all, the run goes on; running means
// then also hold the passes before.
class RunAhead : SolverPart {
 public:
  // Iterations that may be under way when the next one is queued.
  static constexpr std::uint64_t kMost = 1;

  explicit RunAhead(const SolverCore& core);
  ~RunAhead();
  RunAhead(const RunAhead&) = delete;

  // Returns whether iterations can be queued: the updater queues updates, on_nan is STOP (any other
  // needs the running means of before), nothing needs each iteration's numbers at once, and no
  // layer writes them to a file. Constant.
  bool possible() const { return possible_; }
  // Keeps, before an iteration, the state to make it again.
  void begin();
  // Queues the iteration's update, after its passes have been queued.
  Status queue_update();
  // Returns the number of iterations whose outcome was not taken.
  std::uint64_t under_way() const { return queued_ - known_; }
  // Waits for the first of them, and returns its loss; nothing if its update was refused. It is
  // then still under way.
  std::optional<float> take_outcome();
  // Goes back after a refusal: the net and its data are again where they were before that
  // iteration, and none is under way. Returns where the loop was.
  struct Place {
    std::int64_t iteration = 0, steps = 0;
  };
  Result<Place> go_back();

 private:
  struct Iteration {
    Place place;
    NetRunState state;
    // By top with a loss weight: the weight, and the top's length.
    std::vector<std::pair<float, std::int64_t>> losses;
    std::shared_ptr<Memory> outcome;  // on the host: the verdict, then the losses
    std::unique_ptr<Event> done;      // the outcome is there
  };
  Iteration& iteration(std::uint64_t n) { return iterations_[n % iterations_.size()]; }
  void judge_losses(const std::vector<const Tensor*>& tops);

  const bool possible_;
  Tensor verdict_{Shape{2}};  // ops/update.h; from the first refusal on it refuses all
  Tensor loss_{Shape{1}};     // on the device, where there are several losses or large weights
  std::array<Iteration, kMost + 1> iterations_;
  std::uint64_t queued_ = 0, known_ = 0;
};

}  // namespace shoal
