// Jobs of real train processes on this machine: what they learn, save and say, and how they end.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shoal/base/file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::distributed_train_test {
namespace {

using test::get_file;
using test::put_file;
using test::Ran;
using test::Running;

// A listener on a port of this machine that nobody else had.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(socket_, 1);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    number = ntohs(address.sin_port);
  }
  ~Port() { ::close(socket_); }
  Port(const Port&) = delete;
  int number = 0;

 private:
  int socket_;
};

// The numbers of a table of --net_outputs, without its first line and without the column of
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

class DistributedTrain : public testing::Test {
 protected:
  void SetUp() override {
    if (test::tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = test::fresh_directory("distributed");
    test::make_digits(folder_ + "/data");
  }
  // No chance in it: a job's batches together are one machine's.
  std::string plain_net(int batch) const {
    const std::string data = "transform_param { scale: 0.01 } data_param { source: '" + folder_ +
                             "/data' backend: DATUMFILE shared_file_system: true batch_size: ";
    return "name: 'plain' layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { "
           "phase: TRAIN } " +
           data + std::to_string(batch) +
           "} } layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: TEST "
           "} " +
           data +
           R"(5 } } layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
             inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
           layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy' include { phase: TEST } }
           layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
  }
  // The same, of data that is cut up.
  std::string net_in_parts(int batch) const {
    std::string net = plain_net(batch);
    for (std::size_t at; (at = net.find("shared_file_system: true")) != std::string::npos;)
      net.erase(at, 24);
    return net;
  }
  // Dropout, crops and running means, each process with its own.
  std::string small_net() const {
    NetParameter net = parse_net(test::small_net(folder_ + "/data"), "small");
    test::share_data(net);
    clear_origins(net);
    return to_text(net);
  }
  // Writes a solver with its net; snapshots go to `name` in the test's folder. Returns its path.
  std::string solver(const std::string& name, const std::string& net,
                     const std::string& more) const {
    const std::string path = folder_ + "/" + name + ".prototxt";
    put_file(path + ".net", net);
    const std::string rate = more.find("base_lr:") == std::string::npos ? "base_lr: 0.05 " : "";
    put_file(
        path,
        "net: '" + path + ".net' " + rate +
            "momentum: 0.9 lr_policy: 'fixed' random_seed: 3 solver_mode: CPU snapshot_prefix: '" +
            folder_ + "/" + name + "' " + more);
    return path;
  }
  static std::vector<std::string> alone(const std::string& solver,
                                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {test::tools_dir() + "/train", "--solver=" + solver,
                                        "--threads=1"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  // The command of one process of a job on this machine.
  std::vector<std::string> member(int rank, int size, const std::string& solver,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = alone(
        solver, {"--client_id=" + std::to_string(rank), "--num_clients=" + std::to_string(size),
                 "--master=127.0.0.1:" + std::to_string(port_), "--start_timeout=60"});
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::vector<Running> start(int size, const std::string& solver,
                             const std::vector<std::string>& more = {}) {
    port_ = Port().number;
    std::vector<Running> job;
    for (int rank = 0; rank < size; ++rank)
      job.push_back(test::start_program(member(rank, size, solver, more)));
    return job;
  }
  static std::vector<Ran> wait(const std::vector<Running>& job) {
    std::vector<Ran> ran;
    for (const Running& process : job) ran.push_back(test::wait_for(process));
    return ran;
  }
  // A job that is to end well.
  std::vector<Ran> run(int size, const std::string& solver,
                       const std::vector<std::string>& more = {}) {
    std::vector<Ran> ran = wait(start(size, solver, more));
    for (const Ran& process : ran) EXPECT_EQ(process.code, 0) << process.err;
    return ran;
  }
  std::string model(const std::string& name, int iteration) const {
    return get_file(model_path(snapshot_stem(folder_ + "/" + name, iteration)));
  }
  std::string state(const std::string& name, int iteration) const {
    return state_path(snapshot_stem(folder_ + "/" + name, iteration));
  }

  std::string folder_;
  int port_ = 0;
};

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

// By factors as by the table, and on from a snapshot by the other.
TEST_F(DistributedTrain, SvbTrainsAsTheTableDoes) {
  const std::string net = plain_net(4), more = "max_iter: 12 display: 1 snapshot: 6";
  run(2, solver("table", net, more), {"--net_outputs=" + folder_ + "/table"});
  const auto ran = run(2, solver("svb", net, more),
                       {"--svb", "--explain_exchange", "--net_outputs=" + folder_ + "/svb"});
  EXPECT_HAS(ran[0].err, "Exchange: the gradients of ip travel as factors: ");
  EXPECT_HAS(ran[0].err, "  factors: as the solver says");
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

// Each record once, whether the workers divide a test or one makes it for all.
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

// Which process wrote which file, and sums that must come out whatever the times were.
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
      // when the links get to it, perhaps in a later clock
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
  // A server that is none of the workers, and one worker of two replicas.
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
  // And on other numbers of machines.
  for (const int size : {1, 3}) {
    const std::string name = "on" + std::to_string(size);
    const auto other =
        run(size, solver(name, small_net(), fields + "10"), {"--snapshot=" + state("half", 5)});
    EXPECT_HAS(other[0].err,
               "The snapshot is of 2 workers, and now there are " + std::to_string(size));
    EXPECT_EQ(why_damaged(snapshot_stem(folder_ + "/" + name, 10)), "");
  }
}

// A SIGUSR1 to any, and a SIGTERM to the one that cannot be spared.
TEST_F(DistributedTrain, ASignalToOneIsASnapshotOfAllAndTheEndOfAll) {
  for (const auto& [rank, number] : {std::pair{1, SIGUSR1}, {0, SIGTERM}}) {
    const std::string name = "signal" + std::to_string(number);
    const std::vector<Running> job =
        start(3, solver(name, plain_net(4), "max_iter: 100000000 display: 1"));
    ASSERT_TRUE(test::wait_for_text(job[0], "Iteration 5 ("));
    ::kill(job[static_cast<std::size_t>(rank)].process, number);
    for (const Ran& process : wait(job)) EXPECT_EQ(process.code, 75) << process.err;
    const std::string found = newest_snapshot(folder_ + "/" + name);
    ASSERT_NE(found, "");
    EXPECT_GE(read_solver_state(found).iter(), 5);
    EXPECT_EQ(read_run_state(run_path(found.substr(0, found.rfind('.')))).member_size(), 2);
  }
}

// ---- what cannot be ----

TEST_F(DistributedTrain, AloneNoPortIsOpened) {
  const Running running =
      test::start_program(alone(solver("local", plain_net(4), "max_iter: 100000000 display: 1")));
  ASSERT_TRUE(test::wait_for_text(running, "Iteration 3 ("));
  int sockets = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(running.process) + "/fd")) {
    std::error_code error;
    sockets += std::filesystem::read_symlink(entry.path(), error).string().starts_with("socket:");
  }
  EXPECT_EQ(sockets, 0);
  ::kill(running.process, SIGTERM);
  EXPECT_EQ(test::wait_for(running).code, 75);
}

TEST_F(DistributedTrain, WhatTheCommandLineGetsWrongIsNamed) {
  const std::string good = solver("good", plain_net(4), "max_iter: 2");
  put_file(folder_ + "/twice", "0 127.0.0.1 29600\n1 127.0.0.1 29600\n");
  port_ = 29600;
  const struct {
    std::vector<std::string> flags;
    int code;
    const char* words;
  } cases[] = {
      {{"--scheme=bps"}, 3, "there is no 'bps'; did you mean 'bsp'?"},
      {{"--staleness=-1"}, 2, "--staleness=-1: it is a number of clocks, 0 or more, or unbounded"},
      {{"--scheme=bsp", "--staleness=2"}, 2, "--scheme=bsp and --staleness=2 exclude each other"},
      {{"--movingRate=0.5", "--moving_rate=0.6"},
       2,
       "--moving_rate=0.6 and --movingRate=0.5 are one flag with two names, and differ"},
      {{"--backup=2", "--payload=deltas"},
       2,
       "--payload=deltas; did you mean 'delta'? Known: gradient, delta, weights"},
      {{"--backup=1", "--weighting=inverse"},
       3,
       "sync_backup has no 'weighting', less weight for a stale update"},
      {{"--groups=0|0"}, 3, "worker 0 is there twice"},
      {{"--staleness=1", "--table_staleness=2"},
       2,
       "--staleness=1 and --table_staleness=2 are one flag with two names, and differ"},
      {{"--consistency_model=LocalOOC"},
       2,
       "--consistency_model=LocalOOC: known are SSP, SSPPush and SSPAggr"},
      {{"--replicas=2", "--num_table_threads=2"},
       2,
       "--replicas=2 and --num_table_threads=2 exclude each other"},
      {{"--batch_semantics=EACH"}, 2, "--batch_semantics=EACH: known are PER_WORKER and GLOBAL"},
      {{"--batch_semantics=GLOBAL", "--replicas=5"},
       3,
       "the batch_size of layer 'data', 4, is less than the 5 nets that divide it"},
      {{"--hostfile=" + folder_ + "/none", "--client_id=0"}, 2, "/none"},
      {{"--hostfile=" + folder_ + "/twice", "--client_id=0"}, 2, "29600"},
      {{"--client_id=2", "--num_clients=2", "--master=127.0.0.1:1"}, 2, "rank 2"},
      {{"--client_id=0", "--num_clients=2"}, 2, "no address of process 0 is known"},
      {{"--client_id=0", "--num_clients=2", "--master=127.0.0.1:29600", "--port=29601"},
       2,
       "others look for it at 127.0.0.1:29600"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--interface=none0"},
       2,
       "--interface=none0: there is no interface"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--port_range=5"},
       2,
       "--port_range=5: two ports with a dash are wanted"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--send_order=best"},
       2,
       "--send_order=best: known are priority and arrival"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600",
        "--token_file=" + folder_ + "/none"},
       2,
       "/none"},
  };
  for (const auto& wrong : cases) {
    const Ran ran = test::run_program(alone(good, wrong.flags));
    EXPECT_EQ(ran.code, wrong.code) << wrong.words << ": " << ran.err;
    EXPECT_HAS(ran.err, wrong.words);
  }
  const Ran negative = test::run_program(
      alone(solver("negative", plain_net(4), "scheme { type: 'ssp' staleness: -1 }")));
  EXPECT_EQ(negative.code, 3);
  EXPECT_HAS(negative.err, "staleness is -1; it must be a whole number of clocks, 0 or more");
  const Ran two = test::run_program(
      alone(solver("schemes", plain_net(4), "scheme { } scheme { type: 'async' }")));
  EXPECT_HAS(two.err, "of several schemes all but the last need them");
}

TEST_F(DistributedTrain, PoseidonsTuningFlagsAreTakenAndNamed) {
  const Ran ran = test::run_program(
      alone(solver("good", plain_net(4), "max_iter: 1"),
            {"--resume_clock=7", "--num_rows_per_table=256", "--init_thread_access_table=true",
             "--consistency_model=SSPPush", "--table_staleness=0"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err,
             "Taken and without effect, since Shoal has nothing that they tune: "
             "--num_rows_per_table, --init_thread_access_table\n");
  EXPECT_HAS(ran.err, "--resume_clock has no effect: nothing is resumed; --snapshot=");
}

TEST_F(DistributedTrain, AnotherSolverOnOneRankEndsAllWithTheFieldNamed) {
  port_ = Port().number;
  const auto ran =
      wait({test::start_program(member(0, 2, solver("a", plain_net(4), "max_iter: 3"))),
            test::start_program(
                member(1, 2, solver("b", plain_net(4), "max_iter: 3 weight_decay: 0.5")))});
  for (const Ran& process : ran) {
    EXPECT_EQ(process.code, 3) << process.err;
    EXPECT_HAS(process.err, "weight_decay: 0.5");
  }
}

TEST_F(DistributedTrain, AWrongTokenIsRefused) {
  port_ = Port().number;
  put_file(folder_ + "/token0", "one\n");
  put_file(folder_ + "/token1", "two\n");
  const std::string good = solver("good", plain_net(4), "max_iter: 3");
  const auto ran =
      wait({test::start_program(
                member(0, 2, good, {"--token_file=" + folder_ + "/token0", "--start_timeout=5"})),
            test::start_program(
                member(1, 2, good, {"--token_file=" + folder_ + "/token1", "--start_timeout=5"}))});
  EXPECT_EQ(ran[0].code, 8) << ran[0].err;
  EXPECT_EQ(ran[1].code, 6) << ran[1].err;
  EXPECT_HAS(ran[1].err, "token");
}

TEST_F(DistributedTrain, ATakenPortIsNamed) {
  const Port taken;
  port_ = taken.number;
  const Ran ran = test::run_program(member(0, 2, solver("good", plain_net(4), "max_iter: 3")));
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_HAS(ran.err, std::to_string(port_));
  EXPECT_HAS(ran.err, "in use");
  const Ran range = test::run_program(member(0, 2, solver("good", plain_net(4), "max_iter: 3"),
                                             {str("--port_range=", port_, "-", port_)}));
  EXPECT_EQ(range.code, 2) << range.err;
  EXPECT_HAS(range.err, "none of these ports is free");
}

TEST_F(DistributedTrain, AJobNeedsAServerAndAWorker) {
  for (const auto& [role, words] : {std::pair{"worker", "server"}, {"server", "worker"}}) {
    const auto ran =
        wait(start(2, solver("good", plain_net(4), "max_iter: 3"), {str("--role=", role)}));
    for (const Ran& process : ran) {
      EXPECT_NE(process.code, 0);
      EXPECT_HAS(process.err, words);
    }
  }
}

TEST_F(DistributedTrain, AWorkerReadsThePartOfItsClientId) {
  // Client 0 is a server, so that worker 0 is client 1.
  for (const char* part : {"_1", "_2"})
    std::filesystem::copy_file(folder_ + "/data", folder_ + "/data" + part);
  const std::string file = solver("server_first", net_in_parts(4), "max_iter: 3");
  port_ = Port().number;
  std::vector<Running> job = {test::start_program(member(0, 3, file, {"--role=server"}))};
  for (const int rank : {1, 2})
    job.push_back(test::start_program(member(rank, 3, file, {"--role=worker"})));
  for (const Ran& process : wait(job)) EXPECT_EQ(process.code, 0) << process.err;
}

TEST_F(DistributedTrain, AnErrorOfOneIsTheEndOfAll) {
  // Worker 1's part of the data is not there.
  std::filesystem::copy_file(folder_ + "/data", folder_ + "/data_0");
  const auto ran = wait(start(2, solver("parts", net_in_parts(4), "max_iter: 3")));
  EXPECT_EQ(ran[1].code, 4) << ran[1].err;
  EXPECT_HAS(ran[1].err, folder_ + "/data_1, the part of client 1 of 2, does not exist");
  EXPECT_NE(ran[0].code, 0);
  EXPECT_HAS(ran[0].err, folder_ + "/data_1");
}

}  // namespace
}  // namespace shoal::distributed_train_test
