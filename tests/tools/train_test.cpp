// The tool train as a process: flags, exit codes, signals, files.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/base/text.h"
#include "shoal/data/record.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/pattern.h"
#include "support/solver_rig.h"
#include "support/train_tool.h"

namespace shoal::tools_train_test {
namespace {

using test::get_file;
using test::put_file;
using test::Ran;
using test::Running;
using test::TrainTool;
using test::wait_for_text;

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kDeadline{120'000};  // for what takes a moment on an idle machine

// Waits for the process's end; false at the deadline.
bool wait_for_end(const Running& running, milliseconds deadline) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, running.process, 0));
  pollfd events{process, POLLIN, 0};
  const bool ended = ::poll(&events, 1, static_cast<int>(deadline.count())) > 0;
  ::close(process);
  return ended;
}

// ---- signals ----

TEST_F(TrainTool, ATermIsASnapshotAndTheRunGoesOnFromIt) {
  int number = 0;
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string prefix = "run" + std::to_string(number++);
    const Running running = test::start_program(
        train_command(solver(prefix, "max_iter: 100000000 display: 1 average_loss: 3")));
    ASSERT_TRUE(wait_for_text(running, "Iteration 5 ("));
    EXPECT_EQ(get_file(str("/proc/", running.process, "/comm")), "train\n") << "in ps and top";
    EXPECT_HAS(get_file(str("/proc/", running.process, "/cmdline")), tool("train"));
    ::kill(running.process, signal);
    ASSERT_TRUE(wait_for_end(running, kDeadline));
    EXPECT_EQ(test::wait_for(running).code, 75);
    const std::string found = newest_snapshot(folder_ + "/" + prefix);
    ASSERT_NE(found, "");
    const int stopped = read_solver_state(found).iter();
    EXPECT_GE(stopped, 6);

    const std::string end =
        " max_iter: " + std::to_string(stopped + 5) + " display: 1 average_loss: 3";
    const Ran resumed = train(
        solver(prefix, end), {"--snapshot=auto", "--weights=" + model_path(stem(prefix, stopped))});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_HAS(resumed.err, "Resuming from " + found);
    EXPECT_HAS(resumed.err, "and its weights; those of --weights or the solver are not used");
    const Ran whole = train(solver("whole", end));
    EXPECT_EQ(whole.code, 0) << whole.err;
    EXPECT_EQ(get_file(model_path(stem(prefix, stopped + 5))),
              get_file(model_path(stem("whole", stopped + 5))));
  }
}

TEST_F(TrainTool, AnInterruptStopsAHangupSnapshotsAndBothCanBeToldOtherwise) {
  const std::string endless = "max_iter: 100000000 display: 1 snapshot_after_train: true";
  {
    const Running running = test::start_program(train_command(solver("int", endless)));
    ASSERT_TRUE(wait_for_text(running, "Iteration 2 ("));
    ::kill(running.process, SIGHUP);
    ASSERT_TRUE(wait_for_text(running, "Snapshotting solver state"));
    ::kill(running.process, SIGINT);
    ASSERT_TRUE(wait_for_end(running, kDeadline));
    const Ran ran = test::wait_for(running);
    EXPECT_EQ(ran.code, 0);
    EXPECT_HAS(ran.err, "Optimization stopped early.");
    EXPECT_NE(newest_snapshot(folder_ + "/int"), "");
  }
  const Running running = test::start_program(train_command(
      solver("other", endless), {"--sigint_effect=snapshot", "--sighup_effect=none"}));
  ASSERT_TRUE(wait_for_text(running, "Iteration 2 ("));
  ::kill(running.process, SIGHUP);
  ::kill(running.process, SIGINT);
  ASSERT_TRUE(wait_for_text(running, "Snapshotting solver state"));
  ::kill(running.process, SIGTERM);
  ASSERT_TRUE(wait_for_end(running, kDeadline));
  EXPECT_EQ(test::wait_for(running).code, 75);
}

