// Tests of the measured time of an exchange.
#include "shoal/parallel/tuning/link_times.h"

#include <gtest/gtest.h>

#include "shoal/table/coordinator.h"
#include "shoal/table/placement.h"
#include "support/still_table.h"

namespace shoal::parallel::exchange_time_test {
namespace {

using table::Clock;
using table::RowId;

// Rows of server 0 are here; those of server 1 take a second each.
class OneLink final : public shoal::test::StillTable {
 public:
  OneLink(const table::Plan& plan, int worker) : StillTable(worker), plan_(plan) {}

  void get(RowId row, Clock clock, table::Part part) override {
    EXPECT_TRUE(part == table::Part::kWeights && clock == plan_.start_of(worker()));
    asked.push_back(row);
  }
  Status wait(std::span<const RowId> rows) override {
    for (const RowId row : rows) now_ += std::chrono::seconds(plan_.rows[row].server);
    return {};
  }
  Result<std::string> ask(table::Topic topic, Clock clock, std::string) override {
    EXPECT_TRUE(topic == table::Topic::kBarrier);
    turns.emplace_back(clock, asked.size());
    return std::string();
  }
  table::Instant now() const override { return now_; }

  std::vector<RowId> asked;
  std::vector<std::pair<Clock, std::size_t>> turns;  // and rows asked for until then

 private:
  const table::Plan& plan_;
  table::Instant now_{};
};

table::Plan plan_of(std::size_t rows) {
  table::Plan plan;
  plan.workers = 3;
  plan.servers = 2;
  plan.generation = 4;
  plan.clocks = {5, 7, 6};
  for (std::size_t row = 0; row < rows; ++row)
    plan.rows.edit().push_back(
        {.length = table::kRowFloats, .server = static_cast<std::uint16_t>(row % 2)});
  return plan;
}

TEST(ExchangeTime, IsThatOfAllRowsFromSomeOfEachServer) {
  const table::Plan plan = plan_of(20);
  OneLink link(plan, 1);
  EXPECT_DOUBLE_EQ(or_throw(measure_exchange(link, plan)), 10) << "ten rows of the other server";
  EXPECT_EQ(link.asked, (std::vector<RowId>{0, 1, 2, 3})) << "a MiB";
  EXPECT_DOUBLE_EQ(sample_of(plan.rows, 2).share, 0.2);
}

TEST(ExchangeTime, IsMeasuredByEachInItsTurn) {
  const table::Plan plan = plan_of(2);
  OneLink link(plan, 1);
  EXPECT_DOUBLE_EQ(or_throw(measure_exchange(link, plan)), 1);
  EXPECT_EQ(link.turns,
            (std::vector<std::pair<Clock, std::size_t>>{{table::end_of_turn(4, 0), 0},
                                                        {table::end_of_turn(4, 1), 2},
                                                        {table::end_of_turn(4, 2), 2}}));
  EXPECT_LT(table::rows_exist(4), table::end_of_turn(4, 0)) << "rounds come one after the other";
  EXPECT_LT(table::end_of_turn(4, 65535), table::all_drained(5));
}

}  // namespace
}  // namespace shoal::parallel::exchange_time_test
