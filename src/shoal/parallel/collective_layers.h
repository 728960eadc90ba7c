// The layers whose gradients the workers sum among themselves, by a tree, a ring or halving and
// doubling: each then applies the same update to its own copy of the params.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shoal/parallel/allreduce.h"
#include "shoal/parallel/exchange_choice.h"
#include "shoal/parallel/replicated_layers.h"

namespace shoal::parallel {

class CollectiveLayers final : public ReplicatedLayers {
 public:
  // For a setup whose scheme takes the gradients of a clock together, before the next iteration.
  CollectiveLayers(const TableSetup& setup, const std::vector<Way>& ways, std::size_t enough);

  std::vector<Tensor*> histories() override;
  std::vector<table::Row> rows(table::RowId first) override;
  std::span<float> destination(table::RowId row) const override;
  Status before_forward(int layer, RowWaits& waits) override;
  bool is_finite(int layer) const override;
  void send(int layer, float weight) override;
  void send_nothing() override;
  void progress() override;
  Status apply_all(RowWaits& waits) override;
  Result<double> gather_all(RowWaits& waits) override;
  void update_all(double squares) override;

 private:
  // A bucket, its sum and its params.
  struct Part {
    Part(const TableSetup& setup, Bucket bucket);

    const Bucket bucket;
    LocalRule rule;
    std::vector<std::size_t> params;  // indices into net.params(), in the order of the vector
    std::unique_ptr<Allreduce> sum;   // once there are rows
    table::RowId first = 0, end = 0;
    std::size_t complete = 0;    // layers of this iteration whose gradients are in the vector
    table::Clock expected = -1;  // the clock that was asked for
    bool is_under_way = false;   // the sum of that clock has begun, and is not the gradient yet
    bool is_due = false;         // it is, and the update is still to do
    float rate = 0;              // of that update
  };

  Part& part_of(int layer) const;
  void start(Part& part);
  // Waits for the sum and makes it the gradient; then the update.
  Status gather(Part& part, RowWaits& waits);
  Status take(Part& part);
  void update(Part& part, double squares);

  Net& net_;
  table::Table& table_;
  const std::unique_ptr<table::Scheme> scheme_;  // how the gradients of a clock become one update
  std::vector<std::unique_ptr<Part>> parts_;     // in the order of backward
};

}  // namespace shoal::parallel
