// extract_features on several clients, whose parts are then merged. Wants the variable TOOLS_DIR;
// skipped by name without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "shoal/base/file.h"
#include "shoal/data/record.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/pattern.h"
#include "support/solver_rig.h"

namespace shoal::test::features_test {
namespace {

using Words = std::vector<std::string>;
constexpr int kRecords = 40;  // of make_digits; record i has the label i % 4

// A record's key, label and values, whatever it was stored as.
struct Feature {
  std::string key;
  int label = -1;
  std::vector<float> values;
};

std::vector<Feature> read_features(const std::string& backend, const std::string& path) {
  std::vector<Feature> features;
  if (backend == "text") {
    std::istringstream lines(get_file(path));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      Feature feature;
      words >> feature.key >> feature.label;
      for (float value = 0; words >> value;) feature.values.push_back(value);
      features.push_back(feature);
    }
    return features;
  }
  for (const auto& [key, value] : or_throw(read_all(*or_throw(open_source(backend, path))))) {
    Datum datum;
    EXPECT_TRUE(datum.ParseFromString(value));
    features.push_back(
        {key, datum.label(), {datum.float_data().begin(), datum.float_data().end()}});
  }
  return features;
}

class FeaturesOfClients : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
    make_digits(data_);
    write_net("");
    Context context({.seed = 3});
    Net net(read_net(folder_ + "/net.prototxt"), context);
    ASSERT_OK(write_model(model_, net.to_proto(false)));
  }
  void write_net(const std::string& more) {
    put_file(folder_ + "/net.prototxt",
             replaced(small_net(data_), "batch_size: 5", "batch_size: 5 " + more));
  }
  Ran extract(const std::string& out, const std::string& backend, const Words& more = {}) {
    Words words = {tools_dir() + "/extract_features",
                   "--model=" + folder_ + "/net.prototxt",
                   "--weights=" + model_,
                   "--extract_feature_blob_names=ip",
                   "--save_feature_leveldb_names=" + at(out),
                   "--backend=" + backend,
                   "--threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  Ran client(int id, int clients, const std::string& out, const std::string& backend) {
    return extract(out, backend, {str("--client_id=", id), str("--num_clients=", clients)});
  }
  Ran merge(int parts, const std::string& out, const std::string& backend) {
    return run_program({tools_dir() + "/extract_features", str("--merge_parts=", parts),
                        "--save_feature_leveldb_names=" + at(out), "--backend=" + backend});
  }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> made() const {  // by extract_features
    std::vector<std::string> names = entries(folder_);
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("out"); });
    return names;
  }
  std::string folder_ = fresh_directory("features"), data_ = folder_ + "/data",
              model_ = folder_ + "/model.caffemodel";
};

// A key is the number of the record, which nothing knows of an item behind a Filter.
TEST_F(FeaturesOfClients, AreNotOfSelectedItems) {
  std::string net = replaced(small_net(data_), "bottom: 'drop'", "bottom: 'chosen'");
  net = replaced(net, "layer . name: 'ip'",
                 "layer { name: 'choose' type: 'Filter' bottom: 'drop' bottom: 'label' top: "
                 "'chosen' }\nlayer { name: 'ip'");
  put_file(at("net.prototxt"), net);
  const Ran ran = extract("out", "text");
  EXPECT_EQ(ran.code, 3);
  EXPECT_HAS(ran.err,
             "layer 'ip' (InnerProduct): blob 'ip' has the items that a Filter selected, not one "
             "for each record");
}

