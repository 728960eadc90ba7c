// Items of every kind of database: their order, their sizes, what a probe says.
#include <gtest/gtest.h>

#include <set>

#include "shoal/data/items.h"
#include "shoal/data/prefetch.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/layers.pb.h"
#include "support/data_files.h"

namespace shoal::test::data_items_test {
namespace {

class DataItems : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<ItemSource> items(const SequenceOptions& sequence, int batch_size,
                                    const TransformationParameter& param = {}) {
    return or_throw(record_items(or_throw(open_source(GetParam(), path_)), sequence,
                                 or_throw(Transform::create(param, true)), batch_size));
  }
  std::string path_ = fresh_directory("items_" + GetParam()) + "/set";
};

std::vector<float> everything(ItemSource& source, std::uint64_t start, int batches, int threads) {
  PrefetchOptions chosen;
  chosen.batch_size = 7;
  chosen.threads = threads;
  chosen.start = start;
  Prefetch prefetch(source, chosen);
  std::vector<float> numbers;
  for (int i = 0; i < batches; ++i) {
    const Result<const Batch*> batch = prefetch.next();
    if (!batch.ok()) {
      ADD_FAILURE() << batch.error().message;
      break;
    }
    for (const Sample& sample : batch.value()->samples)
      numbers.insert(numbers.end(), sample.data().begin(), sample.data().end());
    for (const Sample& sample : batch.value()->samples) numbers.push_back(sample.label);
  }
  return numbers;
}

TEST_P(DataItems, WrapInsideABatchInOrder) {
  ASSERT_OK(write_records(GetParam(), path_, small_records(10)));
  const std::unique_ptr<ItemSource> source = items({}, 7);
  const std::vector<float> numbers = everything(*source, 0, 3, 2);
  for (int batch = 0; batch < 3; ++batch)
    for (int i = 0; i < 7; ++i) {
      const int record = (batch * 7 + i) % 10;
      EXPECT_EQ(numbers[static_cast<std::size_t>(batch * 35 + i * 4)], static_cast<float>(record));
      EXPECT_EQ(numbers[static_cast<std::size_t>(batch * 35 + 28 + i)], static_cast<float>(record));
    }
}

TEST_P(DataItems, ResumeAtAnyPointGivesTheSameBatches) {
  ASSERT_OK(write_records(GetParam(), path_, small_records(23)));
  TransformationParameter param;
  param.set_crop_size(1);
  param.set_mirror(true);
  for (const bool shuffle : {false, true}) {
    const SequenceOptions sequence{.seed = 9, .stream = 1, .shuffle = shuffle, .rand_skip = 40};
    const std::vector<float> through = everything(*items(sequence, 7, param), 0, 12, 1);
    for (int from = 0; from < 12; ++from) {
      const std::vector<float> resumed =
          everything(*items(sequence, 7, param), static_cast<std::uint64_t>(from) * 7, 12 - from,
                     1 + from % 4);
      EXPECT_EQ(resumed, std::vector<float>(through.begin() + from * 14, through.end()))
          << "from batch " << from;
    }
  }
}

TEST_P(DataItems, ShufflingShowsEveryRecordOnceAnEpoch) {
  ASSERT_OK(write_records(GetParam(), path_, small_records(14)));
  const std::vector<float> numbers = everything(*items({.seed = 2, .shuffle = true}, 7), 0, 4, 2);
  std::vector<std::multiset<float>> epochs(2);
  for (int batch = 0; batch < 4; ++batch)
    for (int i = 0; i < 7; ++i)
      epochs[static_cast<std::size_t>(batch / 2)].insert(
          numbers[static_cast<std::size_t>(batch * 35 + i * 4)]);
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<float>(epoch.begin(), epoch.end()).size(), 14u);
  }
}

TEST_P(DataItems, SizesMustAgree) {
  ASSERT_OK(write_records(GetParam(), path_,
                          {{"a", datum(1, 2, 2, "abcd", 0)}, {"b", datum(1, 1, 4, "abcd", 0)}}));
  const std::unique_ptr<ItemSource> source = items({}, 2);
  PrefetchOptions chosen;
  chosen.batch_size = 2;
  chosen.threads = 1;
  Prefetch prefetch(*source, chosen);
  const Result<const Batch*> batch = prefetch.next();
  ASSERT_FALSE(batch.ok());
  EXPECT_HAS(batch.error().message,
             "the record b of " + path_ + " is 1 x 1 x 4 where 1 x 2 x 2 is wanted");
}

TEST_P(DataItems, ProbeHonoursThePolicy) {
  ASSERT_OK(
      write_records(GetParam(), path_, {{"a", "\xff\xff"}, {"b", datum(1, 1, 4, "abcd", 0)}}));
  const std::unique_ptr<ItemSource> source = items({}, 2);
  EXPECT_FAILS_WITH("the record a of " + path_ + " is no Datum",
                    probe(*source, 0, OnBadRecord::kStop));
  EXPECT_EQ(or_throw(probe(*source, 0, OnBadRecord::kSkip)).size, (ImageSize{1, 1, 4}));
}

INSTANTIATE_TEST_SUITE_P(Data, DataItems, testing::ValuesIn(record_backends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace shoal::test::data_items_test
