// Tests that a worker which is to leave sends what its codecs have left out with its last pushes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shoal/parallel/worker.h"
#include "shoal/table/error_feedback.h"
#include "support/exchange_job.h"
#include "support/forwarding_table.h"
#include "support/schemes.h"

namespace shoal::test::leaving_test {
namespace {

using table::RowId;

// Adds up, by row, what its worker pushes, before a codec has it.
class AddingTable final : public ForwardingTable {
 public:
  explicit AddingTable(table::Table& inner) : ForwardingTable(inner) {}
  Status create(const table::Plan& made, const Source& initial,
                const Destinations& destinations) override {
    plan = made;
    for (RowId row = 0; row < plan.rows.size(); ++row)
      if (const std::span<const float> numbers = initial(row, table::Part::kWeights);
          plan.rows[row].learns)
        first[row].assign(numbers.begin(), numbers.end());
    return ForwardingTable::create(made, initial, destinations);
  }
  void hold_states(table::CodecStates of) override {
    ForwardingTable::hold_states(
        [this, of](RowId row, std::size_t length) { return states[row] = of(row, length); });
  }
  void push(std::span<const table::Push> together) override {
    for (const table::Push& one : together) {
      std::vector<double>& sum = sums[one.row];
      sum.resize(plan.rows[one.row].length);
      const std::span<const float> numbers = one.payload.floats();
      for (std::size_t i = 0; i < numbers.size(); ++i) sum[i] += numbers[i];
      is_whole = one.whole;
    }
    ForwardingTable::push(together);
  }
  // Keeps what codecs have left out of pushes, by row, beyond the memory that it is in.
  void keep_left_out() {
    for (const auto& [row, state] : states) {
      const table::CodecState left = table::left_out(state, plan.rows[row].length);
      left_out[row].assign(left.begin(), left.end());
    }
  }

  table::Plan plan;
  std::map<RowId, table::CodecState> states;
  std::map<RowId, std::vector<float>> first, left_out;
  std::map<RowId, std::vector<double>> sums;
  bool is_whole = false;  // the last push
};

// Two workers, of which the second wishes to leave from an iteration on.
struct Leaving {
  const char* scheme = "bsp";
  const char* codec = "topk:0.1";
  double factor = -0.01;  // of the mean push, in the sum that is a row
  int at = 6;
};

class LeavingWorker : public ExchangeJob {
 protected:
  struct Seen {
    std::int64_t iterations = 0;
    std::shared_ptr<AddingTable> tables[2];
    std::vector<std::vector<float>> rows;
    std::vector<Ending> endings;
  };
  // Runs it until the workers regroup.
  static Seen run(const Leaving& one) {
    SolverParameter param =
        job(2, str("type: 'SGD' base_lr: 0.01 codec { min_count: 1 push: '", one.codec, "' }"));
    param.set_lr_policy("fixed");
    Seen seen;
    Job cluster(2, 2);
    seen.endings.resize(2);
    const auto outcomes = cluster.run([&](int worker, table::Table& inner) -> Status {
      const auto own = seen.tables[worker] = std::make_shared<AddingTable>(inner);
      const std::unique_ptr<Team> team = parallel::make_table_team(*own);
      SolverOptions options = with_name("job");
      options.team = team.get();
      options.share = {.client = worker, .clients = 2, .replica = 0, .replicas = 1};
      Updater* updater = nullptr;
      options.make_updater = [&](Net& net) {
        auto made = parallel::make_table_updater(param, net, *own,
                                                 {.name = "job",
                                                  .scheme = table::scheme_of(one.scheme),
                                                  .maker = &table::SchemeSpec::make});
        updater = made.get();
        return made;
      };
      const Solver* trained = nullptr;
      options.action = [&, worker] {
        return worker == 1 && trained && trained->iteration() >= one.at ? Action::kLeave
                                                                        : Action::kNone;
      };
      Solver solver(param, options);
      trained = &solver;
      const Result<Ending> ending = solver.solve_until(100);
      if (!ending.ok()) return ending.error();
      seen.endings[worker] = ending.value();
      seen.iterations = solver.iteration();
      const Status status = updater->settle(Settle::kOwn);
      own->keep_left_out();
      return status;
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    seen.rows = cluster.rows();
    return seen;
  }
  // Expects that the rows hold all pushes of both workers but what the codecs of the one that stays
  // have left out.
  static void expect_all_of_the_leavers(const Seen& seen, double factor) {
    const AddingTable &stays = *seen.tables[0], &leaves = *seen.tables[1];
    double off = 0, kept = 0;
    std::size_t at = 0;
    for (const auto& [row, first] : stays.first) {
      const double scale = factor < 0 ? factor * stays.plan.rows[row].lr_mult : factor;
      for (std::size_t i = 0; i < first.size(); ++i) {
        const double left = stays.left_out.at(row)[i];
        const double pushed = (stays.sums.at(row)[i] + leaves.sums.at(row)[i] - left) / 2;
        off = std::max(off, std::abs(first[i] + scale * pushed - seen.rows[at][i]));
        kept += std::abs(scale * left);
        EXPECT_EQ(leaves.left_out.at(row)[i], 0);
      }
      ++at;
    }
    EXPECT_EQ(at, seen.rows.size());
    EXPECT_LT(off, 1e-5);
    EXPECT_GT(kept, 1e-3) << "the codec leaves nothing out";
  }
};

TEST_F(LeavingWorker, SendsWhatItsCodecsHaveLeftOut) {
  for (const Leaving& one :
       {Leaving{}, Leaving{.codec = "int8:feedback"}, Leaving{.codec = "onebit"},
        Leaving{.scheme = "ssp 1"}, Leaving{.scheme = "local_steps local_steps=2", .factor = 1},
        Leaving{.scheme = "streaming local_steps=4 fragments=2", .factor = 1}}) {
    SCOPED_TRACE(str(one.scheme, ' ', one.codec));
    const Seen seen = run(one);
    for (const Ending ending : seen.endings) EXPECT_EQ(ending, Ending::kRegroups);
    EXPECT_GE(seen.iterations, one.at + 2) << "one with what was left out, and one until all agree";
    EXPECT_LE(seen.iterations, one.at + 4);
    EXPECT_TRUE(seen.tables[1]->is_whole);
    EXPECT_FALSE(seen.tables[0]->is_whole);
    expect_all_of_the_leavers(seen, one.factor);
  }
}

// Nothing was pushed yet when it is told to leave, and so nothing was left out.
TEST_F(LeavingWorker, MayLeaveAtOnce) {
  const Seen seen = run({.at = 0});
  EXPECT_EQ(seen.iterations, 2);
  expect_all_of_the_leavers(seen, -0.01);
}

TEST_F(LeavingWorker, LeavesWithoutDelayIfNothingIsLeftOut) {
  EXPECT_EQ(run({.codec = "topk:0.1"}).iterations, 8);
  EXPECT_EQ(run({.codec = "fp16"}).iterations, 7);
}

}  // namespace
}  // namespace shoal::test::leaving_test
