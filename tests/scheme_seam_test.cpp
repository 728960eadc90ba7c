// Schemes that this program has not, each a page of an author's: the seam between scheme and shard holds them as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/table/scheme.h"
#include "support/shard_rig.h"

namespace shoal::table {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

// Reads what it holds as soon as its own is in, as asynchronous schemes do.
class Free : public Scheme {
 public:
  std::string name() const override { return "of a test"; }
  bool readable(const RowView& row, int worker, Clock clock) const override { return row.workers[static_cast<std::size_t>(worker)].merged >= clock; }
};

template <class S, class... Args>
SchemeMaker maker(Args... args) {
  return [=](std::string_view) -> Result<std::unique_ptr<Scheme>> { return std::unique_ptr<Scheme>(std::make_unique<S>(args...)); };
}

Push with_payload(Push push, Payload payload) {
  push.payload = payload;
  return push;
}

// ---- elastic averaging (EASGD): w' - row pulls both ----

class Elastic final : public Free {
 public:
  explicit Elastic(float alpha) : alpha_(alpha) {}
  Task task() const override { return {.payload = Payload::kWeights}; }
  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    return Merge{.take = {0}, .weights = {1}, .scale = alpha_, .apply = Apply::kElastic};
  }

 private:
  const float alpha_;
};

TEST(SchemeSeam, HoldsElasticAveraging) {
  ShardRig rig(plan_of("elastic", 2), 0, 0, maker<Elastic>(0.5f));
  rig.give(0, with_payload(push_of(0, 0, 4), Payload::kWeights));
  EXPECT_EQ(rig.said(), "row 0@1=2v1 to 0") << "w' - e";
  rig.give(0, with_payload(push_of(0, 0, 4), Payload::kWeights));
  EXPECT_EQ(rig.said(), "row 0@1=2v1 to 0") << "repeated: the same answer, nothing merged";
  rig.give(1, Get{0, 0});
  EXPECT_EQ(rig.said(), "row 0@0=2v1 to 1") << "the center";
  rig.give(1, with_payload(push_of(0, 0, 10), Payload::kWeights));
  EXPECT_EQ(rig.said(), "row 0@1=6v2 to 1");
  EXPECT_EQ(rig.refused(1, push_of(0, 1, 1)), "worker 1's push of row 0 at clock 1 holds a gradient; scheme 'of a test' takes weights");

  ShardRig other(plan_of("elastic", 1), 0, 0, maker<Elastic>(0.3f));
  other.give(0, with_payload(push_of(0, 0, 0.9f), Payload::kWeights));
  EXPECT_EQ(other.said(), "row 0@1=0.63v1 to 0");
  other.give(0, with_payload(push_of(0, 1, 0.27f), Payload::kWeights));
  EXPECT_EQ(other.said(), "row 0@2=0.27v2 to 0") << "the center, as the first exchange left it, pulls nothing";
}

// ---- groups (GSP): in step within a group, apart between groups, weighed 1 / Y by what a group missed ----

class Grouped final : public Free {
 public:
  explicit Grouped(std::vector<std::vector<int>> groups) : groups_(std::move(groups)) {}
  std::optional<Merge> next_merge(const RowView& row) const override {
    for (const std::vector<int>& group : groups_) {
      Merge merge;
      for (const int worker : group)
        for (std::size_t i = 0; i < row.held.size(); ++i)
          if (row.held[i].worker == worker) merge.take.push_back(i);
      const auto waits_for = [&](int worker) {
        const WorkerView& view = row.workers[static_cast<std::size_t>(worker)];
        return view.counts && view.pushed == view.merged;
      };
      if (merge.take.empty() || std::ranges::any_of(group, waits_for)) continue;
      const Version last = row.workers[static_cast<std::size_t>(group[0])].last, missed = row.version - last;
      merge.weights.assign(merge.take.size(), 1);
      merge.scale = 1 / static_cast<float>(static_cast<Version>(merge.take.size()) * std::max<Version>(1, missed + 1));
      return merge;
    }
    return std::nullopt;
  }

 private:
  const std::vector<std::vector<int>> groups_;
};

TEST(SchemeSeam, HoldsGroupsWeighedByWhatTheyMissed) {
  const struct {
    std::vector<int> order;
    std::vector<int> y;
  } cases[] = {{{0, 1, 2, 0, 1, 2}, {1, 2, 3, 3, 3, 3}}, {{0, 1, 2, 0, 0, 1}, {1, 2, 3, 3, 1, 4}}};
  for (const auto& c : cases) {
    ShardRig rig(plan_of("grouped", 3), 0, 0, maker<Grouped>(std::vector<std::vector<int>>{{0}, {1}, {2}}));
    Clock clocks[3] = {};
    float before = 0;
    for (std::size_t i = 0; i < c.order.size(); ++i) {
      rig.push(c.order[i], clocks[c.order[i]]++, -12);
      const float after = std::get<RowMessage>(rig.out().at(0).message).values.data[0];
      EXPECT_NEAR(12 / (after - before), c.y[i], 1e-5) << "update " << i;
      before = after;
      rig.said();
    }
  }
}

