// The values that the table service is about: rows, clocks, versions and payloads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace shoal::table {

// The number of iterations that a worker has finished. Its first iteration has clock 0.
using Clock = std::int64_t;
using Rank = std::uint32_t;        // the number of a process in its job
using Version = std::int64_t;      // updates applied to a row
using RowId = std::uint32_t;       // an index into Plan::rows
using Generation = std::uint32_t;  // counts the plans of a job, the first 0

inline constexpr Clock kUnbounded = std::numeric_limits<Clock>::max();
inline constexpr std::size_t kMaxRowFloats = 1u << 20;     // of one row
inline constexpr std::size_t kMaxPayloadBytes = 8u << 20;  // of one frame, whatever its codec
inline constexpr std::size_t kMaxRows = 1u << 20;          // of a plan

// Counts of events that were 0, 1, 2 ... clocks or versions behind; the last counts more, too.
using Staleness = std::array<std::uint64_t, 64>;
// Returns the index there of so many.
inline std::size_t staleness_class(std::int64_t behind) {
  return std::clamp<std::int64_t>(behind, 0, std::tuple_size_v<Staleness> - 1);
}

// A row's numbers. They do not change while a copy of `owner` exists. Without an owner they are
// good for as long as the function that handed them out says.
struct Values {
  std::span<const float> data{};
  std::shared_ptr<const void> owner{};
};

// The encoding of a row's numbers as bytes (codec_spec.h).
enum class CodecId : std::uint8_t {
  kFloat32 = 0,
#define CODEC(id, name, number) id = number,
#include "shoal/table/codecs.def"
};

// A row's numbers as the bytes of a frame, which last as Values do.
struct Payload {
  CodecId codec = CodecId::kFloat32;
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};
  // Returns the numbers of a kFloat32 payload, in place.
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
};
// Returns the kFloat32 payload that shares these numbers.
inline Payload as_payload(const Values& numbers) {
  return {CodecId::kFloat32, std::as_bytes(numbers.data), numbers.owner};
}
// Returns the same bytes with an owner: a copy of them if they have none.
Payload owned(const Payload& payload);
// Gives a payload so many bytes of its own, and returns them.
inline std::span<std::byte> allocate(Payload& payload, std::size_t bytes) {
  const auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  payload.bytes = {memory.get(), bytes};
  payload.owner = memory;
  return {memory.get(), bytes};
}

// The numbers that a codec keeps of one row from one call to the next, on the side that encodes:
// for example what it left out of a gradient. Zeros at first. Empty: nothing is kept. Only its
// codec knows their meaning; they are saved whole.
using CodecState = std::span<float>;
// Returns the memory of such a state, of this length, of a row.
using CodecStates = std::function<CodecState(RowId row, std::size_t length)>;

// The memory where a worker reads a row: row.length floats that no other code reads or writes until
// the row has arrived.
struct Destination {
  Destination(std::span<float> numbers, Values* values = nullptr)
      : numbers(numbers), values(values) {}
  std::span<float> numbers;
  // If given, it is set to the numbers. They may lie where they came, instead of in `numbers`.
  Values* values;
};

// The memory where a worker reads a row: row.length floats.
using InPlace = std::function<std::span<float>(RowId)>;

// Calls piece(0) ... piece(pieces - 1), each once, on any threads, and returns when all have
// returned.
using ParallelFor =
    std::function<void(std::size_t pieces, const std::function<void(std::size_t)>& piece)>;

// The kind of numbers in a push.
enum class ContributionKind : std::uint8_t {
  kGradient = 0,  // the sum over its passes; the shard applies the update rule
  kDelta = 1,     // what its own solver added to the weights; the shard adds
  kWeights = 2,   // its weights, for elastic averaging; the answer is its own too
};

// The way in which the numbers of an update change the row.
enum class Apply : std::uint8_t {
  kRule,  // one step of the update rule on scale * sum of weight * values
  kAdd,   // row += scale * sum of weight * values
  // One contribution w': e = scale * (w' - row), row += e; its worker reads w' - e instead of
  // the row.
  kElastic,
};

// The parts of a row: a shard keeps a number of each for every number of the row.
enum class Part : std::uint8_t {
  kWeights = 0,
  kHistory = 1,
  kHistory2 = 2,
  kLeftOut = 3,  // what answers in a codec with error feedback have left out so far
};

inline constexpr std::int32_t kEveryWorker = -1;

// Consecutive numbers that are sent and read together. A row that every worker pushes is a piece of
// a param: its server applies updates to it, and it has one version at a time. A row with one
// writer is a message to all other workers, or to one of them, anew at each clock: its server hands
// on what the writer pushed at clock c to a reader that asks for clock c + 1, once all readers have
// asked for later ones forgets it, and acknowledges the push with a Row without numbers.
struct Row {
  std::uint32_t length = 0;  // floats, 1 .. kMaxRowFloats
  // The owner's place in the forward pass. A row with a smaller one is needed, and sent, earlier.
  std::uint32_t priority = 0;
  std::uint16_t server = 0;  // which server holds it
  // False: written once and never pushed (a frozen param), or pushed by its writer alone.
  bool learns = true;
  float lr_mult = 1, decay_mult = 1;
  // The codecs of pushes, and of the weights that answers hold: 0 is float32, n the n-th of the
  // plan's codecs, counted from 1.
  std::uint8_t push_codec = 0, pull_codec = 0;
  std::int32_t writer = kEveryWorker;  // the only worker that pushes it
  std::int32_t reader = kEveryWorker;  // of a row with one writer: the only worker that reads it
  bool operator==(const Row&) const = default;
};

// The order in which rows that wait for a link leave: the smallest first. A worker needs all rows
// of a clock before any of a later one, and among those of one clock the rows that its forward pass
// needs first.
struct Urgency {
  Clock clock = -1;  // of the numbers that the row's reader waits for
  std::uint32_t priority = 0;
  auto operator<=>(const Urgency&) const = default;
};

// The rows of a plan. Copies share them until one is changed, since a plan has up to a million, and
// each client and server keeps it.
class Rows {
 public:
  Rows() = default;
  Rows(std::vector<Row> rows) : rows_(std::make_shared<std::vector<Row>>(std::move(rows))) {}
  Rows(std::initializer_list<Row> rows) : Rows(std::vector<Row>(rows)) {}

  std::span<const Row> all() const {
    return rows_ ? std::span<const Row>(*rows_) : std::span<const Row>();
  }
  operator std::span<const Row>() const { return all(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const Row& operator[](std::size_t row) const { return all()[row]; }
  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  bool operator==(const Rows& other) const {
    return rows_ == other.rows_ || std::ranges::equal(all(), other.all());
  }
  // Returns the rows to change. This plan alone has them from here on. Good until it is copied.
  std::vector<Row>& edit() {
    if (!rows_ || rows_.use_count() > 1) rows_ = std::make_shared<std::vector<Row>>(begin(), end());
    return *rows_;
  }

 private:
  std::shared_ptr<std::vector<Row>> rows_;
};

}  // namespace shoal::table
