// The tool partition_data as a user runs it (wants TOOLS_DIR; skipped by name without it).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "shoal/base/bytes.h"
#include "shoal/data/image_list.h"
#include "shoal/data/partition.h"
#include "shoal/data/parts.h"
#include "shoal/proto/parts.pb.h"
#include "support/data_rig.h"

namespace shoal::test::partition_test {
namespace {

class PartitionTool : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
  }
  static bool list(const std::string& backend) { return backend == "imagelist"; }

  // The records of a source or a part: of a list, path and label of each line.
  static Records all(const std::string& backend, const std::string& path) {
    if (!list(backend)) return or_throw(read_all(*or_throw(open_source(backend, path))));
    Records records;
    for (const ListedImage& image : or_throw(read_image_list(path)))
      records.emplace_back(image.path, std::to_string(image.label));
    return records;
  }
  void write(const Records& records, const std::string& backend = GetParam()) {
    if (!list(backend)) return write_set(records, backend);
    std::string text;
    for (std::size_t i = 0; i < records.size(); ++i)
      text += str("im ", records[i].first, ".png ", i % 10, "\n");
    put_file(path_, text);
  }
  void write_set(const Records& records, const std::string& backend) {
    ASSERT_OK(write_records(backend, path_, records));
  }
  Ran run(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), tools_dir() + "/partition_data");
    flags.push_back(path_);
    return run_program(flags);
  }
  // Checks that the parts hold the records that `of` gives them, in the source's order, and that
  // the manifest says so.
  template <class Of>
  void expect_parts(std::size_t parts, const std::string& backend, const std::string& mode, Of of) {
    const Records source = all(GetParam(), path_);
    std::vector<Records> want(parts);
    for (std::size_t i = 0; i < source.size(); ++i) want[of(i)].push_back(source[i]);
    PartsManifest manifest;
    ASSERT_TRUE(or_throw(read_parts_manifest(path_, manifest)));
    EXPECT_EQ(manifest.backend(), backend);
    EXPECT_EQ(manifest.mode(), mode);
    EXPECT_EQ(manifest.source(), path_);
    EXPECT_EQ(manifest.count(), static_cast<double>(source.size()));
    ASSERT_EQ(manifest.part_size(), static_cast<int>(parts));
    std::vector<std::string> names{"set", "set_parts.json"};
    for (std::size_t k = 0; k < parts; ++k) {
      names.push_back(str("set_", k));
      EXPECT_EQ(all(backend, str(path_, "_", k)), want[k]) << "part " << k;
      const PartsManifest::Part& part = manifest.part(static_cast<int>(k));
      EXPECT_EQ(part.name(), str("set_", k));
      EXPECT_EQ(part.count(), static_cast<double>(want[k].size()));
      EXPECT_EQ(part.crc32c(), checksum(want[k]));
    }
    std::ranges::sort(names);
    EXPECT_EQ(entries(directory_), names);
  }
  static std::string checksum(const Records& records) {
    std::string bytes, text;
    for (const auto& [key, value] : records)
      for (const std::string* field : {&key, &value}) {
        put_le(bytes, static_cast<std::uint32_t>(field->size()));
        bytes += *field;
      }
    const std::uint32_t sum = crc32c(bytes);
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[sum >> shift & 15];
    return text;
  }
  void remove_parts() {
    for (const std::string& name : entries(directory_))
      if (name != "set") std::filesystem::remove_all(directory_ + "/" + name);
  }
  std::string directory_ = fresh_directory("partition"), path_ = directory_ + "/set";
};

TEST_P(PartitionTool, RoundRobinIsTheDefault) {
  write(small_records(23));
  const Ran ran = run();
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_HAS(ran.err, str("Wrote 12 records to ", path_, "_0 (", GetParam(), ")."));
  EXPECT_HAS(ran.err, str("Wrote 11 records to ", path_, "_1 (", GetParam(), ")."));
  expect_parts(2, GetParam(), "round_robin", [](std::size_t i) { return i % 2; });
  remove_parts();
  ASSERT_EQ(run({"--num_partitions=5", "--backend=" + GetParam()}).code, 0);
  expect_parts(5, GetParam(), "round_robin", [](std::size_t i) { return i % 5; });
}

