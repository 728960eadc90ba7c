// A context gives layers and ops what they work with: the device and its stream, the number of
// threads, random numbers and scratch memory. One context serves one net, on one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

namespace ops {
class ConvTuning;  // ops/tuning.h
}

// Says why a forward pass could not be finished: bad input met at run time (an unreadable record, a
// label out of range).
struct Failure {
  Error error;
  // The item of the batch that is to blame, or -1; the net adds the record's key.
  std::int64_t item = -1;
};

// The part of the data that is this net's, of all the nets that train together: `clients` processes
// with `replicas` nets each.
struct Share {
  int client = 0, clients = 1;
  int replica = 0, replicas = 1;
  // The suffix of the client's part of a source that is cut up; empty: its number.
  std::string suffix{};
  bool in_parts = false;  // what is cut up stays so if one client is left
  // The weight of each client's part of a source that all share; empty: all are equal.
  std::vector<double> weights{};
  // The clients begin each iteration together, and read the same number of batches.
  bool in_step = false;
  // Items of a batch, by client, each of its replicas' nets; empty: all have as many. With in_step
  // the clients then read a shared source in slices of one batch of all, whatever the weights.
  std::vector<std::int64_t> batches{};
  // The batches that each client makes in a test, which all begin together; empty: as many. The
  // clients then read a shared source in slices of all batches of a test.
  std::vector<std::int64_t> test_batches{};
  int index() const { return client * replicas + replica; }
  int count() const { return clients * replicas; }
};

// Says how products of matrices and convolutions round what they multiply; sums are float32. The
// CPU computes in float32 whatever is asked.
enum class Precision { kFloat32, kTf32, kBfloat16, kFloat16 };

class Context {
 public:
  struct Options {
    const Device* device = nullptr;  // null: the CPU; it outlives the context
    int threads = 1;                 // that kernels may use; >= 1
    std::uint64_t seed = 1;          // the same for all nets that train together
    Share share{};
    Precision precision = Precision::kFloat32;
    bool deterministic = false;  // no kernel is chosen by a measured time
    // Convolutions of the CPU are sums of direct products, and not by Winograd's algorithm, whose
    // rounding errors are three to four times as large.
    bool direct_convolution = false;
    bool recordings = false;  // of the net's work, where the device can
    // Convolutions of the CPU are chosen by the measured times in it; null: by rule. Contexts whose
    // nets train together share it.
    std::shared_ptr<ops::ConvTuning> tuning{};
  };
  explicit Context(const Options& options);
  Context(const Context&) = delete;

  const Device& device() const { return *device_; }
  // The device works for this context in the order of this stream.
  const std::shared_ptr<Stream>& stream() const { return stream_; }
  int threads() const { return options_.threads; }
  Precision precision() const { return options_.precision; }
  bool deterministic() const { return options_.deterministic; }
  bool direct_convolution() const { return options_.direct_convolution; }
  bool recordings() const { return options_.recordings; }
  const std::shared_ptr<ops::ConvTuning>& tuning() const { return options_.tuning; }
  const Share& share() const { return options_.share; }
  // Random numbers of this net alone: no other net of the job draws the same.
  Random& random() { return random_; }
  Random common() const { return Random(options_.seed); }  // the same for all nets of the job
  // Returns at least `count` floats of the device's memory, not cleared, good until the next call.
  // Kernels divide it among their threads.
  std::span<float> scratch(std::int64_t count);
  // Makes scratch() this memory of the device from now on, where it is enough; empty: the context's
  // own. The lender keeps it for as long as work that was queued meanwhile may use it.
  void lend_scratch(std::span<float> memory) { lent_scratch_ = memory; }

  // Adds each later use of a tensor on the device to `uses`; null: none.
  void note_uses(std::vector<TensorUse>* uses) { uses_ = uses; }
  std::vector<TensorUse>* uses() const { return uses_; }

  // Notes the first failure of a pass; forward and backward never throw. The net looks after each
  // layer and stops.
  void fail(Error error, std::int64_t item = -1);
  // Takes the noted failure away, if there is one.
  std::optional<Failure> take_failure();
  bool failed() const { return failure_.has_value(); }

 private:
  Options options_;
  Random random_;
  const Device* device_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Memory> scratch_;
  std::span<float> lent_scratch_;
  std::optional<Failure> failure_;
  std::vector<TensorUse>* uses_ = nullptr;
};

// Lends a context scratch for as long as it lives.
class LentScratch {
 public:
  LentScratch(Context& context, std::span<float> memory) : context_(context) {
    context.lend_scratch(memory);
  }
  ~LentScratch() { context_.lend_scratch({}); }
  LentScratch(const LentScratch&) = delete;

 private:
  Context& context_;
};

}  // namespace shoal
