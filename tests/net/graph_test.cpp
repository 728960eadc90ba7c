// The graph of a net before it is built: rules, splits, and the plan of its memory.
#include "shoal/net/graph.h"

#include <gtest/gtest.h>

#include "shoal/base/random.h"
#include "shoal/net/memory_plan.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/expect.h"

namespace shoal::graph_test {
namespace {

TEST(GraphTest, RulesChooseLayers) {
  NetState state;
  state.set_phase(TEST);
  state.set_level(2);
  state.add_stage("a");
  NetStateRule rule;
  EXPECT_TRUE(rule_matches(rule, state));
  rule.set_phase(TRAIN);
  EXPECT_FALSE(rule_matches(rule, state));
  rule.set_phase(TEST);
  rule.set_min_level(2);
  rule.set_max_level(2);
  rule.add_stage("a");
  EXPECT_TRUE(rule_matches(rule, state));
  rule.set_min_level(3);
  EXPECT_FALSE(rule_matches(rule, state));
  rule.set_min_level(0);
  rule.add_stage("b");
  EXPECT_FALSE(rule_matches(rule, state)) << "all stages must be there";
  rule.clear_stage();
  rule.add_not_stage("a");
  EXPECT_FALSE(rule_matches(rule, state));
}

TEST(GraphTest, AStageThatLooksLikeAMisspeltOneIsNamed) {
  const auto words = [](const std::string& stages) {
    return misspelt_stage(
        parse_net("name: 'x' state { " + stages +
                      " } layer { name: 'a' type: 'Input' top: 'a' include { stage: 'dummy' } } "
                      "layer { name: 'b' type: 'ReLU' exclude { not_stage: 'deploy' } }",
                  "n"));
  };
  EXPECT_EQ(words("stage: 'dummy' stage: 'deploy'"), "");
  EXPECT_EQ(words("stage: 'dummy' stage: 'dumy'"),
            "stage 'dumy' is in no rule of net 'x'; did you mean 'dummy'?");
  EXPECT_EQ(words("stage: 'Deploy'"),
            "stage 'Deploy' is in no rule of net 'x'; did you mean 'deploy'?");
  EXPECT_EQ(words("stage: 'val'"), "") << "other nets of the solver may have it";
}

// Returns the phase of each layer, and use_global_stats where it is given: "TRAIN, TEST true".
std::string phases_of(const std::string& layers, Phase phase) {
  NetParameter net = parse_net(layers, "n");
  net.mutable_state()->set_phase(phase);
  std::string words;
  const NetParameter once = filter_net(net), twice = filter_net(once);
  EXPECT_EQ(once.SerializeAsString(), twice.SerializeAsString());
  for (const LayerParameter& layer : once.layer()) {
    words += str(words.empty() ? "" : ", ", Phase_Name(layer.phase()));
    if (layer.batch_norm_param().has_use_global_stats())
      words += layer.batch_norm_param().use_global_stats() ? " true" : " false";
  }
  return words;
}

TEST(GraphTest, ALayersOwnPhaseCountsWhereItChangesWhatIsComputed) {
  const std::string data = "layer { name: 'd' type: 'Input' top: 'x' } ";
  const auto with = [&](const std::string& layer, Phase phase) {
    return phases_of(data + "layer { name: 'l' bottom: 'x' top: 'y' " + layer + " }", phase);
  };
  EXPECT_EQ(with("type: 'Dropout'", TRAIN), "TRAIN, TRAIN");
  EXPECT_EQ(with("type: 'Dropout' phase: TEST", TRAIN), "TRAIN, TEST");
  EXPECT_EQ(with("type: 'Dropout' phase: TRAIN", TEST), "TEST, TRAIN");
  EXPECT_EQ(with("type: 'Pooling' phase: TEST pooling_param { pool: STOCHASTIC }", TRAIN),
            "TRAIN, TEST");
  // A backward pass follows, whatever the layer's phase.
  EXPECT_EQ(with("type: 'ReLU' phase: TEST", TRAIN), "TRAIN, TRAIN");
  EXPECT_EQ(with("type: 'BatchNorm' phase: TEST", TRAIN), "TRAIN, TRAIN true");
  EXPECT_EQ(with("type: 'BatchNorm' phase: TRAIN", TEST), "TEST, TEST false");
  EXPECT_EQ(
      with("type: 'BatchNorm' phase: TEST batch_norm_param { use_global_stats: false }", TRAIN),
      "TRAIN, TRAIN false");
  EXPECT_EQ(with("type: 'BatchNorm'", TRAIN), "TRAIN, TRAIN");
  // A model that a program wrote has a phase in each layer.
  EXPECT_EQ(phases_of("layer { name: 'd' type: 'Input' top: 'x' phase: TRAIN } layer { name: 'l' "
                      "type: 'Dropout' bottom: 'x' top: 'y' phase: TRAIN }",
                      TEST),
            "TEST, TEST");
}

TEST(GraphTest, IncludeAndExcludeTogetherAreRefusedWithThePlace) {
  const NetParameter net =
      parse_net("layer { name: 'a' type: 'ReLU' include { phase: TRAIN } exclude { phase: TEST } }",
                "test.prototxt");
  EXPECT_HAS(test::message_of([&] { filter_net(net); }),
             "test.prototxt:1: layer 'a' (ReLU): has both include and exclude rules");
}

TEST(GraphTest, SplitsHaveCaffesNamesAndCarryTheLossWeight) {
  const NetParameter net = insert_splits(
      parse_net("layer { name: 'd' type: 'Input' top: 'x' }\n"
                "layer { name: 'a' type: 'Power' bottom: 'x' top: 'y' loss_weight: 2 }\n"
                "layer { name: 'b' type: 'ReLU' bottom: 'y' top: 'z' }\n",
                "test.prototxt"));
  ASSERT_EQ(net.layer_size(), 4);
  EXPECT_EQ(net.layer(1).loss_weight(0), 0);
  const LayerParameter& split = net.layer(2);
  EXPECT_EQ(split.name(), "y_a_0_split");
  EXPECT_EQ(split.type(), "Split");
  EXPECT_EQ(split.top(1), "y_a_0_split_1");
  EXPECT_EQ(split.loss_weight(0), 2);
  EXPECT_EQ(split.loss_weight(1), 0);
  EXPECT_EQ(net.layer(3).bottom(0), "y_a_0_split_1");
}

TEST(GraphTest, ALossThatALayerReadsKeepsTheWeightThatALossHas) {
  const NetParameter net = insert_splits(
      parse_net("layer { name: 'd' type: 'Input' top: 'x' top: 't' }\n"
                "layer { name: 'l' type: 'EuclideanLoss' bottom: 'x' bottom: 't' top: 'l' }\n"
                "layer { name: 'p' type: 'Power' bottom: 'l' top: 'more' }\n",
                "test.prototxt"));
  ASSERT_EQ(net.layer_size(), 4);
  EXPECT_EQ(net.layer(1).loss_weight(0), 0);
  EXPECT_EQ(net.layer(2).loss_weight(0), 1);
  EXPECT_EQ(net.layer(2).loss_weight(1), 0);
}

TEST(GraphTest, AnInPlaceLayerBehindASplitIsNoLongerInPlace) {
  const NetParameter net =
      insert_splits(parse_net("layer { name: 'd' type: 'Input' top: 'x' }\n"
                              "layer { name: 'relu_y' type: 'ReLU' bottom: 'x' top: 'y' }\n"
                              "layer { name: 'p' type: 'Power' bottom: 'y' top: 'q' }\n"
                              "layer { name: 'r' type: 'ReLU' bottom: 'y' top: 'y' }\n"
                              "layer { name: 's' type: 'ReLU' bottom: 'y' top: 'w' }\n",
                              "test.prototxt"));
  ASSERT_EQ(net.layer_size(), 6);
  EXPECT_EQ(net.layer(4).bottom(0), "y_relu_y_0_split_1");
  EXPECT_EQ(net.layer(5).bottom(0), "y") << "the last layer reads the in-place layer's top";
}

TEST(MemoryPlanTest, BlocksThatLiveTogetherNeverOverlap) {
  Random random(testing::UnitTest::GetInstance()->random_seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> blocks(1 + random.below(40));
    std::size_t sum = 0;
    for (Lifetime& block : blocks) {
      block.bytes = 1 + random.below(5000);
      block.first = static_cast<int>(random.below(30));
      block.last = block.first + static_cast<int>(random.below(10));
      sum += (block.bytes + 255) / 256 * 256;
    }
    const MemoryPlan plan = plan_memory(blocks);
    EXPECT_LE(plan.bytes, sum);
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % 256, 0u);
      EXPECT_LE(plan.offsets[a] + blocks[a].bytes, plan.bytes);
      for (std::size_t b = 0; b < a; ++b) {
        const bool meet = blocks[a].first <= blocks[b].last && blocks[b].first <= blocks[a].last;
        const bool overlap = plan.offsets[a] < plan.offsets[b] + blocks[b].bytes &&
                             plan.offsets[b] < plan.offsets[a] + blocks[a].bytes;
        EXPECT_FALSE(meet && overlap) << "round " << round << " blocks " << b << " and " << a;
      }
    }
  }
}

TEST(MemoryPlanTest, AChainNeedsTwoBlocks) {
  const std::vector<Lifetime> chain{{512, 0, 1}, {512, 1, 2}, {512, 2, 3}, {512, 3, 4}};
  EXPECT_EQ(plan_memory(chain).bytes, 1024u);
}

}  // namespace
}  // namespace shoal::graph_test
