// Tests nets that train together and divide their data: the records that each reads of a source
// that all share, or of parts of its own.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "shoal/net/net.h"
#include "support/data_rig.h"
#include "support/share_rig.h"

namespace shoal::test::share_test {
namespace {

// The contents of one item: its label and its cropped, mirrored pixels.
using Seen = std::vector<float>;

std::vector<Seen> take(DataRig& rig, int batches) {
  std::vector<Seen> items;
  for (int b = 0; b < batches; ++b) {
    EXPECT_EQ(rig.forward(), "");
    const std::vector<float> data = rig.data(), labels = rig.labels();
    const std::size_t size = data.size() / labels.size();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      Seen seen{labels[i]};
      seen.insert(seen.end(), data.begin() + static_cast<std::ptrdiff_t>(i * size),
                  data.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
      items.push_back(std::move(seen));
    }
  }
  return items;
}

// Returns the items of all nets of `clients` x `replicas`, each run for some batches; item n of net
// i at n * P + i.
std::vector<Seen> interleaved(const std::string& layer, int clients, int replicas, int batches,
                              Phase phase = TRAIN) {
  std::vector<std::vector<Seen>> taken;
  for (int c = 0; c < clients; ++c)
    for (int r = 0; r < replicas; ++r) {
      DataRig rig(layer, 5, phase,
                  Share{.client = c, .clients = clients, .replica = r, .replicas = replicas});
      taken.push_back(take(rig, batches));
    }
  std::vector<Seen> all;
  for (std::size_t n = 0; n < taken[0].size(); ++n)
    for (const std::vector<Seen>& net : taken) all.push_back(net[n]);
  return all;
}

void expect_each_once_an_epoch(const std::vector<Seen>& items, int first, int count,
                               int skipped = 0) {
  for (std::size_t begin = static_cast<std::size_t>(skipped);
       begin + static_cast<std::size_t>(count) <= items.size();
       begin += static_cast<std::size_t>(count)) {
    std::set<float> labels;
    for (int i = 0; i < count; ++i) labels.insert(items[begin + static_cast<std::size_t>(i)][0]);
    EXPECT_EQ(labels.size(), static_cast<std::size_t>(count))
        << "an epoch that begins at " << begin;
    EXPECT_EQ(*labels.begin(), static_cast<float>(first));
    EXPECT_EQ(*labels.rbegin(), static_cast<float>(first + count - 1));
  }
}

class ShareLayers : public testing::TestWithParam<Kind> {
 protected:
  const Kind& kind() const { return GetParam(); }
  std::string layer(const std::string& more) const { return kind().layer(path_, more); }
  std::string path_ = fresh_directory("share_" + GetParam().name) + "/set";
};

TEST_P(ShareLayers, EachRecordOnceAnEpochOverAllNets) {
  constexpr int kCount = 23;
  kind().write(path_, 0, kCount);
  for (const Phase phase : {TRAIN, TEST})
    for (const std::string more :
         {"", "shuffle: true ", "rand_skip: 50 ", "shuffle: true rand_skip: 9 "})
      for (int nets = 1; nets <= 5; ++nets)
        for (int replicas = 1; replicas <= nets; ++replicas) {
          const int clients = nets / replicas;
          if (clients * replicas != nets || (clients > 1 && !kind().by_processes)) continue;
          SCOPED_TRACE(str(phase == TRAIN ? "train " : "test ", more, clients, " x ", replicas));
          const std::vector<Seen> all = interleaved(layer(kShared + more + "batch_size: 3"),
                                                    clients, replicas, 96 / (3 * nets), phase);
          if (more.find("rand_skip") == std::string::npos)
            expect_each_once_an_epoch(all, 0, kCount);
          // One net alone reads the same, crops and mirrors too.
          DataRig alone(layer(more + "batch_size: 1"), 5, phase);
          EXPECT_EQ(all, take(alone, static_cast<int>(all.size())));
        }
}

TEST_P(ShareLayers, EpochsDifferAndSeedsDiffer) {
  kind().write(path_, 0, 23);
  const std::string shuffled = layer("shuffle: true batch_size: 23");
  DataRig one(shuffled, 5), other(shuffled, 6);
  const std::vector<Seen> first = take(one, 1), second = take(one, 1);
  EXPECT_NE(first, second);
  EXPECT_NE(first, take(other, 1));
}

TEST_P(ShareLayers, NetsWithWeightsTakeTheirPartsOfEachEpoch) {
  constexpr int kCount = 23, kEpochs = 3;
  kind().write(path_, 0, kCount);
  const std::vector<double> weights = {2, 1, 1.5};  // 10.2, 5.1 and 7.7 records
  const int own[] = {10, 5, 8};
  if (!kind().by_processes) return;
  for (const std::string more : {"", "shuffle: true "}) {
    SCOPED_TRACE(more);
    std::vector<std::vector<Seen>> taken;
    for (int c = 0; c < 3; ++c) {
      DataRig rig(layer(kShared + more + "batch_size: 1"), 5, TRAIN,
                  Share{.client = c, .clients = 3, .weights = weights});
      taken.push_back(take(rig, kEpochs * own[c]));
    }
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      std::vector<Seen> all;
      for (int c = 0; c < 3; ++c)
        all.insert(all.end(), taken[static_cast<std::size_t>(c)].begin() + epoch * own[c],
                   taken[static_cast<std::size_t>(c)].begin() + (epoch + 1) * own[c]);
      expect_each_once_an_epoch(all, 0, kCount);
    }
  }
}

// Divides four batches among three clients: each test goes on where the one before ended.
TEST_P(ShareLayers, TestsReadWhatOneProcessWouldRead) {
  constexpr int kBatch = 3, kTests = 3;
  kind().write(path_, 0, 23);
  if (!kind().by_processes) return;
  const std::vector<std::int64_t> batches = {2, 1, 1};
  std::vector<std::vector<Seen>> taken;
  for (int c = 0; c < 3; ++c) {
    DataRig rig(layer(str(kShared, "batch_size: ", kBatch)), 5, TEST,
                Share{.client = c, .clients = 3, .test_batches = batches});
    taken.push_back(take(rig, kTests * static_cast<int>(batches[static_cast<std::size_t>(c)])));
  }
  std::vector<Seen> all;
  for (int test = 0; test < kTests; ++test)
    for (std::size_t c = 0; c < 3; ++c) {
      const auto own = static_cast<std::ptrdiff_t>(batches[c] * kBatch);
      all.insert(all.end(), taken[c].begin() + test * own, taken[c].begin() + (test + 1) * own);
    }
  DataRig alone(layer(str("batch_size: ", kBatch)), 5, TEST);
  EXPECT_EQ(all, take(alone, kTests * 4));
}

// Divides two batches among four clients, two of which read nothing, then among two others, then
// one.
TEST_P(ShareLayers, TestsGoOnAmongOtherClients) {
  constexpr int kBatch = 3, kTests = 3;
  kind().write(path_, 0, 23);
  if (!kind().by_processes) return;
  const std::string one = layer(str(kShared, "batch_size: ", kBatch));
  DataRig alone(one, 5, TEST);
  std::vector<std::string> states;
  for (const std::vector<std::int64_t>& batches :
       {std::vector<std::int64_t>{1, 1, 0, 0}, {1, 1}, {2}}) {
    const Seen first = take(alone, kTests * 2).front();
    std::vector<std::string> next;
    for (std::size_t c = 0; c < batches.size(); ++c) {
      DataRig rig(one, 5, TEST,
                  Share{.client = static_cast<int>(c),
                        .clients = static_cast<int>(batches.size()),
                        .test_batches = batches});
      if (!states.empty()) ASSERT_OK(rig.layer().load_states("", {states.begin(), states.end()}));
      const std::vector<Seen> taken = take(rig, kTests * static_cast<int>(batches[c]));
      if (c == 0) {
        EXPECT_EQ(taken.front(), first) << batches.size();
      }
      next.push_back(rig.layer().save_state());
    }
    states = next;
  }
}

TEST_P(ShareLayers, WeightsAreDividedAmongReplicas) {
  kind().write(path_, 0, 12);
  if (!kind().by_processes) return;
  std::vector<Seen> all;
  for (int c = 0; c < 2; ++c)
    for (int r = 0; r < 2; ++r) {
      DataRig rig(layer(kShared + "batch_size: 1"), 5, TRAIN,
                  Share{.client = c, .clients = 2, .replica = r, .replicas = 2, .weights = {2, 1}});
      for (Seen& seen : take(rig, c == 0 ? 4 : 2)) all.push_back(std::move(seen));
    }
  expect_each_once_an_epoch(all, 0, 12);
}

// A state holds how far the whole job is, whatever the part of the client that reads it.
TEST_P(ShareLayers, OtherWeightsGoOnWhereTheEpochWas) {
  kind().write(path_, 0, 24);
  if (!kind().by_processes) return;
  const std::string one = layer(kShared + "batch_size: 1");
  const auto rig_of = [&](const std::vector<double>& weights) {
    return std::make_unique<DataRig>(one, 5, TRAIN,
                                     Share{.client = 1, .clients = 2, .weights = weights});
  };
  const auto next = [&](const std::vector<double>& before, int taken,
                        const std::vector<double>& after) {
    const auto saved = rig_of(before), rig = rig_of(after);
    take(*saved, taken);
    EXPECT_EQ(rig->layer().load_state(saved->layer().save_state()).ok(), true);
    return take(*rig, 1)[0][0];
  };
  EXPECT_EQ(next({}, 6, {2, 1}), 20) << "half through: 4 of its 8, which are 16 to 23";
  EXPECT_EQ(next({2, 1}, 4, {}), 13) << "half through: 6 of 1, 3, 5 ...";
  EXPECT_EQ(next({2, 1}, 4, {1, 2}), 16) << "8 of its 16, which are 8 to 23";
  EXPECT_EQ(next({2, 1}, 4, {2, 1}), 20);
  EXPECT_EQ(next({1, 1}, 18, {1, 3}), 15) << "9 of 18, in the second epoch";
}

// Other clients begin their parts of the epoch where all were in theirs, with weights, and without
// or with equal ones.
TEST_P(ShareLayers, OtherNetsWithWeightsGoOnWhereTheEpochWas) {
  kind().write(path_, 0, 24);
  if (!kind().by_processes) return;
  const std::string one = layer(kShared + "batch_size: 1");
  const auto states_of = [&](const std::vector<double>& weights, const std::vector<int>& taken) {
    std::vector<std::string> states;
    for (int c = 0; c < std::ssize(taken); ++c) {
      DataRig rig(
          one, 5, TRAIN,
          Share{.client = c, .clients = static_cast<int>(taken.size()), .weights = weights});
      take(rig, taken[static_cast<std::size_t>(c)]);
      states.push_back(rig.layer().save_state());
    }
    return states;
  };
  const auto next = [&](const std::vector<std::string>& states, const Share& share) {
    DataRig rig(one, 5, TRAIN, share);
    EXPECT_TRUE(rig.layer().load_states("", {states.begin(), states.end()}).ok());
    return take(rig, 1)[0][0];
  };
  const std::vector<std::string> weighted = states_of({2, 1}, {8, 4}),
                                 equal = states_of({}, {6, 6});
  EXPECT_EQ(next(weighted, {.client = 1, .clients = 3}), 13) << "12 were read";
  EXPECT_EQ(next(weighted, {.client = 1, .clients = 3, .weights = {1, 2, 1}}), 12)
      << "half of 6 to 17";
  EXPECT_EQ(next(equal, {.client = 1, .clients = 3, .weights = {1, 2, 1}}), 12);
  EXPECT_EQ(next(equal, {.client = 0, .clients = 1}), 12);
}

TEST_P(ShareLayers, AnotherNumberOfNetsGoesOnWhereTheJobWas) {
  kind().write(path_, 0, 23);
  const std::string shuffled = layer(kShared + "shuffle: true batch_size: 2");
  DataRig alone(layer("shuffle: true batch_size: 1"), 5);
  const std::vector<Seen> row = take(alone, 120);
  for (int before = 1; before <= 5; ++before)
    for (int after = 1; after <= 5; ++after) {
      if (!kind().by_processes && before * after > 1) continue;
      SCOPED_TRACE(str(before, " then ", after));
      DataRig saved(shuffled, 5, TRAIN, Share{.client = before - 1, .clients = before});
      take(saved, 5);
      // At most after - 1 records are read twice, and none is left out.
      const int used = 10 * before, go_on = used / after * after;
      for (int i = 0; i < after; ++i) {
        DataRig rig(shuffled, 77, TRAIN, Share{.client = i, .clients = after});
        ASSERT_OK(rig.layer().load_state(saved.layer().save_state()));
        const std::vector<Seen> items = take(rig, 3);
        for (int n = 0; n < 6; ++n)
          EXPECT_EQ(items[static_cast<std::size_t>(n)],
                    row[static_cast<std::size_t>(go_on + n * after + i)]);
      }
    }
}

// Changes the number of nets that were in step, without a snapshot in between: no record is read
// twice in an epoch, and none left out, whatever the numbers; and again. Each net is new or was
// there.
TEST_P(ShareLayers, AmongOtherNetsEachRecordIsReadOnce) {
  if (!kind().by_processes) return;
  const int count = 41;
  kind().write(path_, 0, count);
  const std::string shuffled = layer(kShared + "shuffle: true batch_size: 2");
  std::vector<Seen> all;
  std::vector<std::string> states;
  for (const auto& [nets, batches] : {std::pair{3, 2}, {2, 5}, {5, 3}, {4, 5}, {1, 20}}) {
    std::vector<std::vector<Seen>> taken;
    std::vector<std::string> next;
    for (int c = 0; c < nets; ++c) {
      DataRig rig(shuffled, 5, TRAIN, Share{.client = c, .clients = nets});
      const std::vector<std::string_view> before(states.begin(), states.end());
      if (!before.empty())
        ASSERT_OK(rig.layer().load_states(
            c < std::ssize(before) ? before[static_cast<std::size_t>(c)] : std::string_view(),
            before));
      taken.push_back(take(rig, batches));
      const std::string saved = rig.layer().save_state();
      next.push_back(saved);
      DataRig again(shuffled, 5, TRAIN, Share{.client = c, .clients = nets});
      ASSERT_OK(again.layer().load_state(saved));
      EXPECT_EQ(again.layer().save_state(), saved);
    }
    states = next;
    for (std::size_t n = 0; n < taken[0].size(); ++n)
      for (const std::vector<Seen>& net : taken) all.push_back(net[n]);
  }
  expect_each_once_an_epoch(all, 0, count);
}

TEST_P(ShareLayers, EachClientReadsItsPart) {
  kind().write(path_ + "_0", 0, 7);
  kind().write(path_ + "_1", 7, 8);
  kind().write(path_ + "_b", 15, 3);
  for (const std::string more : {"batch_size: 2", "batch_size: 2 shuffle: true"})
    for (int replicas = 1; replicas <= 3; ++replicas)
      for (int client = 0; client < 3; ++client) {
        SCOPED_TRACE(str(more, " client ", client, " of 3, with ", replicas));
        std::vector<std::vector<Seen>> taken;
        for (int r = 0; r < replicas; ++r) {
          const Share share{.client = client,
                            .clients = 3,
                            .replica = r,
                            .replicas = replicas,
                            .suffix = client == 2 ? "b" : ""};
          DataRig rig(layer(more), 5, TRAIN, share);
          taken.push_back(take(rig, 12));
        }
        std::vector<Seen> all;
        for (std::size_t n = 0; n < 24; ++n)
          for (const std::vector<Seen>& net : taken) all.push_back(net[n]);
        const int first[] = {0, 7, 15}, count[] = {7, 8, 3};
        expect_each_once_an_epoch(all, first[client], count[client]);
      }
}

TEST_P(ShareLayers, PartsHaveOrdersAndCropsOfTheirOwn) {
  kind().write(path_ + "_0", 0, 12);
  kind().write(path_ + "_1", 0, 12);  // the same, so that only the random numbers differ
  const std::string prototxt = layer("batch_size: 12 shuffle: true");
  DataRig zero(prototxt, 5, TRAIN, Share{.client = 0, .clients = 2}),
      one(prototxt, 5, TRAIN, Share{.client = 1, .clients = 2});
  EXPECT_NE(take(zero, 1), take(one, 1));
  DataRig alone(prototxt, 5);  // client 0 of a job is what one client is
  DataRig again(prototxt, 5, TRAIN, Share{.client = 0, .clients = 2});
  EXPECT_EQ(take(alone, 2), take(again, 2));
  // A state of client 0 makes client 1 go on in its own order.
  DataRig restored(prototxt, 9, TRAIN, Share{.client = 1, .clients = 2});
  ASSERT_OK(restored.layer().load_state(zero.layer().save_state()));
  EXPECT_EQ(take(restored, 2), take(one, 2));
}

TEST_P(ShareLayers, AMissingPartIsNamedWithTheFix) {
  kind().write(path_, 0, 4);
  kind().write(path_ + "_0", 0, 2);
  const std::string prototxt = layer("batch_size: 1");
  EXPECT_EQ(trouble(prototxt, Share{.client = 0, .clients = 2}), "");
  const std::string words = trouble(prototxt, Share{.client = 1, .clients = 2});
  EXPECT_HAS(words, path_ +
                        "_1, the part of client 1 of 2, does not exist; make the parts with "
                        "partition_data --num_partitions=2 " +
                        path_ + ", or set shared_file_system: true if every client can read " +
                        path_);
  EXPECT_HAS(trouble(prototxt, Share{.client = 1, .clients = 2, .suffix = "left"}),
             path_ + "_left, the part of client 1 of 2, does not exist");
  std::filesystem::remove_all(path_);
  if (kind().by_processes) {
    // The part of client 0 is not taken for it.
    EXPECT_HAS(trouble(layer(kShared + "batch_size: 1"), Share{.client = 0, .clients = 2}), path_);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShareLayers,
                         testing::Values(Kind{"lmdb"}, Kind{"datumfile"}, Kind{"leveldb", false},
                                         Kind{"imagelist"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::test::share_test