TEST_F(TrainTool, ASecondInterruptLeavesAtOnce) {
  put_file(folder_ + "/net.prototxt",  // one iteration takes long
           "layer { name: 'in' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 4000 "
           "dim: 3000 } data_filler { value: 1 } } }\n"
           "layer { name: 'ip1' type: 'InnerProduct' bottom: 'x' top: 'ip1' inner_product_param { "
           "num_output: 3000 } }\n"
           "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2' loss_weight: 1 "
           "inner_product_param { num_output: 3000 } }\n");
  const Running running = test::start_program(train_command(solver("slow", "max_iter: 100000000")));
  ASSERT_TRUE(wait_for_text(running, "Solving"));
  for (int i = 0; i < 10000 && !wait_for_end(running, milliseconds(20)); ++i)
    ::kill(running.process, SIGINT);
  EXPECT_EQ(test::wait_for(running).code, 128 + SIGINT);
}

// ---- snapshots ----

TEST_F(TrainTool, AFullDiskEndsWithNineAndTheOldSnapshotIsWhole) {
  put_file(folder_ + "/net.prototxt",  // a model of 2 MB
           "layer { name: 'in' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 2 dim: "
           "500 } data_filler { value: 1 } } }\n"
           "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' loss_weight: 1e-3 "
           "inner_product_param { num_output: 1000 } }\n");
  const std::string file = solver("full", "max_iter: 4 snapshot: 2");
  ASSERT_EQ(train(file).code, 0);
  const std::string old = get_file(model_path(stem("full", 4)));
  const std::string more = solver("full", "max_iter: 8 snapshot: 2");
  const Ran ran = test::run_program(train_command(more, {"--snapshot=auto"}), 1'000'000);
  EXPECT_EQ(ran.code, 9) << ran.err;
  EXPECT_HAS(ran.err, "cannot write " + model_path(stem("full", 6)));
  EXPECT_EQ(newest_snapshot(folder_ + "/full"), state_path(stem("full", 4)));
  EXPECT_EQ(why_damaged(stem("full", 4)), "");
  EXPECT_EQ(get_file(model_path(stem("full", 4))), old);
  for (const std::string& name : test::entries(folder_))
    EXPECT_EQ(name.find("iter_6"), std::string::npos) << name;
  EXPECT_EQ(train(more, {"--snapshot=auto"}).code, 0) << "with room again";
}

TEST_F(TrainTool, AFullDiskUnderNetOutputsEndsWithNineAndAMissingFolderWithTwo) {
  const std::string file = solver("outputs", "max_iter: 1");
  ASSERT_EQ(::symlink("/dev/full", (folder_ + "/o.train.csv").c_str()), 0);
  const Ran full = train(file, {"--net_outputs=" + folder_ + "/o"});
  EXPECT_EQ(full.code, 9) << full.err;
  EXPECT_HAS(full.err, "cannot write /dev/full: No space left on device");
  EXPECT_EQ(train(file, {"--net_outputs=" + folder_ + "/nowhere/o"}).code, 2);
}

TEST_F(TrainTool, TheStateOfPoseidonsFirstThreadIsTakenForAll) {
  ASSERT_EQ(train(solver("p", "max_iter: 3")).code, 0);
  const std::string state = state_path(stem("p", 3));
  fs::rename(state, state + ".0.0");
  fs::remove(run_path(stem("p", 3)));
  const Ran ran = train(solver("p", "max_iter: 5"), {"--snapshot=" + state});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, state + " does not exist; all workers start from " + state +
                          ".0.0, which Poseidon's client 0");
  EXPECT_HAS(ran.err, "Resuming from " + state + ".0.0");
  EXPECT_HAS(ran.err, "p_iter_5.caffemodel");
}