TEST_P(PartitionTool, BlocksAndClasses) {
  write(small_records(23));
  ASSERT_EQ(run({"--mode=contiguous", "--num_partitions=3"}).code, 0);
  expect_parts(3, GetParam(), "contiguous", [](std::size_t i) {
    return i < 8 ? 0u : i < 16 ? 1u : 2u;
  });
  remove_parts();
  ASSERT_EQ(run({"--weights=2,1,1"}).code, 0);  // 11.5, 5.75, 5.75
  expect_parts(3, GetParam(), "ratios", [](std::size_t i) {
    return i < 11 ? 0u : i < 17 ? 1u : 2u;
  });
  remove_parts();
  put_file(directory_ + "/../sharding", "0 .1\n.1 1\n");
  ASSERT_EQ(run({"--mode=ratios", "--data_sharding=" + directory_ + "/../sharding"}).code, 0);
  expect_parts(2, GetParam(), "ratios", [](std::size_t i) { return i < 2 ? 0u : 1u; });
  remove_parts();
  // Labels 0, 1, 2 have three records each, the others two: the first twelve by label are those up
  // to label 3 and record 4.
  ASSERT_EQ(run({"--mode=by_class"}).code, 0);
  expect_parts(2, GetParam(), "by_class",
               [](std::size_t i) { return i % 10 < 4 || i == 4 ? 0u : 1u; });
}

class PartitionDatabase : public PartitionTool {};

TEST_P(PartitionDatabase, PartsOfAnotherKindAndWhatTrainsOnThem) {
  write(small_records(10));
  const std::string out = GetParam() == "datumfile" ? "lmdb" : "datumfile";
  ASSERT_EQ(run({"--out_backend=" + out}).code, 0);
  expect_parts(2, out, "round_robin", [](std::size_t i) { return i % 2; });
  const std::string layer =
      str("type: 'Data' top: 'data' top: 'label' data_param { batch_size: 5 source: '", path_,
          "' backend: ", out == "lmdb" ? "LMDB" : "DATUMFILE", " }");
  DataRig rig(layer, 1, TRAIN, Share{.client = 1, .clients = 2});
  ASSERT_EQ(rig.forward(), "");
  EXPECT_EQ(rig.labels(), (std::vector<float>{1, 3, 5, 7, 9}));
}

TEST_P(PartitionTool, AnExistingOutputIsNotTouched) {
  for (const std::string name : {"set_0", "set_2", "set_parts.json"}) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
    write(small_records(9));
    put_file(directory_ + "/" + name, "precious");
    const Ran ran = run({"--num_partitions=3"});
    EXPECT_EQ(ran.code, 4);
    EXPECT_HAS(ran.err, directory_ + "/" + name + " exists already");
    EXPECT_EQ(get_file(directory_ + "/" + name), "precious");
    EXPECT_EQ(entries(directory_), (std::vector<std::string>{"set", name}));
  }
}

TEST_P(PartitionTool, AllPartsThatAreThereAreCounted) {
  write(small_records(9));
  ASSERT_EQ(run({"--num_partitions=1"}).code, 0);
  EXPECT_HAS(run({"--num_partitions=3"}).err,
             path_ + "_0 exists already, as does " + path_ + "_parts.json; remove what is there");
  put_file(path_ + "_1", "precious");
  put_file(path_ + "_2", "precious");
  EXPECT_HAS(run({"--num_partitions=3"}).err,
             path_ + "_0 exists already, as do " + path_ + "_1 and 2 more files of parts; remove");
}

