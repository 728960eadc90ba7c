// The sum of a vector over all workers, by the steps of a collective. A transfer is a row of the
// table that its sender alone writes and its receiver alone reads.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/parallel/sums/collective.h"
#include "shoal/parallel/sums/vector_sum.h"
#include "shoal/table/buffer.h"
#include "shoal/table/codec.h"

namespace shoal::parallel {

// Returns the rows of all transfers, in the order of strips and transfers. servers: by worker, the
// server for its writes. codec: as table::Row numbers it.
std::vector<table::Row> rows_of(Way way, std::size_t count, std::uint32_t priority,
                                std::span<const std::uint16_t> servers, std::uint8_t codec = 0);

class Allreduce final : public VectorSum {
 public:
  // `first`: the number of the first row in the table's plan; the rows are those of rows_of.
  // `codec`: that of the rows. What it decodes, it encodes again as it was.
  Allreduce(table::Table& table, Way way, int workers, std::size_t count, table::RowId first,
            const table::CodecSpec& codec = {});
  Allreduce(const Allreduce&) = delete;

  std::span<float> numbers() override { return numbers_->numbers(); }
  table::Destination destination(table::RowId row) override;
  // Asks for others' numbers of this clock, once they have the last ones of this worker. Call it
  // before the summand is written.
  Status expect(table::Clock clock, RowWaits& waits) override;
  void start() override;
  // Carries out the steps whose numbers have arrived.
  void progress() override;
  bool is_done() const override { return done_.is_done(); }
  // Waits for the row that the first unfinished part of the sum needs.
  Status wait(RowWaits& waits) override;

 private:
  table::RowId row_of(const Step& step) const {
    return first_ + static_cast<table::RowId>(step.transfer);
  }
  void renew();
  void send(const Step& step);
  void take(const Step& step);

  table::Table& table_;
  const table::RowId first_;
  const std::unique_ptr<table::Codec> codec_;  // null: float32
  const std::vector<Strip> strips_;
  StepsDone done_{strips_};
  std::vector<table::RowId> sends_, receives_;  // rows
  std::vector<const Step*> by_row_;             // from first_ on; null: between other workers
  const std::size_t count_;
  // The vector of this clock, from which others are sent their parts, and those of earlier ones.
  std::shared_ptr<table::Buffer> numbers_;
  std::vector<std::shared_ptr<table::Buffer>> used_;
  // Numbers that are to be added, and memory for them if they cannot stay where they came.
  struct Received {
    table::Values values;
    std::unique_ptr<float[]> memory;
  };
  std::vector<Received> received_;  // by Step::index
  std::size_t longest_ = 0;         // of what is added
  table::Clock clock_ = 0;
  Mutex mutex_;
  // Memory for received numbers, used again while it is in a cache.
  std::vector<std::unique_ptr<float[]>> free_ GUARDED_BY(mutex_);
};

}  // namespace shoal::parallel
