// A worker's table that opens a gate once the worker has asked all for something: a snapshot, a
// stop.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "support/forwarding_table.h"
#include "support/job.h"

namespace shoal::test {

class Overheard : public ForwardingTable {
 public:
  // Raises `said` to 1 after a request.
  Overheard(table::Table& inner, Gate& said) : ForwardingTable(inner), said_(said) {}
  void tell(table::Topic topic, table::Clock clock, std::string body) override {
    ForwardingTable::tell(topic, clock, std::move(body));
    if (topic != table::Topic::kPause) return;
    Job::pass(std::chrono::microseconds(1));  // the others hear of it
    said_.reach(1);
  }

 private:
  Gate& said_;
};

}  // namespace shoal::test