TEST_P(PartitionTool, MistakesOnTheCommandLine) {
  write(small_records(9));
  const auto says = [&](const std::string& words, const std::vector<std::string>& flags,
                        int code = 2) {
    const Ran ran = run(flags);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_HAS(ran.err, words);
    EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
  };
  says("--num_partitions is 0; it is from 1 to", {"--num_partitions=0"});
  says("--num_partitions is -1", {"--num_partitions=-1"});
  says("10 parts cannot be made of 9 records", {"--num_partitions=10"});
  says("--num_partitions is 2, but --weights names 3 parts",
       {"--num_partitions=2", "--weights=1,1,1"});
  says("--weights: 'x' is no number", {"--weights=1,x"});
  says("a part's weight must be above 0; one is 0", {"--weights=1,0"});
  says("--weights names no share", {"--weights=,"});
  says("--mode=contiguous has no use for --weights", {"--mode=contiguous", "--weights=1,1"});
  says("--mode=ratios needs --weights or --data_sharding", {"--mode=ratios"});
  says("unknown --mode \"round-robin\"; did you mean 'round_robin'?", {"--mode=round-robin"});
  says("cannot open " + directory_ + "/none", {"--data_sharding=" + directory_ + "/none"});
  says("unknown flag --partitions", {"--partitions=3"});
  says("too many words", {"other"});
  if (list(GetParam()))
    says("cannot be cut into parts of kind lmdb; convert_imageset makes a database",
         {"--out_backend=lmdb"});
  if (!list(GetParam()))
    says("cannot be cut into parts of kind imagelist", {"--out_backend=imagelist"});
  if (!list(GetParam())) says("unknown back end \"sqlite\"", {"--out_backend=sqlite"}, 2);
}

class PartitionFolder : public PartitionTool {};

TEST_P(PartitionFolder, ATrailingSlashIsNoPartOfTheName) {
  write(small_records(4));
  path_ += "/";
  ASSERT_EQ(run().code, 0);
  EXPECT_EQ(entries(directory_),
            (std::vector<std::string>{"set", "set_0", "set_1", "set_parts.json"}));
}

