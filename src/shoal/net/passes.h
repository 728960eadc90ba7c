// The two passes of a net, as they are recorded.
#pragma once

#include <limits>

#include "shoal/net/recorded_pass.h"

namespace shoal {

struct Net::Passes {
  static constexpr std::int64_t kAnyBytes = std::numeric_limits<std::int64_t>::max();
  explicit Passes(Net& net) : forward_steps(net), backward_steps(net) {}

  class Steps : public Pass {
   public:
    explicit Steps(Net& net) : net_(net) {}
    int steps() const final { return static_cast<int>(net_.layers_.size()); }
    Context& context() { return net_.context_; }
    std::string name(int step) const final { return net_.layers_[at(step)]->name(); }
    void stamp(int step, std::vector<std::uintptr_t>& to) const final;
    bool together(int first, int last) const final;

   protected:
    virtual std::size_t at(int step) const = 0;       // the layer's index
    virtual std::int64_t bytes_together() const = 0;  // of the params of layers whose hooks come so
    // `called`: the layer that does the step's work; -1: none
    bool can_replay(int step, int called, bool Layer::Replays::*pass) const {
      if (net_.wiring_[at(step)].varies) return false;
      return called < 0 || net_.layers_[static_cast<std::size_t>(called)]->replays().*pass;
    }
    Net& net_;
  };

  class Forward final : public Steps {
   public:
    using Steps::Steps;
    bool replays(int step) const override {
      return can_replay(step, net_.wiring_[at(step)].forward, &Layer::Replays::forward);
    }
    Status begin(int step) override;
    Status work(int step) override;
    Status end(int first, int last) override;

   private:
    std::size_t at(int step) const override { return static_cast<std::size_t>(step); }
    std::int64_t bytes_together() const override {
      return net_.before_forward_ ? net_.together_before_forward_ : kAnyBytes;
    }
  };

  // The last layer is the first step.
  class Backward final : public Steps {
   public:
    using Steps::Steps;
    bool replays(int step) const override {
      return can_replay(step, net_.wiring_[at(step)].backward, &Layer::Replays::backward);
    }
    Status begin(int step) override;
    Status work(int step) override;
    Status end(int first, int last) override;

   private:
    std::size_t at(int step) const override {
      return net_.layers_.size() - 1 - static_cast<std::size_t>(step);
    }
    std::int64_t bytes_together() const override {
      return net_.after_backward_ ? net_.together_after_backward_ : kAnyBytes;
    }
  };

  Forward forward_steps;
  Backward backward_steps;
  RecordedPass forward{forward_steps, forward_steps.context()};
  RecordedPass backward{backward_steps, backward_steps.context()};
};

}  // namespace shoal
