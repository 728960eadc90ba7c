// Nets that divide their data: warnings about its parts, their random numbers, and the places that
// a source is sent to.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "shoal/data/items.h"
#include "shoal/data/parts.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/parts.pb.h"
#include "support/data_rig.h"
#include "support/share_rig.h"

namespace shoal::test::share_parts_test {
namespace {

TEST(ShareOfLevelDb, IsForOneProcess) {
  const std::string path = fresh_directory("share_refused") + "/set";
  const Kind kind{"leveldb"};
  kind.write(path, 0, 4);
  const std::string words =
      trouble(kind.layer(path, kShared + "batch_size: 1"), Share{.client = 1, .clients = 2});
  EXPECT_HAS(words, "shared_file_system is true and 2 clients would read " + path);
  EXPECT_HAS(words, "a LevelDB is made for one process at a time");
  EXPECT_HAS(words,
             "convert it to LMDB or a datumfile (convert_format), or cut it up (partition_data)");
}

class ShareOfParts : public testing::Test {
 protected:
  void manifest(const std::vector<int>& counts) {
    PartsManifest parts;
    parts.set_source(path_);
    for (const int count : counts) parts.add_part()->set_count(count);
    ASSERT_OK(write_parts_manifest(path_, parts));
    for (std::size_t i = 0; i < counts.size(); ++i) {
      std::filesystem::remove_all(str(path_, "_", i));
      // The layer reads the manifest.
      kind_.write(str(path_, "_", i), 0, std::min(counts[i], 3));
    }
  }
  std::string said(int client, int clients, int replica = 0) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(
        trouble(kind_.layer(path_, "batch_size: 1"),
                Share{.client = client, .clients = clients, .replica = replica, .replicas = 2}),
        "");
    return testing::internal::GetCapturedStderr();
  }
  Kind kind_{"datumfile"};
  std::string path_ = fresh_directory("share_parts") + "/set";
};

TEST_F(ShareOfParts, UnequalPartsAreSaidOnceInTheJob) {
  manifest({1234567, 3});
  const std::string unequal = "the parts of " + path_ + " hold from 3 to 1234567 records";
  EXPECT_HAS(said(0, 2), unequal);
  EXPECT_EQ(said(0, 2, 1).find(unequal), std::string::npos);
  EXPECT_EQ(said(1, 2).find(unequal), std::string::npos);
  manifest({3, 3});
  EXPECT_EQ(said(0, 2).find("parts"), std::string::npos);
}

TEST_F(ShareOfParts, AnotherNumberOfPartsIsWarnedOf) {
  manifest({3, 3, 3});
  EXPECT_HAS(said(0, 2), path_ + " was cut into 3 parts, but 2 clients read one part each");
  EXPECT_EQ(said(0, 3).find("was cut into"), std::string::npos);
  put_file(parts_manifest_path(path_), "{");
  EXPECT_HAS(said(0, 3), path_ + "_parts.json is not the JSON of a list of parts");
}

TEST(ShareRandom, EachNetHasAStreamOfItsOwnAndOneIsCommon) {
  std::set<std::uint64_t> streams;
  for (int client = 0; client < 4; ++client)
    for (int replica = 0; replica < 3; ++replica) {
      Context context(
          {.seed = 7,
           .share = {.client = client, .clients = 4, .replica = replica, .replicas = 3}});
      streams.insert(context.random().state().stream);
      EXPECT_EQ(context.random().state().seed, 7u);
      EXPECT_EQ(context.common().state(), Random(7).state());
      EXPECT_EQ(context.random().state() == Random(7).state(), context.share().index() == 0);
    }
  EXPECT_EQ(streams.size(), 12u);
}

TEST(ShareRandom, NetsStartFromTheSameParamsAndDrawTheirOwnNoise) {
  const NetParameter param = parse_net(
      "layer { name: 'd' type: 'DummyData' top: 'd' dummy_data_param { shape { dim: 2 dim: 5 } "
      "data_filler { type: 'gaussian' } } }"
      "layer { name: 'i' type: 'InnerProduct' bottom: 'd' top: 'i' inner_product_param { "
      "num_output: 3 weight_filler { type: 'xavier' } } }"
      "layer { name: 'o' type: 'Dropout' bottom: 'i' top: 'o' }",
      "net");
  std::vector<std::vector<float>> params, noise;
  for (int client = 0; client < 2; ++client) {
    Context context({.seed = 7, .share = {.client = client, .clients = 2}});
    Net net(param, context);
    ASSERT_OK(net.forward());
    params.push_back(values(net.params()[0].blob->data));
    noise.push_back(values(net.blob("d")->data));
  }
  EXPECT_EQ(params[0], params[1]);
  EXPECT_NE(noise[0], noise[1]);
}

// Records in memory that remember where they were asked to go.
class Watched final : public RecordSource {
 public:
  Watched(Records records, std::vector<std::uint64_t>& seeks)
      : records_(std::move(records)), seeks_(seeks) {}
  const std::string& path() const override { return path_; }
  Result<std::optional<RecordView>> next() override {
    if (at_ == records_.size()) return std::optional<RecordView>();
    const auto& [key, value] = records_[at_++];
    return std::optional(RecordView{key, value});
  }
  Status seek(std::uint64_t position) override {
    seeks_.push_back(position);
    at_ = position % records_.size();
    return {};
  }
  Result<std::uint64_t> count() override { return std::uint64_t{records_.size()}; }
  Status prepare_random_access() override { return {}; }

 private:
  const std::string path_ = "watched";
  const Records records_;
  std::vector<std::uint64_t>& seeks_;
  std::size_t at_ = 0;
};

// A back end without an index walks to where it is sent: sent past the end again and again, it
// would walk through all of the set for each record of the second epoch.
TEST(ShareTest, LaterEpochsAreNotSoughtPastTheEnd) {
  constexpr int kRecords = 23;
  std::vector<std::uint64_t> seeks;
  auto transform = Transform::create({}, true);
  ASSERT_OK(transform);
  auto items = record_items(std::make_unique<Watched>(labelled(0, kRecords), seeks),
                            {.first = 1, .step = 2}, std::move(transform).value(), 1);
  ASSERT_OK(items);
  for (std::uint64_t n = 0; n < 2 * kRecords; ++n) {
    Item item;
    item.n = n;
    ASSERT_OK(items.value()->read(item));
    EXPECT_EQ(item.name, str("k", 100 + (2 * n + 1) % kRecords));
  }
  ASSERT_FALSE(seeks.empty());
  EXPECT_LT(*std::ranges::max_element(seeks), std::uint64_t{kRecords});
}

}  // namespace
}  // namespace shoal::test::share_parts_test