TEST(SchemeSeam, HoldsGroupsInStep) {
  ShardRig rig(plan_of("grouped", 4), 0, 0, maker<Grouped>(std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  rig.push(2, 0, 2);
  EXPECT_EQ(rig.said(), "");
  rig.push(1, 0, 4);
  EXPECT_EQ(rig.said(), "");
  rig.push(0, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 2") << "the members together, others unaffected";
  rig.leave(3);
  EXPECT_EQ(rig.said(), "row 0@1=-5v2 to 1") << "4 / (1 * 2): the round of who is left closes at once";
}

// The weight acts on the gradient alone: G = 6, |g| = 2, Y = 3, rate 0.1, momentum 0.9, h = 0.2, decay 0.1, w = 1 -> h = 0.29, w = 0.71.
TEST(SchemeSeam, AWeightActsOnTheGradientAndNotOnTheDecay) {
  Plan plan = plan_of("grouped", 3);
  plan.rule.momentum = 0.9f;
  plan.weight_decay = 0.1f;
  Shard shard(0, maker<Grouped>(std::vector<std::vector<int>>{{0, 1}, {2}}));
  Outbox out;
  const float h = 0.2f / 0.81f, w = 1 + h * 0.9f + h * 0.81f;   // so that two updates at rate 0 leave 0.2 and 1
  ASSERT_TRUE(shard.handle(0, PlanMessage{plan}, out).ok());
  ASSERT_TRUE(shard.handle(0, Init{0, Part::kHistory, {{&h, 1}, nullptr}}, out).ok());
  ASSERT_TRUE(shard.handle(0, Init{0, Part::kWeights, {{&w, 1}, nullptr}}, out).ok());
  for (Clock clock = 0; clock < 2; ++clock) {
    Push push = push_of(0, clock, 1);
    push.rate = 0, push.base = clock;
    ASSERT_TRUE(shard.handle(2, push, out).ok());
  }
  out.clear();
  for (int worker = 0; worker < 2; ++worker) {
    Push push = push_of(0, 0, worker == 0 ? 2 : 4);
    push.rate = 0.1f;
    ASSERT_TRUE(shard.handle(worker, push, out).ok());
  }
  ASSERT_EQ(out.size(), 2u);
  EXPECT_NEAR(std::get<RowMessage>(out[0].message).values.data[0], 0.71f, 1e-6);
  ASSERT_TRUE(shard.handle(0, Get{0, 1, Part::kHistory}, out).ok());
  EXPECT_NEAR(std::get<RowMessage>(out[2].message).values.data[0], 0.29f, 1e-6);
}

// ---- backup workers: the first N gradients of a version make the next, older ones are dropped ----

class Backup final : public Free {
 public:
  explicit Backup(std::size_t enough) : enough_(enough) {}
  std::optional<Merge> next_merge(const RowView& row) const override {
    Merge merge;
    for (std::size_t i = 0; i < row.held.size(); ++i) (row.held[i].base < row.version ? merge.drop : merge.take).push_back(i);
    if (merge.take.size() < enough_) merge.take.clear();
    else merge.take.resize(enough_);
    if (merge.take.empty() && merge.drop.empty()) return std::nullopt;
    merge.weights.assign(merge.take.size(), 1);
    merge.scale = 1 / static_cast<float>(enough_);
    return merge;
  }

 private:
  const std::size_t enough_;
};

TEST(SchemeSeam, HoldsBackupWorkers) {
  ShardRig rig(plan_of("backup", 3), 0, 0, maker<Backup>(2u));
  const auto push = [&](int worker, Clock clock, float gradient) {
    Push push = push_of(0, clock, gradient);
    push.rate = 0.5f, push.base = rig.base(worker, 0);
    rig.give(worker, push);
  };
  push(0, 0, 1);
  EXPECT_EQ(rig.said(), "");
  push(1, 0, 3);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 0, row 0@1=-1v1 to 1");
  push(2, 0, 100);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 2") << "dropped, and given the newest";
  push(0, 1, 2);
  push(2, 1, 4);
  EXPECT_EQ(rig.said(), "row 0@2=-2.5v2 to 0, row 0@2=-2.5v2 to 2");
  push(1, 1, 7);
  EXPECT_EQ(rig.said(), "row 0@2=-2.5v2 to 1") << "stale by then";
  EXPECT_EQ(rig.shard().counters().dropped, 2u);
}

// ---- weed-out by version: what is too old is dropped ----

class WeedOut final : public Free {
 public:
  explicit WeedOut(Version most) : most_(most) {}
  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    if (row.version - row.held[0].base > most_) return Merge{.take = {}, .weights = {}, .drop = {0}};
    return Merge{.take = {0}, .weights = {1}};
  }

 private:
  const Version most_;
};

TEST(SchemeSeam, HoldsWeedOutByVersion) {
  for (const Version base : {5, 6}) {
    Plan plan = plan_of("weedout", 2);
    plan.start = 5;
    ShardRig rig(plan, 0, 0, maker<WeedOut>(2));
    for (Clock clock = 5; clock < 8; ++clock) {
      rig.push(1, clock, 1);
      rig.said();
    }
    Push push = push_of(0, 5, 1);
    push.base = base;   // the row is at version 8
    rig.give(0, push);
    EXPECT_EQ(rig.said(), base == 6 ? "row 0@6=-4v9 to 0" : "row 0@6=-3v8 to 0");
  }
}

// ---- deltas: local steps, their mean added in step (ESync, model averaging), or each alone ----

class DeltaMean final : public Free {
 public:
  explicit DeltaMean(float rate) : rate_(rate) {}
  Task task() const override { return {.payload = Payload::kDelta}; }
  bool lockstep() const override { return true; }
  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty() || slowest(row) <= row.held[0].clock) return std::nullopt;
    Merge merge{.take = {}, .weights = {}, .scale = rate_ / static_cast<float>(row.held.size()), .apply = Apply::kAdd};
    for (std::size_t i = 0; i < row.held.size(); ++i) merge.take.push_back(i);
    std::ranges::sort(merge.take, {}, [&](std::size_t i) { return row.held[i].worker; });
    for (const std::size_t i : merge.take) merge.weights.push_back(row.held[i].weight);
    return merge;
  }

 private:
  const float rate_;
};

