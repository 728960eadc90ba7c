// A worker's table in which nothing happens: no row comes, no question has an answer. A test
// overrides the calls that it uses.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/table.h"

namespace shoal::test {

class StillTable : public table::Table {
 public:
  // Makes one of so many workers, each with a server in its process.
  explicit StillTable(int worker = 0, int workers = 0) : worker_(worker) {
    for (int r = 0; r < workers; ++r) {
      auto& process = roster_.processes.emplace_back();
      process.rank = static_cast<table::Rank>(r);
      process.worker = process.server = r;
    }
  }
  int worker() const override { return worker_; }
  const table::RosterBody& roster() const override { return roster_; }
  Status create(const table::Plan&, const Source&, const Destinations&) override { return {}; }
  void hold_states(table::CodecStates) override {}
  Result<bool> regroup(const table::SegmentBody&) override { return true; }
  Result<bool> leave(table::Clock, std::string) override { return false; }
  std::shared_ptr<float[]> memory(std::size_t floats) override {
    return std::make_shared<float[]>(floats);
  }
  Status status() const override { return {}; }
  void share_out(table::ParallelFor) override {}
  void push(std::span<const table::Push>) override {}
  void get(table::RowId, table::Clock, table::Part) override {}
  Status wait(std::span<const table::RowId>) override { return {}; }
  bool has(std::span<const table::RowId>) override { return true; }
  table::Version version(table::RowId) override { return 0; }
  Result<std::string> ask(table::Topic, table::Clock, std::string) override { return {""}; }
  void tell(table::Topic, table::Clock, std::string) override {}
  std::vector<table::Answer> take_outputs() override { return {}; }
  Result<table::Want> start(table::Clock) override { return table::Want::kNothing; }
  Status finish(table::Clock) override { return {}; }
  void abort(const Error&) override {}
  void release() override {}
  table::Traffic traffic() const override { return {}; }
  table::Instant now() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  table::StalenessCounts staleness() const override { return {}; }

 private:
  const int worker_;
  table::RosterBody roster_;
};

}  // namespace shoal::test