INSTANTIATE_TEST_SUITE_P(Backends, PartitionTool,
                         testing::Values("lmdb", "leveldb", "datumfile", "imagelist"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Backends, PartitionDatabase,
                         testing::Values("lmdb", "leveldb", "datumfile"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Backends, PartitionFolder, testing::Values("lmdb", "leveldb"),
                         [](const auto& info) { return info.param; });

class PartitionDamage : public PartitionTool {};

TEST_P(PartitionDamage, InTheMiddleLeavesNothing) {
  write(small_records(3000));
  const std::string file = GetParam() == "lmdb" ? path_ + "/data.mdb" : path_;
  std::string bytes = get_file(file);
  if (GetParam() == "lmdb")
    bytes.replace(bytes.size() / 2, 4096, std::string(4096, '\xff'));
  else
    bytes.resize(bytes.size() - 5);
  put_file(file, bytes);
  const Ran ran = run({"--num_partitions=3"});
  EXPECT_EQ(ran.code, 4) << ran.err;
  EXPECT_HAS(ran.err, path_);
  EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
}

TEST_P(PartitionDamage, ARecordThatIsNoDatumHasNoClass) {
  write({{"a", datum(1, 1, 1, "x", 1)}, {"b", "\xff\xff"}, {"c", datum(1, 1, 1, "x", 1)}});
  const Ran ran = run({"--mode=by_class"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "the record b of " + path_ + " is no Datum, and by_class needs its label");
  EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
  ASSERT_EQ(run().code, 0);  // the other modes copy whatever it is
}

TEST_P(PartitionDamage, NoRoomLeavesNothing) {
  write(numbered(3000));
  const Ran ran = run_program({tools_dir() + "/partition_data", path_}, 1'000'000);
  EXPECT_EQ(ran.code, 9) << ran.err;
  EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
}

INSTANTIATE_TEST_SUITE_P(Backends, PartitionDamage, testing::Values("lmdb", "datumfile"),
                         [](const auto& info) { return info.param; });

class PartitionCommand : public PartitionTool {};

TEST_P(PartitionCommand, WhatIsNoSourceIsNamed) {
  const Ran missing = run();
  EXPECT_EQ(missing.code, 4);
  EXPECT_HAS(missing.err, path_ + ": No such file or directory");
  std::filesystem::create_directory(path_);
  EXPECT_HAS(run().err, path_ + " is no list of images; it is a directory of something else");
}

TEST_P(PartitionCommand, TheKeyThatLmdbCannotHoldTwice) {
  write({{"a", "1"}, {"b", "2"}, {"a", "3"}, {"c", "4"}}, "datumfile");
  const Ran ran = run({"--out_backend=lmdb"});  // both are in part 0
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "the key \"a\" was put twice");
  EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
}

TEST_P(PartitionCommand, ASignalLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string pipe = directory_ + "/sharding";
    write(small_records(10), "datumfile");
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const Running tool =
        start_program({tools_dir() + "/partition_data", "--data_sharding=" + pipe, path_});
    const int fd = ::open(pipe.c_str(), O_WRONLY);  // returns when the tool reads the file
    ::kill(tool.process, signal);
    EXPECT_TRUE(wait_for_text(tool, "Stopping as soon as what is under way allows it"));
    EXPECT_EQ(::write(fd, "0 1\n", 4), 4);
    ::close(fd);
    const Ran ran = wait_for(tool);
    EXPECT_EQ(ran.code, 128 + signal) << ran.err;
    EXPECT_HAS(ran.err, "no part was made");
    std::filesystem::remove(pipe);
    EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
    std::filesystem::remove(path_);
  }
}

TEST_P(PartitionCommand, AWindowFileIsCutByPictures) {
  const std::string of_a = "# 0\n some a.png\n3\n4 5\n2\n1 0.9 0 0 1 1\n0 0.9 0 0 2 2\n\n",
                    of_b = "# 1\r\nb.png\r\n3 4 5 0\r\n", of_c = "# 9\nc.png\n3 4 5 1\n7 1 4 3 4 3";
  put_file(path_, "\n" + of_a + of_b + of_c);
  ASSERT_EQ(run().code, 0);
  EXPECT_EQ(get_file(path_ + "_0"), of_a + of_c + "\n");
  EXPECT_EQ(get_file(path_ + "_1"), of_b);
  PartsManifest manifest;
  ASSERT_TRUE(or_throw(read_parts_manifest(path_, manifest)));
  EXPECT_EQ(manifest.backend(), "windowfile");
  EXPECT_EQ(manifest.count(), 3);
  EXPECT_EQ(manifest.part(1).crc32c(), checksum({{"b.png", of_b}}));
  remove_parts();
  const auto says = [&](const std::string& words, const std::vector<std::string>& flags, int code) {
    const Ran ran = run(flags);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_HAS(ran.err, words);
    EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
  };
  says("--mode=by_class: a picture of the window file " + path_ + " has no class of its own",
       {"--mode=by_class"}, 2);
  says("a source of kind windowfile cannot be cut into parts of kind imagelist",
       {"--out_backend=imagelist"}, 2);
  says(path_ + ":3: the label \"a.png\" is no whole number", {"--backend=imagelist"}, 4);
  put_file(path_, of_a + "# 1\nb.png\n3 4 5 0 " + of_c);
  says(path_ + ":11: a picture begins in the middle of a line", {}, 4);
  put_file(path_, of_a + "# 1\nb.png\n3 4 5 1\n");
  says(
      path_ + ":12: the file ends where the label of window 1 of the 1 that line 11 says is wanted",
      {}, 4);
}

TEST_P(PartitionCommand, TheScriptTakesTheSameFlags) {
  write(small_records(4), "datumfile");
  const std::string build = std::filesystem::absolute(tools_dir()).parent_path();
  const Ran ran = run_program(
      {"/usr/bin/env", "BUILD=" + build, "scripts/partition_data.sh", "--num_partitions=2", path_});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(entries(directory_),
            (std::vector<std::string>{"set", "set_0", "set_1", "set_parts.json"}));
  EXPECT_EQ(run_program({"/usr/bin/env", "BUILD=nowhere", "scripts/partition_data.sh", path_}).code,
            2);
}

INSTANTIATE_TEST_SUITE_P(Once, PartitionCommand, testing::Values("datumfile"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace shoal::test::partition_test