TEST_F(TrainTool, AnIncompleteSnapshotIsPassedOverWithAWarning) {
  ASSERT_EQ(train(solver("part", "max_iter: 6 snapshot: 3")).code, 0);
  fs::remove(run_path(stem("part", 6)));
  const Ran ran = train(solver("part", "max_iter: 7"), {"--snapshot=auto"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err,
             stem("part", 6) + " is not whole and is skipped: " + run_path(stem("part", 6)));
  EXPECT_HAS(ran.err, "Resuming from " + state_path(stem("part", 3)));
  for (const int n : {3, 7}) fs::resize_file(model_path(stem("part", n)), 10);
  const std::vector<std::string> before = test::entries(folder_);
  const Ran none = train(solver("part", "max_iter: 7"), {"--snapshot=auto"});
  EXPECT_EQ(none.code, 3) << none.err;
  for (const int n : {3, 6, 7}) EXPECT_HAS(none.err, "\n  " + stem("part", n) + ": ");
  EXPECT_EQ(test::entries(folder_), before);
}

// ---- exit codes ----

TEST_F(TrainTool, MistakesHaveTheirExitCodesAndWords) {
  const std::string good = solver("good", "max_iter: 2");
  ASSERT_EQ(train(good).code, 0);
  const std::string model = model_path(stem("good", 2)), state = state_path(stem("good", 2));
  const struct {
    std::vector<std::string> more;
    std::string solver;
    int code;
    std::string words;
  } cases[] = {
      {{"--solvr=x"}, good, 2, "did you mean --solver?"},
      {{"word"}, good, 2, "'word' is not a flag"},
      {{"--sigint_effect=die"}, good, 2, "--sigint_effect=die: known are stop, snapshot and none"},
      {{"--snapshot=" + state, "--weights=" + model}, good, 2, " exclude each other"},
      {{"--gpu=77"}, good, 5, "GPU 77 cannot be used"},
      {{"--snapshot=" + model}, good, 3, "give it to --weights"},
      {{"--weights=" + state}, good, 3, "give it to --snapshot"},
      {{"--weights=" + folder_ + "/none"}, good, 3, "cannot open " + folder_ + "/none"},
      {{}, folder_ + "/none.prototxt", 3, "cannot open " + folder_ + "/none.prototxt"},
      {{}, solver("bad", "max_iter: 2 momentun: 0.9"), 3, "momentum"},
      {{},
       solver("far", "max_iter: 2 snapshot_prefix: '" + model + "/x'"),
       9,
       "no snapshot could be written"},
      {{}, solver("type", "max_iter: 2 type: 'Adagrat'"), 3, "did you mean 'AdaGrad'?"},
      {{},
       solver("nan", "max_iter: 200 base_lr: 1e30"),
       7,
       "is not finite; the first that is not: "},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.words);
    const Ran ran = train(c.solver, c.more);
    EXPECT_EQ(ran.code, c.code) << ran.err;
    EXPECT_HAS(ran.err, c.words);
    EXPECT_EQ(ran.err.find("Starting Optimization") != std::string::npos, c.code == 7)
        << "all else is found at the start";
  }
  // Machines with a GPU would train on it.
  if (test::run_program({tool("device_query")}).out.starts_with("no GPU: ")) {
    const std::string gpu = solver("gpu", "max_iter: 2 solver_mode: GPU");
    const Ran refused = train(gpu);
    EXPECT_EQ(refused.code, 5) << refused.err;
    EXPECT_HAS(refused.err, "solver_mode is GPU. GPU 0 cannot be used: ");
    EXPECT_HAS(refused.err, "--cpu_fallback or --gpu=-1 computes on the CPU");
    EXPECT_HAS(train(gpu, {"--cpu_fallback"}).err, "solver_mode is GPU, but no GPU can be used");
    EXPECT_EQ(train(gpu, {"--gpu=-1"}).code, 0);
    const Ran two = train(solver("gpus", "max_iter: 2 solver_mode: GPU device_id: '0,1'"));
    EXPECT_EQ(two.code, 5) << two.err;
    EXPECT_HAS(two.err, "solver_mode is GPU. GPU 0 cannot be used: ");
    test::put_file(folder_ + "/machines", "127.0.0.1 gpus=3");
    const std::string cpu = solver("cpu", "max_iter: 2"),
                      machines = "--machinefile=" + folder_ + "/machines";
    const Ran third = train(cpu, {machines});
    EXPECT_EQ(third.code, 5) << third.err;
    EXPECT_HAS(third.err, "The machinefile has gpus=3. GPU 3 cannot be used: ");
    EXPECT_EQ(train(cpu, {machines, "--gpu=-1"}).code, 0);
    test::put_file(folder_ + "/machines", "127.0.0.1 gpus=0,1");
    EXPECT_HAS(train(cpu, {machines}).err, "The machinefile has gpus=0,1. GPU 0 cannot be used: ");
    EXPECT_HAS(train(cpu, {"--gpu=all"}).err, "--gpu=all: no GPU can be used: ");
    const Ran twice = train(cpu, {"--gpu=1,1"}), word = train(cpu, {"--gpu=0,x"});
    EXPECT_EQ(twice.code, 2) << twice.err;
    EXPECT_HAS(twice.err, "--gpu=1,1: GPU 1 is given twice, and each replica needs one");
    EXPECT_EQ(word.code, 2) << word.err;
    EXPECT_HAS(word.err, "--gpu=0,x: 'x' is not the number of a GPU");
  }
  const Ran none = test::run_program({tool("train")});
  EXPECT_EQ(none.code, 2);
  EXPECT_HAS(none.err, "--solver");
  fs::remove(folder_ + "/data");
  const Ran no_data = train(good);
  EXPECT_EQ(no_data.code, 4) << no_data.err;
  EXPECT_HAS(no_data.err, folder_ + "/data");
}

