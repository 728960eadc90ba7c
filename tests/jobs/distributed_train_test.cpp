// Tests jobs of train processes: their training and their snapshots.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shoal/proto/io.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/distributed_train.h"
#include "support/solver_rig.h"

namespace shoal::distributed_train_test {
namespace {

using test::DistributedTrain;
using test::get_file;
using test::Port;
using test::Ran;
using test::Running;

// Returns the numbers of a table of --net_outputs, without its first line and without the column of
// seconds.
std::vector<std::vector<double>> rows_of(const std::string& path) {
  std::vector<std::vector<double>> rows;
  std::istringstream file(get_file(path));
  std::string line, word;
  std::getline(file, line);
  while (std::getline(file, line)) {
    rows.emplace_back();
    std::istringstream words(line);
    for (int column = 0; std::getline(words, word, ','); ++column)
      if (column != 1) rows.back().push_back(std::stod(word));
  }
  return rows;
}

// ---- learning ----

TEST_F(DistributedTrain, TwoWorkersLearnAsOneMachineWithTwiceTheBatch) {
  const std::string more = "max_iter: 12 display: 1 test_iter: 4 test_interval: 4";
  const Ran one = test::run_program(
      alone(solver("one", plain_net(8), more), {"--net_outputs=" + folder_ + "/one"}));
  ASSERT_EQ(one.code, 0) << one.err;
  const auto two = run(2, solver("two", plain_net(4), more), {"--net_outputs=" + folder_ + "/two"});
  for (const char* const table : {".train.csv", ".test0.csv"}) {
    const auto wanted = rows_of(folder_ + "/one" + table),
               found = rows_of(folder_ + "/two" + table);
    ASSERT_EQ(found.size(), std::string(table) == ".train.csv" ? 12u : 4u);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(found[i].size(), wanted[i].size());
      for (std::size_t c = 0; c < wanted[i].size(); ++c)
        EXPECT_NEAR(found[i][c], wanted[i][c], 2e-5 * (1 + std::abs(wanted[i][c]))) << table << i;
    }
  }
  EXPECT_HAS(get_file(folder_ + "/two.netoutputs"), "\n\nIteration,time,loss,accuracy,loss,\n0,");
  EXPECT_HAS(two[0].err, "Process 0 of 2, as both; known from flags");
  EXPECT_HAS(two[0].err, "Scheme bsp; ");
  EXPECT_HAS(two[0].err, " on 2 servers, with ");
  EXPECT_HAS(two[0].err,
             "Batch 4 x workers 2 x replicas 1, x iter_size 1 = 8 items an update; the mean of all "
             "gradients is taken; 1 threads");
  EXPECT_HAS(two[0].err, "% wait, rows ");
  EXPECT_HAS(two[0].err, "Optimization Done.");
  EXPECT_EQ(two[1].err.find("Iteration"), std::string::npos) << two[1].err;
}

// Trains by factors as by the table, and on from a snapshot by the other.
TEST_F(DistributedTrain, SvbTrainsAsTheTableDoes) {
  const std::string net = plain_net(4), more = "max_iter: 12 display: 1 snapshot: 6";
  run(2, solver("table", net, more), {"--net_outputs=" + folder_ + "/table"});
  const auto ran = run(2, solver("svb", net, more),
                       {"--svb", "--explain_exchange", "--net_outputs=" + folder_ + "/svb"});
  EXPECT_HAS(ran[0].err, "Exchange: the gradients of all layers travel by FACTORS: ");
  EXPECT_HAS(ran[0].err, "  FACTORS: as the solver says");
  run(2, folder_ + "/svb.prototxt",
      {"--snapshot=" + state("svb", 6), "--net_outputs=" + folder_ + "/on"});
  run(2, folder_ + "/table.prototxt",
      {"--snapshot=" + state("table", 6), "--exchange=AUTO,ip=FACTORS",
       "--net_outputs=" + folder_ + "/svb_on"});
  const auto wanted = rows_of(folder_ + "/table.train.csv");
  for (const char* other : {"/svb", "/on", "/svb_on"}) {
    const auto found = rows_of(folder_ + other + ".train.csv");
    ASSERT_FALSE(found.empty());
    for (const auto& row : found) {
      const auto same = std::ranges::find(wanted, row[0], [](const auto& w) { return w[0]; });
      ASSERT_NE(same, wanted.end());
      EXPECT_NEAR(row.back(), same->back(), 2e-5 * (1 + std::abs(same->back()))) << other << row[0];
    }
  }
}

TEST_F(DistributedTrain, EachExchangeTrainsAsTheTableDoes) {
  const std::string net = plain_net(4), more = "max_iter: 12 display: 1 snapshot: 6";
  run(2, solver("by_table", net, more), {"--net_outputs=" + folder_ + "/by_table"});
  const auto wanted = rows_of(folder_ + "/by_table.train.csv");
  for (const char* way : {"FACTORS", "TREE", "RING", "HALVING_DOUBLING", "DIRECT", "AUTO"}) {
    SCOPED_TRACE(way);
    const auto ran = run(2, solver(way, net, more),
                         {str("--exchange=", way), "--net_outputs=" + folder_ + "/" + way});
    EXPECT_EQ(ran[0].err.find("Exchange: an iteration took") != std::string::npos,
              std::string(way) == "AUTO")
        << "beside what was predicted, where rates were measured";
    if (std::string(way) == "FACTORS") {
      EXPECT_HAS(ran[0].err, "factors of 1 layer take up to ");
    }
    run(2, folder_ + "/by_table.prototxt",
        {"--snapshot=" + state(way, 6), "--net_outputs=" + folder_ + "/on"});
    for (const std::string& other : {folder_ + "/" + way, folder_ + "/on"})
      for (const auto& row : rows_of(other + ".train.csv")) {
        const auto same = std::ranges::find(wanted, row[0], [](const auto& w) { return w[0]; });
        ASSERT_NE(same, wanted.end());
        EXPECT_NEAR(row.back(), same->back(), 2e-5 * (1 + std::abs(same->back()))) << row[0];
      }
  }
}

// Tests each record once, whether the workers divide a test or one makes it for all.
TEST_F(DistributedTrain, ATestIsOfTheWholeSet) {
  const std::string path =
      solver("tested", plain_net(4),
             "base_lr: 0 max_iter: 1 test_iter: 8 test_interval: 4 snapshot_after_train: false");
  const std::string tests = folder_ + "/tested.test0.csv";
  ASSERT_EQ(test::run_program(alone(path, {"--net_outputs=" + folder_ + "/tested"})).code, 0);
  const auto wanted = rows_of(tests);
  for (const char* const scheme : {"--scheme=bsp", "--scheme=async", "--scheme=elastic"}) {
    run(2, path, {scheme, "--net_outputs=" + folder_ + "/tested"});
    const auto found = rows_of(tests);
    ASSERT_FALSE(found.empty());
    ASSERT_EQ(found[0].size(), wanted[0].size());
    for (std::size_t c = 0; c < wanted[0].size(); ++c)
      EXPECT_NEAR(found[0][c], wanted[0][c], 2e-6) << scheme;
  }
}

TEST_F(DistributedTrain, EverySchemeLearnsAndARunInLockstepRepeatsItself) {
  const std::string more =
      "max_iter: 40 base_lr: 0.02 test_iter: 8 test_interval: 40 test_initialization: false";
  std::vector<std::string> models;
  for (const char* const scheme :
       {"--scheme=bsp", "--scheme=bsp", "--staleness=2", "--scheme=async"}) {
    const auto ran = run(2, solver("run", plain_net(4), more), {scheme});
    const std::size_t at = ran[0].err.find("accuracy = ");
    ASSERT_NE(at, std::string::npos) << ran[0].err;
    EXPECT_GE(std::stod(ran[0].err.substr(at + 11)), 0.9) << scheme;
    models.push_back(model("run", 40));
  }
  EXPECT_EQ(models[0], models[1]);
}

// Checks which process wrote which file, and sums that do not depend on times.
TEST_F(DistributedTrain, MetricsTellWhatEachWorkerDid) {
  const std::string more =
      "max_iter: 6 display: 2 test_iter: 4 test_interval: 3 snapshot_after_train: false";
  const auto ran = run(2, solver("metered", plain_net(4), more),
                       {"--metrics=" + folder_ + "/m", "--esync_log_dir=" + folder_ + "/e"});
  EXPECT_NE(ran[0].err.find("Worker 0, iterations 0 to 1: compute "), std::string::npos)
      << ran[0].err;
  for (int worker = 0; worker < 2; ++worker) {
    std::map<std::string, int> kinds;
    std::map<std::string, int> pushes;
    double end = 0, sent = 0;
    std::istringstream file(get_file(folder_ + "/m/metrics." + std::to_string(worker) + ".jsonl"));
    for (std::string text; std::getline(file, text);) {
      const auto line = nlohmann::json::parse(text);
      const std::string kind = line["kind"];
      if (kind != "clock") {
        ++kinds[kind];
        if (kind == "run") {
          EXPECT_NE(line["scheme"], "") << text;
        }
        if (kind == "test") {
          EXPECT_GE(line["outputs"]["accuracy"].get<double>(), 0) << text;
        }
        continue;
      }
      EXPECT_EQ(line["clock"], kinds[kind]++) << text;
      EXPECT_EQ(line["worker"], worker);
      EXPECT_EQ(line["samples"], 4);
      EXPECT_EQ(line["local_steps"], 1);
      EXPECT_EQ(line["drops"], 0);
      // The links send when they get to it, perhaps in a later clock.
      sent += line["bytes_sent"].get<double>();
      double parts = 0;
      for (const char* part : {"compute", "data_wait", "row_wait", "update", "other"})
        parts += line[part].get<double>();
      EXPECT_NEAR(line["time"].get<double>() - end, parts, 1e-6) << text;
      end = line["time"];
      for (const auto& [age, count] : line["staleness"]["pushes"].items())
        pushes[age] += count.get<int>();
    }
    EXPECT_EQ(kinds["clock"], 6);
    EXPECT_GT(sent, 0);
    EXPECT_TRUE(pushes.size() == 1 && pushes["0"] > 0) << "in lockstep all are of age 0";
    EXPECT_EQ(kinds["test"], worker == 0 ? 3 : 0);
    EXPECT_EQ(kinds["display"], worker == 0 ? 3 : 0);
    const std::string rounds = folder_ + "/e/worker" + std::to_string(worker);
    EXPECT_EQ(test::entries(rounds).size(), 6u);
    const auto third = nlohmann::json::parse(get_file(rounds + "/iter-3.txt"));
    EXPECT_EQ(third["time"]["0"].size(), worker == 0 ? 4u : 3u) << third;  // with an evaluation
    EXPECT_EQ(third.contains("accuracy"), worker == 0);
  }
}

TEST_F(DistributedTrain, ReplicasServersAndWorkersShareTheWork) {
  const std::string more = "max_iter: 6 display: 1";
  const Ran one = test::run_program(
      alone(solver("one", plain_net(8), more), {"--net_outputs=" + folder_ + "/one"}));
  ASSERT_EQ(one.code, 0) << one.err;
  const Ran replicas =
      test::run_program(alone(solver("replicas", plain_net(4), more),
                              {"--net_outputs=" + folder_ + "/replicas", "--num_table_threads=3"}));
  ASSERT_EQ(replicas.code, 0) << replicas.err;
  // The job has a server that is none of the workers, and one worker of two replicas.
  port_ = Port().number;
  const std::string split = solver("split", plain_net(8), more + " batch_semantics: GLOBAL");
  const auto ran = wait({test::start_program(member(0, 2, split, {"--role=server"})),
                         test::start_program(member(1, 2, split,
                                                    {"--role=worker", "--replicas=2",
                                                     "--net_outputs=" + folder_ + "/split"}))});
  for (const Ran& process : ran) EXPECT_EQ(process.code, 0) << process.err;
  const auto wanted = rows_of(folder_ + "/one.train.csv");
  for (const char* const name : {"/replicas", "/split"}) {
    const auto found = rows_of(folder_ + name + ".train.csv");
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found[i][1], wanted[i][1], 2e-5 * (1 + std::abs(wanted[i][1]))) << name << i;
  }
}

