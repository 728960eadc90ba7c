// A worker's table that tells the other threads of a test when this worker wants something of all:
// a snapshot, a stop.
#pragma once

#include <string>
#include <utility>

#include "support/forwarding_table.h"
#include "support/gate.h"

namespace shoal::test {

class Overheard : public ForwardingTable {
 public:
  // `said` is reached, at 1, when the others have been told.
  Overheard(table::Table& inner, Gate& said) : ForwardingTable(inner), said_(said) {}
  void tell(table::Topic topic, table::Clock clock, std::string body) override {
    ForwardingTable::tell(topic, clock, std::move(body));
    if (topic == table::Topic::kPause) said_.reach(1);
  }

 private:
  Gate& said_;
};

}  // namespace shoal::test
