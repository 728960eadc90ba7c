// The layers whose gradients the workers sum among themselves, by a collective: each then applies
// the same update to its own copy of the params.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "shoal/parallel/bucket_sums.h"
#include "shoal/parallel/replicated_layers.h"

namespace shoal::parallel {

class CollectiveLayers final : public ReplicatedLayers {
 public:
  // For a setup whose scheme takes the gradients of a clock together, before the next iteration.
  CollectiveLayers(const TableSetup& setup, std::size_t enough);

  std::vector<Tensor*> histories() override;
  std::vector<table::Row> rows(table::RowId first) override { return sums_.rows(first); }
  table::Destination destination(table::RowId row) const override { return sums_.destination(row); }
  Status before_forward(int layer, RowWaits& waits) override;
  bool is_finite(int layer) const override;
  void send(int layer, float weight) override;
  void send_nothing() override { sums_.send_nothing(); }
  void progress() override { sums_.progress(); }
  Status apply_all(RowWaits& waits) override;
  Result<double> gather_all(RowWaits& waits) override;
  void update_all(double squares) override;

 private:
  // The params of a bucket.
  struct Part {
    Part(const TableSetup& setup, const Layers& layers)
        : rule(rule_of(setup, layers, setup.net.context())) {}

    LocalRule rule;
    table::Clock clock = -1;  // of the gradient that was asked for last
    float rate = 0;           // of its update
    bool is_due = false;      // the gradient is there, and the update is still to do
  };

  // Waits for the sum and makes it the gradient; then the update.
  Status gather(std::size_t part, RowWaits& waits);
  Status take(std::size_t part);
  void update(Part& part, double squares);

  Net& net_;
  const std::unique_ptr<table::Scheme> scheme_;  // how the gradients of a clock become one update
  BucketSums sums_;
  std::deque<Part> parts_;  // by bucket
};

}  // namespace shoal::parallel