TEST_F(TrainTool, PhasesMayStandOnTheCommandLine) {
  const std::string file = solver("hybrid", "max_iter: 9 snapshot: 100");
  const auto hybrid = [&](const std::string& phases, std::vector<std::string> more = {}) {
    more.push_back("--v=1");
    more.push_back("--hybrid");
    for (const std::string& word : split(phases, ' ')) more.push_back(word);
    return train(file, more);
  };
  const Ran ran = hybrid(
      "=maxIter 3 =sync == ==maxIter 2 =lr 0.125 =momentum 0.5 =batch 3 "
      "=movingRate 0.3",
      {"--train=4"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "scheme {\n  type: \"local_steps\"\n  iterations: 3\n  local_steps: 4\n}");
  for (const char* words : {"type: \"elastic\"", "moving_rate: 0.3", "iterations: 2",
                            "base_lr: 0.125", "momentum: 0.5", "batch_size: 3"})
    EXPECT_HAS(ran.err, words);
  EXPECT_HAS(ran.err, "hybrid_iter_5.caffemodel") << "once through the list, not to max_iter";
  EXPECT_HAS(ran.err, "Batch 3 x iter_size 1");
  EXPECT_HAS(hybrid("=maxIter 2 == =maxIter 1", {"--maxIter=4"}).err, "hybrid_iter_4.caffemodel");
  const Ran untested = hybrid("=maxIter 2 =test 0");
  EXPECT_EQ(untested.code, 0) << untested.err;
  EXPECT_HAS(untested.err, "type: \"async\"");
  const struct {
    std::string phases, words;
  } cases[] = {
      {"=maxIter 2 == == =maxIter 3", "--hybrid: phase 2: it is empty"},
      {"=maxIter 2 ==", "--hybrid: phase 2: it is empty"},
      {"=maxIter 2 == =sync", "--hybrid: phase 2: it has no =maxIter"},
      {"=maxIter 2 =wedout 3", "--hybrid: phase 1: there is no option =wedout"},
      {"=maxIter 2 =weedout", "--hybrid: phase 1: =weedout has no value"},
      {"=maxIter 2 3", "--hybrid: phase 1: '3' is no option"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.phases);
    const Ran refused = hybrid(c.phases);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_HAS(refused.err, c.words);
  }
}

TEST_F(TrainTool, ATestOfNoBatchesIsNone) {
  const Ran none = train(solver("none", "max_iter: 2 test_iter: 0 test_interval: 1"));
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_HAS(none.err, "none.prototxt: test_iter is 0: test net #0 is left out");
  EXPECT_EQ(none.err.find("Test net output"), std::string::npos);
  EXPECT_EQ(none.err.find("test_iter is not"), std::string::npos) << "one line about it";
  const Ran second = train(solver("second",
                                  "max_iter: 2 test_iter: 0 test_iter: 8 test_interval: 1 "
                                  "test_state { stage: 'a' } test_state { stage: 'b' }"),
                           {"--v=1"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_HAS(second.err, "Test net output #0: accuracy");
  EXPECT_EQ(train(solver("off", "max_iter: 2 test_iter: 0")).code, 0) << "no test_interval either";
}

TEST_F(TrainTool, ASolverMayNameTheSourcesOfItsNet) {
  const std::string end = "max_iter: 3 display: 1 test_iter: 8 test_interval: 3";
  const auto numbers = [](const std::string& log) {
    std::string found;
    for (const test::Match& match : test::matches_in(log, "(?:, loss = |Test net output ).*"))
      found += match[0] + "\n";
    return found;
  };
  const Ran plain = train(solver("plain", end));
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_HAS(numbers(plain.err), "accuracy");

  // The net says LMDB, and its source is nowhere.
  const std::string data = folder_ + "/data";
  std::string net = test::small_net("/no/such/data");
  for (std::size_t at; (at = net.find("DATUMFILE")) != std::string::npos;)
    net.replace(at, 9, "LMDB");
  put_file(folder_ + "/net.prototxt", net);
  const std::string train_source = " train_source: '" + data + "'";
  const std::string file = solver("named", end + train_source + " test_source: '" + data + "'");
  const Ran named = train(file);
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(numbers(named.err), numbers(plain.err));
  const Ran half = train(solver("half", end + train_source));
  EXPECT_EQ(half.code, 4) << half.err;
  EXPECT_HAS(half.err, "/no/such/data");
  EXPECT_HAS(train(file, {"--train_source=/other/train"}).err, "/other/train");
  EXPECT_HAS(train(file, {"--test_source=/other/test"}).err, "/other/test");

  const Ran test = test::run_program({tool("test"), "--model=" + folder_ + "/net.prototxt",
                                      "--weights=" + model_path(stem("named", 3)), "--iterations=8",
                                      "--source=" + data});
  EXPECT_EQ(test.code, 0) << test.err;
  EXPECT_HAS(test.err, "Batch 7, accuracy = ");

  put_file(folder_ + "/net.prototxt", "layer { name: 'x' type: 'Input' top: 'x' }");
  const Ran none = train(file);
  EXPECT_EQ(none.code, 3) << none.err;
  EXPECT_HAS(none.err, "train_source is given, but net '' has no layer that reads a source");
}

TEST_F(TrainTool, WeightsStartARunAndStagesChooseLayers) {
  ASSERT_EQ(train(solver("a", "max_iter: 3")).code, 0);
  const Ran ran =
      train(solver("b", "max_iter: 0 test_iter: 8 test_interval: 1"),
            {"--weights=" + model_path(stem("a", 3)), "--stage=deep,wide", "--level=2", "--v=1"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "Finetuning from " + model_path(stem("a", 3)));
  EXPECT_HAS(ran.err, "stage: \"wide\"");
  EXPECT_HAS(ran.err, "level: 2");
}

}  // namespace
}  // namespace shoal::tools_train_test
