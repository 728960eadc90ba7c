// Pipes where the tools expect files: nothing waits for the other end for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::test::pipes_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class Pipes : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("pipes");
    make_digits(at("set"));
    put_file(at("net.prototxt"), small_net(at("set")));
    put_file(at("solver.prototxt"), "net: '" + at("net.prototxt") +
                                        "' base_lr: 0.05 lr_policy: 'fixed' max_iter: 2 "
                                        "snapshot_prefix: '" +
                                        at("s") + "'");
    make_pipe("pipe");
  }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  std::string make_pipe(const std::string& name) const {
    fs::remove(at(name));
    EXPECT_EQ(::mkfifo(at(name).c_str(), 0600), 0);
    return at(name);
  }

  // The tool is killed, with code 137, if it still waits after what any wait of its own lasts.
  static Words tool(const std::string& name, const Words& words) {
    Words command = {"/usr/bin/env", "timeout", "--signal=KILL", "40", tools_dir() + "/" + name};
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }
  Words training(const std::string& flag) const {
    return tool("train", {"--solver=" + at("solver.prototxt"), "--threads=1", flag});
  }
  static void expect_refusal(const Running& running, int code, const std::string& words) {
    const Ran ran = wait_for(running);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_HAS(ran.err, words);
  }

  std::string folder_;
};

TEST_F(Pipes, WhereFilesAreReadAreRefused) {
  const std::string pipe = at("pipe"), no_file = pipe + " is a pipe, and a regular file is needed";
  const std::string lasting = pipe + ", a pipe: nothing came for 10 s";
  const struct {
    Words command;
    int code;
    std::string words;
  } cases[] = {
      {training("--weights=" + pipe), 3, no_file},
      {training("--snapshot=" + pipe), 3, no_file},
      {tool("upgrade_net_proto_binary", {pipe, at("out")}), 3, no_file},
      {tool("upgrade_proto", {pipe, at("out")}), 3, lasting},
      {tool("convert_mnist", {pipe, pipe, at("out")}), 4, lasting},
  };
  std::vector<Running> running;
  for (const auto& c : cases) running.push_back(start_program(c.command));
  for (std::size_t i = 0; i < running.size(); ++i) {
    SCOPED_TRACE(i);
    expect_refusal(running[i], cases[i].code, cases[i].words);
  }
  EXPECT_FALSE(file_exists(at("out")));
}

// A trainer that reads its solver has no handlers yet.
TEST_F(Pipes, ASignalAtTheStartIsKeptForTheTraining) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string solver = make_pipe("solver");
    const Running running =
        start_program({tools_dir() + "/train", "--solver=" + solver, "--threads=1"});
    int pipe = -1;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (pipe < 0 && std::chrono::steady_clock::now() < deadline) {
      pipe = ::open(solver.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
      if (pipe < 0) ::poll(nullptr, 0, 5);  // nothing reads yet
    }
    ASSERT_GE(pipe, 0);
    ::kill(running.process, signal);
    const std::string text = get_file(at("solver.prototxt"));
    EXPECT_EQ(::write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(pipe);
    expect_refusal(running, 75, "Snapshotting solver state");
  }
}

TEST_F(Pipes, InsideADatabaseOrASnapshotAreRefused) {
  for (const std::string file : {"CURRENT", "MANIFEST-000002", "LOCK"}) {
    SCOPED_TRACE(file);
    fs::remove_all(at("db"));
    ASSERT_OK(write_records("leveldb", at("db"), small_records(20)));
    const std::string pipe = make_pipe("db/" + file);
    const Ran ran =
        run_program(tool("convert_format", {"leveldb", at("db"), "datumfile", at("out")}));
    if (file == "LOCK") continue;  // only asked for its locks
    EXPECT_EQ(ran.code, 4) << ran.err;
    EXPECT_HAS(ran.err, pipe + " is a pipe, and a regular file is needed");
  }
  ASSERT_EQ(run_program(training("--threads=1")).code, 0);
  const std::string stem = snapshot_stem(at("s"), 2), pipe = make_pipe("s_iter_2.caffemodel");
  expect_refusal(start_program(training("--snapshot=" + state_path(stem))), 3, pipe);
  fs::remove(manifest_path(stem));
  fs::remove(run_path(stem));
  expect_refusal(start_program(training("--snapshot=" + state_path(stem))), 3,
                 pipe + " is a pipe, and a regular file is needed");
}

TEST_F(Pipes, WhereFilesAreWrittenNeedAReader) {
  const std::string pipe = make_pipe("o.train.csv");
  expect_refusal(start_program(training("--net_outputs=" + at("o"))), 2,
                 pipe + " is a pipe, and a regular file is needed");
  fs::create_directory(at("m"));
  const std::string metrics = make_pipe("m/metrics.0.jsonl");
  expect_refusal(start_program(training("--metrics=" + at("m"))), 2,
                 metrics + ", a pipe: nothing read from it for 10 s");
  const Running reader =
      start_program({"/usr/bin/env", "timeout", "--signal=KILL", "40", "cat", metrics});
  EXPECT_EQ(run_program(training("--metrics=" + at("m"))).code, 0);
  const Ran read = wait_for(reader);
  EXPECT_EQ(read.code, 0);
  EXPECT_HAS(read.out, "\"kind\":\"run\"");
  EXPECT_HAS(read.out, "\"kind\":\"clock\"");
}

}  // namespace
}  // namespace shoal::test::pipes_test
