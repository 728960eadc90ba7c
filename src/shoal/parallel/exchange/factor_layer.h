// A layer whose gradient travels as factors: what this worker has sent of it and has of the others,
// and the update of its own copy of the params.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "shoal/layers/factored.h"
#include "shoal/parallel/rows/table_side.h"
#include "shoal/solver/local_rule.h"
#include "shoal/table/buffer.h"

namespace shoal::parallel {

// Returns the length of a message: both factors, and their weight.
inline std::size_t length_of(const Factored::Sizes& sizes) {
  return static_cast<std::size_t>(sizes.rows * (sizes.outputs + sizes.inputs)) + 1;
}

// Rows of the workers whose factors are multiplied together. Each product reads and writes the
// whole gradient, so there should be few; its rows are copied, so they should not be too many.
inline constexpr std::int64_t kRowsTogether = 512;

struct FactorLayer final : public FactorSink {
  using Message = std::shared_ptr<table::Buffer>;
  struct Sent {
    table::Clock clock = 0;
    float rate = 0;
    Message own{};
  };

  FactorLayer(const TableSetup& setup, int layer);
  ~FactorLayer() override;
  void begin(std::size_t worker);
  void take(int replica, const Tensor& top_grad, const Tensor& bottom) override;
  // Makes the gradient of the oldest in `sent` from these messages; then the update, unless that
  // has been made.
  using Messages = std::vector<std::span<const float>>;  // by worker
  Status sum(const table::Scheme& scheme, const Messages& messages);
  // Returns the messages of the oldest, once all are there.
  Messages messages() const;
  void update(double squares);
  std::size_t length(std::size_t worker) const;  // of its message
  // Forgets the oldest in `sent`: its update is made.
  void pop();
  std::vector<Tensor*> numbers();  // params and histories

  const int layer;
  const std::string name;
  Factored& factored;
  const Factored::Sizes sizes;
  const int passes, replicas;
  const table::CodecSpec codec;                // of messages
  const std::unique_ptr<Context> own_context;  // of a host
  Context& context;
  Net& net;
  LocalRule rule;
  std::vector<std::int64_t> rows;              // by worker, of all passes and replicas
  std::vector<std::vector<table::RowId>> ids;  // by worker: the table's rows of its message
  std::vector<std::vector<float>> received;    // by worker; none of this one
  std::vector<Message> pool;                   // for own messages
  Message own;                                 // of this iteration
  std::vector<int> pass;                       // by replica, of this iteration
  Tensor top_grad, bottom;                     // (rows, outputs), (rows, inputs) of some workers
  std::deque<Sent> sent;                       // whose updates are still to do, the oldest first
  bool is_due = false;                         // the oldest one's gradient is there
  float due_rate = 0;                          // of its update
  table::Clock version = 0;                    // iterations whose updates the params hold
  // The gradient of the oldest, and its update unless gradients are clipped, while the work
  // thread computes them. Otherwise not valid.
  std::future<Status> under_way;
};

}  // namespace shoal::parallel