// ---- snapshots ----

TEST_F(DistributedTrain, AJobThatGoesOnEndsWithTheSameBytes) {
  const std::string fields =
      "snapshot: 5 average_loss: 3 test_iter: 3 test_interval: 4 type: 'Adam' base_lr: 0.01 "
      "max_iter: ";
  run(2, solver("whole", small_net(), fields + "10"));
  run(2, solver("half", small_net(), fields + "5"));
  const auto ran = run(2, solver("half", small_net(), fields + "10"), {"--snapshot=auto"});
  EXPECT_HAS(ran[0].err, "Resuming from " + state("half", 5));
  EXPECT_EQ(model("half", 10), model("whole", 10));
  EXPECT_EQ(read_run_state(run_path(snapshot_stem(folder_ + "/half", 10))).member_size(), 1);
  // Continues on other numbers of machines.
  for (const int size : {1, 3}) {
    const std::string name = "on" + std::to_string(size);
    const auto other =
        run(size, solver(name, small_net(), fields + "10"), {"--snapshot=" + state("half", 5)});
    EXPECT_HAS(other[0].err,
               "The snapshot is from 2 workers, and now there are " + std::to_string(size));
    EXPECT_EQ(why_damaged(snapshot_stem(folder_ + "/" + name, 10)), "");
  }
}

// Sends a SIGUSR1 to one process, process 0 or another.
TEST_F(DistributedTrain, ASignalToOneIsASnapshotOfAllAndTheEndOfAll) {
  for (const std::size_t rank : {1u, 0u}) {
    const std::string name = str("signal", rank);
    const std::vector<Running> job =
        start(3, solver(name, plain_net(4), "max_iter: 100000000 display: 1"));
    ASSERT_TRUE(test::wait_for_text(job[0], "Iteration 5 ("));
    ::kill(job[rank].process, SIGUSR1);
    for (const Ran& process : wait(job)) EXPECT_EQ(process.code, 75) << process.err;
    const std::string found = newest_snapshot(folder_ + "/" + name);
    ASSERT_NE(found, "");
    EXPECT_GE(read_solver_state(found).iter(), 5);
    EXPECT_EQ(read_run_state(run_path(found.substr(0, found.rfind('.')))).member_size(), 2);
  }
}

// ---- what cannot be ----

}  // namespace
}  // namespace shoal::distributed_train_test