TEST_F(FeaturesOfClients, MergedTheyAreWhatOneClientWouldHaveWritten) {
  ASSERT_EQ(extract("alone", "text").code, 0);
  const std::vector<Feature> want = read_features("text", at("alone"));
  ASSERT_EQ(want.size(), static_cast<std::size_t>(kRecords));
  const struct {
    std::string backend, feed;  // of the outputs, and what the data layer says
    Words cut;                  // flags of partition_data, if the source is cut
    int clients;
  } cases[] = {{"lmdb", "shared_file_system: true", {}, 3},
               {"text", "shared_file_system: true shuffle: true rand_skip: 9", {}, 2},
               {"leveldb", "", {"--num_partitions=3"}, 3},
               {"datumfile", "", {"--mode=contiguous", "--num_partitions=3"}, 3},
               {"text", "", {"--weights=5,1,3"}, 3}};
  for (const auto& c : cases) {
    SCOPED_TRACE(str(c.backend, " ", c.feed, " ", c.cut.empty() ? "" : c.cut[0]));
    write_net(c.feed);
    if (!c.cut.empty()) {
      Words cut = c.cut;
      cut.insert(cut.begin(), tools_dir() + "/partition_data");
      cut.push_back(data_);
      ASSERT_EQ(run_program(cut).code, 0);
    }
    std::vector<std::string> parts{"out"};
    for (int id = 0; id < c.clients; ++id) {
      const Ran ran = client(id, c.clients, "out", c.backend);
      ASSERT_EQ(ran.code, 0) << ran.err;
      parts.push_back(str("out_", id));
    }
    const Ran merged = merge(c.clients, "out", c.backend);
    ASSERT_EQ(merged.code, 0) << merged.err;
    EXPECT_HAS(merged.err, str("Wrote 40 records to ", at("out"), " (", c.backend, ")."));
    EXPECT_EQ(made(), parts);
    const std::vector<Feature> got = read_features(c.backend, at("out"));
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].key, want[i].key);
      EXPECT_EQ(got[i].label, static_cast<int>(i % 4));
      ASSERT_EQ(got[i].values.size(), want[i].values.size());
      // Batches differ, whose products some processors round otherwise.
      const float largest =
          std::abs(std::ranges::max(want[i].values, {}, [](float v) { return std::abs(v); }));
      for (std::size_t v = 0; v < got[i].values.size(); ++v)
        EXPECT_NEAR(got[i].values[v], want[i].values[v], 1e-6 * largest);
    }
    for (const std::string& name : entries(folder_))
      if (name.starts_with("out") || name.starts_with("data_"))
        std::filesystem::remove_all(at(name));
  }
}

TEST_F(FeaturesOfClients, OfPartsByClassAreNumberedPartAfterPart) {
  ASSERT_EQ(run_program({tools_dir() + "/partition_data", "--mode=by_class", data_}).code, 0);
  const Ran ran = client(1, 2, "out", "text");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "was cut by class: its records are numbered part by part");
  const std::vector<Feature> got = read_features("text", at("out_1"));
  ASSERT_EQ(got.size(), 20u);
  EXPECT_EQ(got.front().key, "0000000020");
  EXPECT_EQ(got.back().key, "0000000039");
  EXPECT_EQ(got.front().label, 2);
}

// Starts it as scripts/launch.py and mpirun do.
TEST_F(FeaturesOfClients, AreNumberedByALauncherToo) {
  write_net("shared_file_system: true");
  put_file(at("machines"), "0 127.0.0.1 29700\n1 127.0.0.1 29701\n");
  const Ran of_file =
      extract("by_file", "text", {"--machinefile=" + at("machines"), "--client_id=1"});
  EXPECT_EQ(of_file.code, 0) << of_file.err;
  EXPECT_EQ(read_features("text", at("by_file_1")).size(), 20u);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1), setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const Ran of_variables = extract("by_variables", "text", {"--machinefile=" + at("machines")});
  unsetenv("OMPI_COMM_WORLD_RANK"), unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(of_variables.code, 0) << of_variables.err;
  EXPECT_HAS(of_variables.err, "Client 0 of 2; known from Open MPI");
  EXPECT_EQ(read_features("text", at("by_variables_0")).size(), 20u);
}

