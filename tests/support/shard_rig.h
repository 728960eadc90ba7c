// Drives a shard: creates its rows, sends it messages, and returns its answers in words.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/scheme.h"
#include "shoal/table/shard.h"
#include "support/schemes.h"

namespace shoal::table::test {

// `rows` on server 0, of SGD without momentum or decay at a rate that pushes bring.
inline Plan plan_of(std::string_view scheme, std::uint16_t workers,
                    std::vector<std::uint32_t> rows = {1}) {
  Plan plan;
  plan.workers = workers;
  plan.scheme = scheme_of(scheme);
  for (const std::uint32_t length : rows) plan.rows.edit().push_back({.length = length});
  return plan;
}

// Gradient that all numbers of the row share; with owner, so that it may be repeated whenever.
inline Push push_of(RowId row, Clock clock, float value, std::size_t length = 1) {
  const auto numbers = std::make_shared<const std::vector<float>>(length, value);
  return {.row = row, .clock = clock, .rate = 1, .payload = as_payload({*numbers, numbers})};
}

// A gradient that the caller keeps, of the row as it was at this clock.
inline Push push_of(RowId row, Clock clock, std::span<const float> numbers, float rate) {
  return {.row = row,
          .clock = clock,
          .base = clock,
          .rate = rate,
          .payload = as_payload({numbers, nullptr})};
}

class ShardRig {
 public:
  explicit ShardRig(const Plan& plan, float initial = 0, int server = 0,
                    SchemeMaker maker = &SchemeSpec::make, CodecMaker codecs = make_codec)
      : plan_(plan), shard_(std::make_unique<Shard>(server, maker, codecs)) {
    if (const auto scheme = maker(plan.scheme); scheme.ok()) kind_ = scheme.value()->contribution();
    give(0, PlanMessage{plan});
    for (RowId row = 0; row < plan.rows.size(); ++row) {
      const std::vector<float> numbers(plan.rows[row].length, initial);
      if (plan.rows[row].server == server && plan.rows[row].writer < 0)
        give(0, Init{row, Part::kWeights, as_payload({numbers, nullptr})});
    }
    EXPECT_TRUE(shard_->ready());
    said();
  }

  Shard& shard() { return *shard_; }
  const Plan& plan() const { return plan_; }
  Outbox& out() { return out_; }

  void give(int worker, const Message& message) {
    const Status status = shard_->handle(worker, message, out_);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  std::string refused(int worker, const Message& message) {
    const Status status = shard_->handle(worker, message, out_);
    return status.ok() ? "" : status.error().message;
  }
  // The gradient `value`, or what else the scheme takes, read at the version that the worker last
  // saw.
  void push(int worker, Clock clock, float value, RowId row = 0, float weight = 1) {
    Push push = push_of(row, clock, value, plan_.rows[row].length);
    push.weight = weight;
    push.base = base(worker, row);
    push.kind = kind_;
    give(worker, push);
  }
  // All workers push this to all rows.
  void all_push(Clock clock, float value) {
    for (int worker = 0; worker < plan_.workers; ++worker)
      for (RowId row = 0; row < plan_.rows.size(); ++row) push(worker, clock, value, row);
  }
  // A gradient at a rate, for row 0, read at the version the worker last saw.
  void push_at(float rate, int worker, Clock clock, float value) {
    Push push = push_of(0, clock, value);
    push.rate = rate;
    push.base = base(worker, 0);
    give(worker, push);
  }
  // The first number of the row that is first in out().
  float first_number() const {
    return std::get<RowMessage>(out_.at(0).message).payload.floats()[0];
  }
  void leave(int worker) { shard_->leave(worker, out_); }
  Version& base(int worker, RowId row) {
    const std::size_t at = static_cast<std::size_t>(worker) * plan_.rows.size() + row;
    if (bases_.size() <= at) bases_.resize(at + 1, plan_.start);
    return bases_[at];
  }

  // All that was said since the last call: "row 0@1=0.5v1 to 2" (row 0 at clock 1 begins with 0.5,
  // version 1, to worker 2; "row 0@1 to 2": its acknowledgement alone), "need 0@3 to 1", "norm
  // @2=25", "ready 1".
  std::string said() {
    std::string words;
    for (const Outgoing& one : std::exchange(out_, {})) {
      if (!words.empty()) words += ", ";
      if (const auto* row = std::get_if<RowMessage>(&one.message)) {
        base(one.to, row->row) = row->version;
        const bool has_numbers = !row->payload.bytes.empty();
        words += str("row ", row->row, '@', row->clock,
                     has_numbers ? str('=', row->payload.floats()[0], 'v', row->version) : "",
                     " to ", one.to);
      } else if (const auto* need = std::get_if<NeedPush>(&one.message)) {
        words += str("need ", need->row, '@', need->clock, " to ", one.to);
      } else if (const auto* norm = std::get_if<Norm>(&one.message)) {
        words += str("norm @", norm->clock, '=', norm->squares);
      } else if (const auto* ready = std::get_if<Ready>(&one.message)) {
        words += str("ready ", ready->rows);
      } else {
        words += name_of(one.message);
      }
    }
    return words;
  }

  // Returns what it says then.
  std::string answers(int worker, const Message& message) {
    give(worker, message);
    return said();
  }
  std::string answers_push(int worker, Clock clock, float value, RowId row = 0, float weight = 1) {
    push(worker, clock, value, row, weight);
    return said();
  }

  std::vector<float> numbers(RowId row, Part part = Part::kWeights, int worker = 0) {
    Outbox out;
    const Clock clock = part == Part::kWeights ? shard_->clock_of(worker) : plan_.start;
    EXPECT_TRUE(shard_->handle(worker, Get{row, clock, part}, out).ok());
    for (const Outgoing& one : out)
      if (const auto* answer = std::get_if<RowMessage>(&one.message);
          answer && answer->part == part && one.to == worker)
        return {answer->payload.floats().begin(), answer->payload.floats().end()};
    ADD_FAILURE() << "row " << row << " is not to be read";
    return {};
  }

 private:
  const Plan plan_;
  ContributionKind kind_ = ContributionKind::kGradient;
  std::unique_ptr<Shard> shard_;
  Outbox out_;
  std::vector<Version> bases_;
};

}  // namespace shoal::table::test
