// Damaged files, full disks, no memory, a log that nobody reads: what the tools say, and that
// nothing is lost or half-written.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "shoal/base/file.h"
#include "shoal/data/image.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::test::bad_files_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class BadFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("bad_files");
    make_digits(folder_ + "/set");
    put_file(folder_ + "/net.prototxt", small_net(folder_ + "/set"));
    // Sets what the tools set before they start themselves again, which takes a while.
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
  }
  void TearDown() override { ::unsetenv("OMP_WAIT_POLICY"); }

  static std::string tool(const std::string& name) { return tools_dir() + "/" + name; }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  Words training(const std::string& more, const Words& flags = {}) const {
    put_file(at("solver.prototxt"),
             "net: '" + at("net.prototxt") +
                 "' base_lr: 0.05 lr_policy: 'fixed' random_seed: 3 snapshot_prefix: '" + at("s") +
                 "' " + more);
    Words command = {tool("train"), "--solver=" + at("solver.prototxt"), "--threads=1"};
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }
  std::string stem(int iteration) const { return snapshot_stem(at("s"), iteration); }

  // An error, with these words, and nothing new but what is named.
  void expect_refusal(const Words& command, int code, const Words& words,
                      std::uint64_t file_size_limit = 0) const {
    const Words before = entries(folder_);
    const Ran ran = run_program(command, file_size_limit);
    EXPECT_EQ(ran.code, code) << ran.err;
    for (const std::string& part : words) EXPECT_HAS(ran.err, part);
    EXPECT_EQ(entries(folder_), before);
  }

  std::string folder_;
};

struct Damage {
  const char* name;
  std::function<std::string(std::string)> apply;
};

const Damage kDamages[] = {
    {"cut in half", [](std::string bytes) { return bytes.substr(0, bytes.size() / 2); }},
    {"one byte short", [](std::string bytes) { return bytes.substr(0, bytes.size() - 1); }},
    {"empty", [](std::string) { return std::string(); }},
    {"all zero", [](std::string bytes) { return std::string(bytes.size(), '\0'); }},
    {"text", [](std::string) { return std::string("<html><body>404 Not Found</body></html>\n"); }},
};

// ---- records

struct Database {
  const char *backend, *file;  // the file to damage, inside the database
};

TEST_F(BadFiles, DamagedDatabases) {
  for (const auto& [backend, file] : {Database{"lmdb", "/data.mdb"},
                                      {"leveldb", "/CURRENT"},
                                      {"leveldb", "/MANIFEST-000002"},
                                      {"datumfile", ""}})
    for (const Damage& damage : kDamages) {
      SCOPED_TRACE(str(backend, file, ": ", damage.name));
      const std::string path = at("db");
      fs::remove_all(path);
      ASSERT_OK(write_records(backend, path, small_records(2001)));
      ASSERT_TRUE(file_exists(path + file));
      put_file(path + file, damage.apply(get_file(path + file)));
      const std::string other = std::string(backend) == "datumfile" ? "lmdb" : "datumfile";
      expect_refusal({tool("convert_format"), backend, path, other, at("out")}, 4, {path});
    }
}

