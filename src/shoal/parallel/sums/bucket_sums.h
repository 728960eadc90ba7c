// The sums over all workers for each layer that goes by a collective: of gradients, or of the
// changes by local steps. Neighbouring layers travel together in a bucket's vector.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "shoal/ops/job_sums.h"
#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/rows/table_side.h"
#include "shoal/parallel/sums/low_rank_sum.h"
#include "shoal/parallel/sums/vector_sum.h"

namespace shoal::parallel {

// Adds up vectors of bytes, of those that are not empty, in their order.
Status add_up(std::span<const std::string_view> parts, std::span<float> sum);

// Sums buckets. All calls on the solver's thread, destination apart.
class BucketSums final : public MessageRows {
 public:
  enum class Of {
    kGradients,  // the params' own; NCCL sums them where they are
    kNumbers,    // what the caller writes, on the host
  };
  // Makes the sums for the ways of a setup, and adds its rows to the side. Throws ConfigError as
  // begin_mpi and begin_nccl do.
  BucketSums(const TableSetup& setup, TableSide& side, Of of);

  std::size_t size() const { return parts_.size(); }
  const Bucket& bucket(std::size_t part) const { return parts_[part].bucket; }
  // Returns the bucket of a layer; nothing for a layer in no bucket.
  std::optional<std::size_t> part_of(int layer) const;
  // Returns whether the bucket's gradients are summed on the device.
  bool in_place(std::size_t part) const { return parts_[part].in_place; }

  // Return what lowrank keeps from clock to clock, and set it before there are rows.
  std::vector<float> states() const;
  void give_states(std::vector<float> states) { given_states_ = std::move(states); }

  std::vector<table::Row> rows(table::RowId first) override;
  table::Destination destination(table::RowId row) override;

  // Asks for the numbers that others send, once a clock, before a forward pass of the bucket's
  // layers.
  Status expect(std::size_t part, table::Clock clock);
  // kGradients: sends `weight` times the layer's gradients, which count `weight`. When all layers
  // of the bucket were sent, starts their sum. From here until finish() the gradients belong to the
  // sum.
  void send(int layer, float weight);
  // kNumbers: calls write(param, numbers) for each param of the layer that learns: an index into
  // net.params(), and the place of its numbers. `count` goes with the bucket, behind the other
  // numbers.
  using Visit = std::function<void(std::size_t param, std::span<float> numbers)>;
  void send(int layer, float count, const Visit& write);
  // Sends zeros, which count 0, for all layers.
  void send_nothing();
  // Carries on all sums without waiting.
  void progress();
  // Returns whether finish() would return a sum without waiting for other workers.
  bool is_there(std::size_t part) const {
    return parts_[part].is_under_way && parts_[part].sum->is_done();
  }
  // Waits for the sum that was started. Returns the sum of all counts; nothing if none was started
  // since the last call.
  Result<std::optional<float>> finish(std::size_t part);
  // kGradients: sets the gradients to `scale` times the sum, after finish().
  void read(std::size_t part, float scale);
  // ---- after an interruption ----
  // Returns the indices of the bucket's params, in the order of its vector.
  std::span<const std::size_t> params(std::size_t part) const { return parts_[part].params; }
  // Forgets the sum that was started, if there is one: it will not end.
  void forget(std::size_t part) { parts_[part].is_under_way = false; }
  // Waits for the sum that was started, and leaves it to finish().
  Status complete(std::size_t part);
  // Calls visit(param, its part of `vector`) for each param: a vector as the bucket's sum has it.
  void each(std::size_t part, std::span<float> vector, const Visit& visit) const;

  // kNumbers: calls read(param, sum) for each param.
  void read(std::size_t part, const Visit& read) { each(part, parts_[part].sum->numbers(), read); }

 private:
  struct Part {
    Bucket bucket;
    std::vector<std::size_t> params{};  // in the order of the vector
    bool in_place = false;              // the gradients themselves are summed
    table::CodecSpec codec{};           // of what workers send each other
    std::unique_ptr<VectorSum> sum{};   // once there are rows
    table::RowId first = 0, end = 0;
    table::Clock clock = -1;    // that was asked for last
    std::size_t complete = 0;   // layers of this iteration whose numbers are in the vector
    bool is_under_way = false;  // the sum has begun, and was not finished
  };
  std::vector<MatrixPlace> matrices_of(const Part& part) const;
  void take_states();
  void each(Part& part, const Visit& write) {
    each(static_cast<std::size_t>(&part - parts_.data()), part.sum->numbers(), write);
  }
  std::vector<Tensor*> gradients(const Part& part) const;
  void complete(Part& part, float count);
  void start(Part& part, float count);

  Net& net_;
  table::Table& table_;
  RowWaits& waits_;
  TableSide& side_;
  std::vector<std::optional<std::size_t>> part_of_;  // by layer
  std::shared_ptr<ops::JobSums> nccl_;               // of the generation, if a bucket goes by it
  std::vector<Part> parts_;                          // in the order of backward
  std::vector<float> given_states_;
};

}  // namespace shoal::parallel