TEST_F(FeaturesOfClients, WhatCannotBe) {
  const auto says = [&](const Ran& ran, int code, const std::string& words) {
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_HAS(ran.err, words);
    EXPECT_EQ(made(), std::vector<std::string>{});
  };
  says(client(2, 2, "out", "lmdb"), 2,
       "--client_id is 2; of 2 clients (--num_clients) they are from 0 to 1");
  says(client(-1, 2, "out", "lmdb"), 2, "--client_id is -1");
  says(client(0, 0, "out", "lmdb"), 2, "--num_clients is 0; it is at least 1");
  says(extract("out", "lmdb", {"--num_clients=2"}), 2,
       "--num_clients is 2: say with --client_id which of them this is");
  says(extract("out", "lmdb", {"--client_id=1"}), 2, "--client_id is 1; of 1 clients");
  const Words two = {"--client_id=1", "--num_clients=2"};
  const auto with = [&](const std::string& flag) { return Words{two[0], two[1], flag}; };
  says(extract("out", "lmdb", with("--merge")), 2,
       "one of 2 clients has only its own records; when all are through, call extract_features "
       "--merge_parts=2");
  says(extract("out", "lmdb", with("--poseidon_keys")), 2,
       "keys without leading zeros cannot be merged");
  says(client(1, 2, "out", "lmdb"), 4,
       data_ + "_1, the part of client 1 of 2, does not exist; make the parts with partition_data");
  ASSERT_EQ(run_program({tools_dir() + "/partition_data", "--num_partitions=3", data_}).code, 0);
  says(client(1, 2, "out", "lmdb"), 2,
       data_ + " was cut into 3 parts, and 2 clients read one each; give as many clients");
  write_net("shared_file_system: true");
  says(client(1, 41, "out", "lmdb"), 2, "41 clients are more than the 40 records of " + data_);
  put_file(folder_ + "/net.prototxt",
           "layer { name: 'd' type: 'DummyData' top: 'ip' dummy_data_param { shape { dim: 2 dim: 3 "
           "} } }");
  says(extract("out", "lmdb", with("--num_mini_batches=1")), 2,
       "reads no records that could be counted, so that clients cannot divide them");
}

TEST_F(FeaturesOfClients, PartsThatCannotBeMerged) {
  const auto says = [&](int parts, int code, const std::string& words,
                        const std::vector<std::string>& left) {
    const Ran ran = merge(parts, "out", "text");
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_HAS(ran.err, words);
    EXPECT_EQ(made(), left);
  };
  says(0, 2, "--merge_parts is 0; it is from 1 to", {});
  says(2, 4, "cannot open " + at("out_0"), {});
  put_file(at("out_0"), "0000000000 1 0.5\n0000000002 1 0.5\n");
  says(2, 4, "cannot open " + at("out_1") + ": No such file", {"out_0"});
  const std::vector<std::string> both{"out_0", "out_1"};
  const auto second = [&](const std::string& text, const std::string& words) {
    put_file(at("out_1"), text);
    says(2, 4, words, both);
  };
  second("0000000001 1 0.5\n0000000002 1 0.5\n",
         "the record 0000000002 is in two parts, one of them " + at("out_"));
  second("1 1 0.5\n", "the record 1 of " + at("out_1") + ": its key is no number of ten digits");
  second("0000000003 1 0.5\n0000000001 1 0.5\n",
         "the record 0000000001 of " + at("out_1") + " comes after 0000000003; keys must rise");
  second("0000000001 1 0.5\n0000000003 1 0.",
         at("out_1") + " is cut short: its last line does not end");
  put_file(at("out_1"), "0000000004 1 0.5\n");
  const Ran gap = merge(2, "out", "text");
  EXPECT_EQ(gap.code, 0);
  EXPECT_HAS(gap.err,
             "the last record of " + at("out") + " has the number 0000000004, but there are 3");
  EXPECT_EQ(get_file(at("out")), "0000000000 1 0.5\n0000000002 1 0.5\n0000000004 1 0.5\n");
  says(2, 4, at("out") + " exists already", {"out", "out_0", "out_1"});
}

}  // namespace
}  // namespace shoal::test::features_test
