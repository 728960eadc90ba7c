// The fixture of tests of a team: solvers that make the same update of the mean of all gradients,
// on nets with random numbers and without.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/proto/io.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test {

// An updater in lockstep: every member makes the same update of the mean of all gradients. Params
// and histories start as the chief's.
class MeanUpdater final : public ForwardingUpdater, public Checkpointed {
 public:
  MeanUpdater(const SolverParameter& param, Net& net, Team& team, float weight)
      : ForwardingUpdater(make_local_updater(param, "x", net)),
        net_(net),
        team_(team),
        weight_(weight) {}

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = settle(Settle::kOwn); !status.ok()) return status;
    return inner().begin(iteration, rate);
  }
  Result<StepOutcome> end_step(StepEnd how) override {
    if (how == StepEnd::kSkip) return inner().end_step(how);
    std::vector<double> sums = {weight_};
    for (const NetParam& param : net_.params())
      for (const float number : param.blob->grad.host()) sums.push_back(double{weight_} * number);
    if (Status status = team_.sum(sums); !status.ok()) return status.error();
    auto from = sums.begin() + 1;
    for (const NetParam& param : net_.params())
      for (float& number : param.blob->grad.host_mut())
        number = static_cast<float>(*from++ / sums[0]);
    return inner().end_step(how);
  }
  Status settle(Settle how) override {
    if (how == Settle::kTeams) ++refreshed;
    if (created_) return {};
    created_ = true;
    for (Tensor* history : histories())
      if (Status status = share(history->host_mut()); !status.ok()) return status;
    for (const NetParam& param : net_.params())
      if (Status status = share(param.blob->data.host_mut()); !status.ok()) return status;
    return {};
  }
  std::int64_t bytes_together() const override { return 0; }
  bool is_quiet() const override { return false; }
  bool queues_updates() const override { return false; }
  Checkpointed& state() override { return *this; }
  std::optional<double> seconds_waited() const override { return 0; }

  std::vector<StateRow> rows() override { return inner().state().rows(); }
  std::vector<Tensor*> histories() override { return inner().state().histories(); }
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>&) override {
    started_at = iteration;
  }

  int refreshed = 0;
  std::int64_t started_at = -1;

 private:
  // Makes these numbers the chief's.
  Status share(std::span<float> numbers) {
    const Result<std::string> chiefs =
        team_.share({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
    if (!chiefs.ok()) return chiefs.error();
    std::memcpy(numbers.data(), chiefs.value().data(), numbers.size_bytes());
    return {};
  }

  Net& net_;
  Team& team_;
  float weight_;
  bool created_ = false;
};

inline SolverOptions options_of(const SolverParameter& param, Team& team) {
  SolverOptions options;
  options.name = "x";
  options.team = &team;
  options.share.client = team.index();
  options.share.clients = team.size();
  const float weight = contribution_weight(param, "x", options.share);
  options.make_updater = [&param, &team, weight](Net& net) {
    return std::make_unique<MeanUpdater>(param, net, team, weight);
  };
  return options;
}

struct Rows final : Observer {
  void displayed(const Measured& row) override { shown.push_back(row); }
  void tested(int net, const Measured& row) override {
    EXPECT_EQ(net, 0);
    tests.push_back(row);
  }
  std::vector<Measured> shown, tests;
};

class TeamTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_directory("team");
    make_digits(folder_ + "/data");
  }
  // Returns the small net, whose dropout, crops and running means are each member's own.
  SolverParameter param(const std::string& more = "") {
    SolverParameter made = small_solver(folder_ + "/data", folder_ + "/s", more);
    share_data(*made.mutable_net_param());
    return made;
  }
  // Returns a net without random numbers, so that a team's batches together are one machine's.
  SolverParameter plain(int batch, const std::string& more = "", int test_batch = 5) {
    SolverParameter made = param(more);
    const std::string data = "transform_param { scale: 0.01 } data_param { source: '" + folder_ +
                             "/data' backend: DATUMFILE batch_size: ";
    const std::string net =
        "name: 'plain' layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: "
        "TRAIN } " +
        data + str(batch) +
        "} } layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: TEST } " +
        data + str(test_batch) +
        R"(} } layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
                              inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
                            layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy' include { phase: TEST } }
                            layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
    *made.mutable_net_param() = parse_net(net, "plain.prototxt");
    share_data(*made.mutable_net_param());
    return made;
  }
  // Returns the params of every member after body(solver, team).
  std::vector<std::vector<float>> run(int size, const SolverParameter& param,
                                      const std::function<void(Solver&, Team&)>& body) {
    std::vector<std::vector<float>> params(static_cast<std::size_t>(size));
    const auto thrown = run_team(size, [&](Team& team) {
      Solver solver(param, options_of(param, team));
      body(solver, team);
      params[static_cast<std::size_t>(team.index())] = all_params(solver.net());
    });
    for (const std::string& error : thrown) EXPECT_EQ(error, "");
    return params;
  }
  std::string state(int iteration) const {
    return state_path(snapshot_stem(folder_ + "/s", iteration));
  }
  std::string folder_;
};

}  // namespace shoal::test