TEST(SchemeSeam, HoldsMeansOfDeltas) {
  for (const float rate : {1.0f, 0.5f}) {
    ShardRig rig(plan_of("esync", 2), 0, 0, maker<DeltaMean>(rate));
    rig.give(1, with_payload(push_of(0, 0, 3), Payload::kDelta));
    rig.give(0, with_payload(push_of(0, 0, 1), Payload::kDelta));
    EXPECT_EQ(rig.said(), rate == 1 ? "row 0@1=2v1 to 0, row 0@1=2v1 to 1" : "row 0@1=1v1 to 0, row 0@1=1v1 to 1");
  }
  // By samples and local steps: the worker says its weight. tau 2, p = 1/2 each, steps 1 and 3: weights 2 * 2 * (1/2) / M.
  ShardRig rig(plan_of("esync", 2), 0, 0, maker<DeltaMean>(1.0f));
  for (int worker = 0; worker < 2; ++worker) {
    Push push = with_payload(push_of(0, 0, worker == 0 ? 1 : 3), Payload::kDelta);
    push.weight = worker == 0 ? 2 : 2.0f / 3;
    rig.give(worker, push);
  }
  EXPECT_EQ(rig.said(), "row 0@1=2v1 to 0, row 0@1=2v1 to 1");
}

// ---- delay compensation (DC-ASGD): g + lambda g g (w - what its worker read) ----

class Compensated final : public Free {
 public:
  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    return Merge{.take = {0}, .weights = {1}, .compensation = 0.04f};
  }
  bool keeps_reads() const override { return true; }
};

TEST(SchemeSeam, HoldsDelayCompensation) {
  ShardRig rig(plan_of("dcasgd", 2), 0.5f, 0, maker<Compensated>());
  const auto push = [&](int worker, float gradient) {
    Push push = push_of(0, 0, gradient);
    push.rate = 0.1f;
    rig.give(worker, push);
  };
  for (int worker = 0; worker < 2; ++worker) rig.give(worker, Get{0, 0});
  EXPECT_EQ(rig.said(), "row 0@0=0.5v0 to 0, row 0@0=0.5v0 to 1");
  push(1, -5);   // read what the row is: the same as without
  EXPECT_EQ(rig.said(), "row 0@1=1v1 to 1");
  push(0, 2);
  EXPECT_EQ(rig.said(), "row 0@1=0.792v2 to 0");
}

}  // namespace
}  // namespace shoal::table
