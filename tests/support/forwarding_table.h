// A worker's table that passes every call on to another. A test overrides what it observes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/table.h"

namespace shoal::test {

class ForwardingTable : public table::Table {
 public:
  explicit ForwardingTable(table::Table& inner) : inner_(inner) {}
  int worker() const override { return inner_.worker(); }
  const table::RosterBody& roster() const override { return inner_.roster(); }
  Status create(const table::Plan& plan, const Source& initial,
                const Destinations& destinations) override {
    return inner_.create(plan, initial, destinations);
  }
  void hold_states(table::CodecStates states) override { inner_.hold_states(std::move(states)); }
  Result<bool> regroup(const table::SegmentBody& end) override { return inner_.regroup(end); }
  Result<bool> leave(table::Clock clock, std::string state) override {
    return inner_.leave(clock, std::move(state));
  }
  std::shared_ptr<float[]> memory(std::size_t floats) override { return inner_.memory(floats); }
  Status status() const override { return inner_.status(); }
  void share_out(table::ParallelFor parallel_for) override {
    inner_.share_out(std::move(parallel_for));
  }
  void push(std::span<const table::Push> together) override { inner_.push(together); }
  void get(table::RowId row, table::Clock clock, table::Part part) override {
    inner_.get(row, clock, part);
  }
  Status wait(std::span<const table::RowId> rows) override { return inner_.wait(rows); }
  bool has(std::span<const table::RowId> rows) override { return inner_.has(rows); }
  table::Version version(table::RowId row) override { return inner_.version(row); }
  Result<std::string> ask(table::Topic topic, table::Clock clock, std::string body) override {
    return inner_.ask(topic, clock, std::move(body));
  }
  void tell(table::Topic topic, table::Clock clock, std::string body) override {
    inner_.tell(topic, clock, std::move(body));
  }
  std::vector<table::Answer> take_outputs() override { return inner_.take_outputs(); }
  Result<table::Want> start(table::Clock clock) override { return inner_.start(clock); }
  bool can_copy() const override { return inner_.can_copy(); }
  Status interruption() const override { return inner_.interruption(); }
  Result<Reunion> reunite(std::string mine) override { return inner_.reunite(std::move(mine)); }
  Result<table::Want> end_of_generation() override { return inner_.end_of_generation(); }
  Status finish(table::Clock clock) override { return inner_.finish(clock); }
  void abort(const Error& error) override { inner_.abort(error); }
  void release() override { inner_.release(); }
  table::Traffic traffic() const override { return inner_.traffic(); }
  table::Instant now() const override { return inner_.now(); }
  table::StalenessCounts staleness() const override { return inner_.staleness(); }

 private:
  table::Table& inner_;
};

}  // namespace shoal::test