// A byte here and there: some of it cannot be seen, none of it may end the tool.
TEST_F(BadFiles, BytesTurned) {
  const std::string other = at("out");
  for (const auto& [backend, file] :
       {Database{"lmdb", "/data.mdb"}, {"leveldb", "/MANIFEST-000002"}, {"datumfile", ""}}) {
    const std::string path = at(std::string("turned_") + backend);
    ASSERT_OK(write_records(backend, path, small_records(50)));
    const std::string good = get_file(path + file);
    for (std::size_t i = 0; i < 16; ++i) {
      SCOPED_TRACE(str(backend, ": turn ", i));
      std::string bytes = good;
      // Heads matter most.
      const std::size_t range = i % 2 ? bytes.size() : std::min<std::size_t>(bytes.size(), 200);
      for (std::size_t k = 0; k < 4; ++k)
        bytes[(i * 7919 + k * 104'729) % range] ^= static_cast<char>(1 << i % 8);
      put_file(path + file, bytes);
      const Ran ran =
          run_program({tool("convert_format"), backend, path,
                       std::string(backend) == "datumfile" ? "lmdb" : "datumfile", other});
      EXPECT_TRUE(ran.code == 0 || ran.code == 4) << ran.code << ": " << ran.err;
      EXPECT_EQ(file_exists(other), ran.code == 0);
      fs::remove_all(other);
    }
  }
}

TEST_F(BadFiles, ADamagedRecordStopsTrainingAndIsNamed) {
  Records records = small_records(16);
  records[5].second = "no datum";
  fs::remove(at("set"));
  ASSERT_OK(write_records("datumfile", at("set"), records));
  const std::string data =
      "data_param { source: '" + at("set") + "' backend: DATUMFILE batch_size: 4 }";
  put_file(at("net.prototxt"), "layer { name: 'd' type: 'Data' top: 'd' " + data + " }");
  const Ran ran = run_program(training("max_iter: 4"));
  EXPECT_EQ(ran.code, 4) << ran.err;
  EXPECT_HAS(ran.err, at("net.prototxt") + ":1: layer 'd' (Data): the record 00005 of " +
                          at("set") + " is no Datum");
  EXPECT_EQ(why_damaged(stem(1)), "") << "what was learned up to there is kept";
}

// ---- models and snapshots

TEST_F(BadFiles, DamagedModelsAndStates) {
  ASSERT_EQ(run_program(training("max_iter: 1")).code, 0);
  const std::string model = get_file(model_path(stem(1))), state = get_file(state_path(stem(1)));
  // Makes the snapshot one of Caffe's: with ours the manifest tells first.
  fs::remove(manifest_path(stem(1)));
  fs::remove(run_path(stem(1)));
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    put_file(at("bad.caffemodel"), damage.apply(model));
    put_file(at("bad.solverstate"), damage.apply(state));
    expect_refusal({tool("upgrade_net_proto_binary"), at("bad.caffemodel"), at("out")}, 3,
                   {at("bad.caffemodel") + " is "});
    expect_refusal(training("max_iter: 2", {"--snapshot=" + at("bad.solverstate")}), 3,
                   {at("bad.solverstate") + " is "});
  }
  SolverState early = read_solver_state(state_path(stem(1)));
  early.set_iter(-1);
  ASSERT_OK(write_binary(early, at("bad.solverstate")));
  expect_refusal(training("max_iter: 2", {"--snapshot=" + at("bad.solverstate")}), 3,
                 {"is damaged: it says that it is of iteration -1"});
  fs::remove(model_path(stem(1)));
  expect_refusal(training("max_iter: 2", {"--snapshot=" + state_path(stem(1))}), 3,
                 {state_path(stem(1)) + ": its model does not exist, neither " +
                  model_path(stem(1)) + " nor "});
}

TEST_F(BadFiles, ADamagedSnapshotIsRefusedAndPassedOverByAuto) {
  ASSERT_EQ(run_program(training("max_iter: 4 snapshot: 2")).code, 0);
  for (const std::string& file :
       {model_path(stem(4)), state_path(stem(4)), run_path(stem(4)), manifest_path(stem(4))}) {
    SCOPED_TRACE(file);
    const std::string good = get_file(file);
    std::string bad = good;
    bad[bad.size() / 2] ^= 4;
    put_file(file, bad);
    expect_refusal(training("max_iter: 6", {"--snapshot=" + state_path(stem(4))}), 3,
                   {"the snapshot " + stem(4) + " is not whole: "});
    const Ran ran =
        run_program(training("max_iter: 3 snapshot_after_train: false", {"--snapshot=auto"}));
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_HAS(ran.err, "The snapshot " + stem(4) + " is not whole and is skipped: ");
    EXPECT_HAS(ran.err, "Resuming from " + state_path(stem(2)));
    put_file(file, good);
  }
}

TEST_F(BadFiles, ASnapshotOfAnotherNetOrSolverIsRefused) {
  ASSERT_EQ(run_program(training("max_iter: 2")).code, 0);
  const Words from = {"--snapshot=" + state_path(stem(2))};
  expect_refusal(training("max_iter: 4 type: 'Adam'", from), 3,
                 {state_path(stem(2)), "this one is of type Adam"});
  const Ran late = run_program(training("max_iter: 2", from));
  EXPECT_EQ(late.code, 0) << late.err;
  EXPECT_HAS(late.err, "Iteration 2 is not below max_iter, 2: there is nothing left to train");
  std::string net = small_net(at("set"));
  net.replace(net.find("name: 'ip'"), 10, "name: 'pi'");
  put_file(at("net.prototxt"), net);
  expect_refusal(
      training("max_iter: 4", from), 3,
      {"layer 'pi' (InnerProduct): " + model_path(stem(2)) + " holds nothing for this layer"});
}

// ---- no room

TEST_F(BadFiles, AFullDiskLeavesNothing) {
  ASSERT_EQ(run_program(training("max_iter: 1")).code, 0);
  const std::string model = model_path(stem(1)), set = at("large");
  ASSERT_OK(
      write_records("datumfile", set, {{"a", datum(1, 100, 100, std::string(10'000, 'x'), 0)}}));
  const Words features = {
      tool("extract_features"), model, at("net.prototxt"), "data", at("out"), "8"};
  const auto extract = [&](const std::string& backend) {
    Words command = features;
    return command.push_back(backend), command;
  };
  const struct {
    Words command;
    std::uint64_t limit;  // bytes a file may have; stderr is one too
  } cases[] = {
      {{tool("draw_digits"), "--backend=lmdb", "--train=300", at(".")}, 20'000},
      {{tool("draw_digits"), "--backend=leveldb", "--train=300", at(".")}, 20'000},
      {{tool("draw_digits"), "--backend=datumfile", "--train=300", at(".")}, 20'000},
      {{tool("convert_format"), "datumfile", set, "lmdb", at("out")}, 10'000},
      {{tool("compute_image_mean"), "--backend=datumfile", set, at("out")}, 10'000},
      {{tool("upgrade_proto"), at("net.prototxt"), at("out")}, 700},
      {{tool("upgrade_net_proto_binary"), model, at("out")}, 500},
      {extract("lmdb"), 10'000},
      {extract("text"), 4000},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.command[0] + " " + c.command[1]);
    expect_refusal(c.command, 9, {"cannot write ", folder_}, c.limit);
  }
}

// A disk that is full once training is under way, as each row is short.
TEST_F(BadFiles, AFullDiskUnderOutputsAndMetricsEndsWithNineOnceTheNetIsTrained) {
  const std::string disk = at("disk");
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "a small disk cannot be mounted here";
  const auto command = [&](const std::string& flag, const std::string& iterations) {
    put_file(at("solver.prototxt"), "net: '" + at("net.prototxt") +
                                        "' base_lr: 0.05 lr_policy: 'fixed' random_seed: 3 "
                                        "display: 1 snapshot_prefix: '" +
                                        at("s") + "' max_iter: " + iterations);
    return Words{tool("train"), "--solver=" + at("solver.prototxt"), "--threads=1",
                 "--" + flag + "=" + disk + "/" + flag};
  };
  const auto clear = [&] {
    for (const std::string& name : entries(disk)) fs::remove_all(disk + "/" + name);
  };
  for (const std::string flag : {"net_outputs", "metrics"}) {
    SCOPED_TRACE(flag);
    const Ran ran = run_program(command(flag, "3000"));
    EXPECT_EQ(ran.code, 9) << ran.err.substr(0, 2000);
    const std::string words = "--" + flag + ": cannot write " + disk + "/" + flag;
    const std::size_t warned = ran.err.find(words), ended = ran.err.rfind(words);
    EXPECT_NE(warned, ended) << "said at once, and at the end";
    EXPECT_HAS(ran.err.substr(ended),
               "No space left on device; training went on without these files");
    EXPECT_TRUE(file_exists(at("s_iter_3000.caffemodel")));
    clear();
    const Running running = start_program(command(flag, "100000000"));
    EXPECT_TRUE(wait_for_text(running, "training goes on without"));
    ::kill(running.process, SIGTERM);
    EXPECT_EQ(wait_for(running).code, 75) << "the snapshot is good";
    clear();
  }
  ::umount(disk.c_str());
}

// The same with a disk that is really full.
TEST_F(BadFiles, AFullDiskInTheMiddleOfTrainingKeepsTheLastSnapshot) {
  ASSERT_OK(write_records("datumfile", at("many"), small_records(3000)));
  const std::string disk = at("disk");
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "a small disk cannot be mounted here";
  const std::string more = " snapshot: 1 snapshot_prefix: '" + disk + "/s'";
  std::string text = "net: '" + at("net.prototxt") +
                     "' base_lr: 0.05 lr_policy: 'fixed' random_seed: 3 max_iter: 100" + more;
  put_file(at("solver.prototxt"), text);
  const Ran ran = run_program({tool("train"), "--solver=" + at("solver.prototxt"), "--threads=1"});
  const std::string newest = newest_snapshot(disk + "/s");
  const Words left = entries(disk);
  for (const std::string backend : {"lmdb", "leveldb", "datumfile"}) {
    const Ran converted =
        run_program({tool("convert_format"), "datumfile", at("many"), backend, disk + "/out"});
    EXPECT_EQ(converted.code, 9) << backend << ": " << converted.err;
    EXPECT_HAS(converted.err, disk + "/out: ");
  }
  const Words after = entries(disk);
  ::umount(disk.c_str());
  EXPECT_EQ(ran.code, 9) << ran.err;
  EXPECT_HAS(ran.err, "No space left on device");
  EXPECT_NE(newest, "");
  for (const std::string& name : left) {
    EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
    if (name.find('.') == std::string::npos) continue;  // s_latest
    EXPECT_EQ(std::ranges::count(left, name.substr(0, name.rfind('.')) + ".manifest"), 1)
        << name << " is part of no whole snapshot";
  }
  EXPECT_EQ(after, left);
}

// Files of a process that was killed go; those of one that lives stay.
TEST_F(BadFiles, WhatAKilledWriterLeftIsRemoved) {
  put_file(at("x.tmp.aBc123"), "half");
  put_file(at("x.tmp.aBc12"), "the user's own");
  AtomicFile living = or_throw(AtomicFile::create(at("x"), Code::kData));
  EXPECT_FALSE(file_exists(at("x.tmp.aBc123")));
  EXPECT_TRUE(file_exists(at("x.tmp.aBc12")));
  or_throw(living.write("whole"));
  or_throw(write_file(at("x"), "another's", Code::kData));
  or_throw(living.commit());
  EXPECT_EQ(get_file(at("x")), "whole");
  put_file(at("s_iter_9.caffemodel.tmp.aBc123"), "half");
  fs::create_directory(at("db.tmp.123456789"));
  put_file(at("db.tmp.123456789/data.mdb"), "half");
  remove_leftovers(at("s"));
  EXPECT_FALSE(file_exists(at("s_iter_9.caffemodel.tmp.aBc123")));
  fs::rename(at("db.tmp.123456789"), at("digits_test_lmdb.tmp.123456789"));
  const Ran drawn =
      run_program({tool("draw_digits"), "--train=1", "--test=1", "--backend=lmdb", at("")});
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_FALSE(file_exists(at("digits_test_lmdb.tmp.123456789")));
}

TEST_F(BadFiles, ADeviceIsWrittenAndALinkStaysOne) {
  fs::create_symlink("/dev/full", at("full"));
  expect_refusal({tool("upgrade_proto"), at("net.prototxt"), at("full")}, 9,
                 {"cannot write /dev/full: No space left on device"});
  put_file(at("target"), "old");
  fs::create_symlink(at("target"), at("link"));
  EXPECT_EQ(run_program({tool("upgrade_proto"), at("net.prototxt"), at("link")}).code, 0);
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_HAS(get_file(at("target")), "type: \"Convolution\"");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(BadFiles, NoMemoryIsTheNetsFault) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more memory than the limit";
#endif
  put_file(
      at("net.prototxt"),
      "layer { name: 'in' type: 'Input' top: 'in' input_param { shape { dim: 2000000000 } } }\n"
      "layer { name: 'relu' type: 'ReLU' bottom: 'in' top: 'relu' }\n");
  const auto runs_out = [&](const std::string& name, const std::string& words) {
    expect_refusal({"/bin/sh", "-c", "ulimit -v 3000000; exec " + tool(name) + " " + words}, 3,
                   {name + ": out of memory"});
  };
  runs_out("time", "--model=" + at("net.prototxt") + " --threads=1");
  // Pictures are read on the main thread and on those of a pool.
  put_file(at("im.png"), or_throw(encode_image({{1, 1, 1}, {7}}, "png")));
  put_file(at("list"), "im.png 0\n");
  put_file(at("net.prototxt"),
           "layer { name: 'data' type: 'ImageData' top: 'data' top: 'label' image_data_param { "
           "source: '" +
               at("list") + "' root_folder: '" + at("") +
               "' new_height: 40000 new_width: 40000 } }\n");
  runs_out("time", "--model=" + at("net.prototxt") + " --threads=1");
  runs_out("convert_imageset", "--resize_height=40000 --resize_width=40000 " + at("") + " " +
                                   at("list") + " " + at("db"));
  EXPECT_FALSE(fs::exists(at("db")));
}

// `train 2>&1 | tee log` and Ctrl-C: tee ends first, and the snapshot is still to be written.
TEST_F(BadFiles, ALogThatNobodyReadsIsNoEnd) {
  std::string command;
  for (const std::string& word : training("max_iter: 300 display: 1")) command += "'" + word + "' ";
  const Ran ran = run_program(
      {"/bin/sh", "-c", "{ " + command + "2>&1; echo $? > '" + at("code") + "'; } | head -n 5"});
  EXPECT_EQ(get_file(at("code")), "0\n") << ran.out;
  EXPECT_EQ(why_damaged(stem(300)), "");
}

}  // namespace
}  // namespace shoal::test::bad_files_test
