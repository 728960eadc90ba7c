// Repeats public bug reports about nets, solvers and features: the right values, and words that
// name the cause.
#include <gtest/gtest.h>

#include "support/reports_rig.h"

namespace shoal::test {
namespace {

TEST_F(Reports, ATwinOfTheTestNetHasTheTrainedParams) {
  const auto twin = [](const std::string& name) {
    return str("layer { name: '", name, "' type: 'InnerProduct' bottom: 'x' top: '", name,
               "' param { name: 'w' } param { name: 'b' } inner_product_param { num_output: 2 } "
               "include { phase: TEST } }\n",
               "layer { name: '", name, "_loss' type: 'SoftmaxWithLoss' bottom: '", name,
               "' bottom: 'label' top: '", name, "_loss' include { phase: TEST } }\n");
  };
  const Ran ran = train(str(kConstant, kProduct, kLoss, twin("twin"), twin("third")),
                        "max_iter: 20 test_iter: 1 test_interval: 10");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto losses = values_of(ran.err, ": loss = ");  // of test and train outputs
  const auto twins = values_of(ran.err, "twin_loss = "),
             thirds = values_of(ran.err, "third_loss = ");
  ASSERT_EQ(twins.size(), 3u);
  EXPECT_EQ(twins, thirds);
  for (const std::string& value : twins)
    EXPECT_GT(std::ranges::count(losses, value), 0) << value << " is no loss of the trained layer";
  EXPECT_NE(twins[0], twins[2]);
  EXPECT_LACKS(ran.err, "does not train");
}

TEST_F(Reports, ALayerOfTheTestNetThatNothingTrainsIsNamed) {
  const Ran ran = train(
      str(kConstant, kProduct, kLoss,
          "layer { name: 'ip_' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { "
          "num_output: 2 } include { phase: TEST } }"),
      "max_iter: 1 test_iter: 1 test_interval: 1");
  EXPECT_EQ(ran.code, 0);
  EXPECT_HAS(ran.err, "does not train, 'ip_': they keep what --weights or their fillers give them");
}

TEST_F(Reports, DropoutOfNothingIsTheIdentity) {
  const std::string dropout =
      "layer { name: 'd' type: 'Dropout' bottom: 'ip' top: 'ip' "
      "dropout_param { dropout_ratio: 0 } }\n";
  const Ran with = train(str(kConstant, kProduct, dropout, kLoss), "max_iter: 4");
  const Ran without = train(str(kConstant, kProduct, kLoss), "max_iter: 4");
  ASSERT_EQ(with.code, 0) << with.err;
  EXPECT_EQ(values_of(with.err, "#0: loss = "), values_of(without.err, "#0: loss = "));
  EXPECT_EQ(values_of(with.err, "#0: loss = ").size(), 4u);
}

TEST_F(Reports, ALayersOwnPhaseCounts) {
  const Ran ran = train(
      "layer { name: 'in' type: 'DummyData' top: 'x' dummy_data_param { shape { "
      "dim: 2 dim: 4 } data_filler { type: 'constant' value: 1 } } }\n"
      "layer { name: 'd' type: 'Dropout' bottom: 'x' top: 'y' phase: TEST }",
      "max_iter: 1");
  EXPECT_EQ(values_of(ran.err, ": y = "), std::vector<std::string>(8, "1")) << ran.err;
}

TEST_F(Reports, LabelsAreCutToWholeNumbersWithOneWarning) {
  const std::string data =
      "layer { name: 'in' type: 'DummyData' top: 'x' top: 'label' dummy_data_param { shape { dim: "
      "8 "
      "dim: 6 } shape { dim: 8 } data_filler { type: 'constant' value: 1 } data_filler { type: "
      "'constant' value: VALUE } } }\n";
  const auto losses = [&](const std::string& value) {
    std::string own = data;
    own.replace(own.find("VALUE"), 5, value);
    const Ran ran = train(str(own, kProduct, kLoss), "max_iter: 3");
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(values_of(ran.err, "label 0.01 of 'label' is not a whole ").size(),
              value == "0.01" ? 1u : 0u);
    return values_of(ran.err, "#0: loss = ");
  };
  EXPECT_EQ(losses("0.01"), losses("0"));
  EXPECT_EQ(losses("1.9"), losses("1"));
}

TEST_F(Reports, ABadLabelIsBlamedOnItsOwnRecord) {
  Records images, labels;
  for (int i = 0; i < 4; ++i) {
    images.emplace_back(str("image_", i), datum(1, 1, 4, "abcd", 0));
    labels.emplace_back(str("label_", i),
                        datum(1, 1, 1, std::string(1, i == 2 ? '\xff' : '\1'), 0));
  }
  ASSERT_OK(write_records("lmdb", at("images"), images));
  ASSERT_OK(write_records("lmdb", at("labels"), labels));
  const auto data = [&](const char* name, const char* top) {
    return str("layer { name: '", name, "' type: 'Data' top: '", top, "' data_param { source: '",
               at(name), "' backend: LMDB batch_size: 4 } }\n");
  };
  const Ran ran =
      train(str(data("images", "x"), data("labels", "label"), kProduct, kLoss), "max_iter: 1");
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, str("record label_2 of ", at("labels")));
  EXPECT_HAS(ran.err, "label 255 of 'label' at item 2");
  EXPECT_HAS(ran.err, "ignore_label: 255");
  // Behind a layer that leaves the items in their places.
  const Ran behind =
      train(str(data("images", "x"), data("labels", "raw"),
                "layer { name: 'p' type: 'Power' bottom: 'raw' top: 'label' }\n", kProduct, kLoss),
            "max_iter: 1");
  EXPECT_HAS(behind.err, str("record label_2 of ", at("labels")));
}

TEST_F(Reports, ASnapshotOfAnotherRuleIsRefusedByBothNames) {
  const std::string net = str(kConstant, kProduct, kLoss);
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"SGD", "AdaGrad"},     {"SGD", "RMSProp"}, {"Adam", "AdaDelta"},
      {"AdaGrad", "RMSProp"}, {"RMSProp", "SGD"}, {"AdaDelta", "Adam"}};
  for (const auto& [before, now] : refused) {
    ASSERT_EQ(train(net, str("max_iter: 3 type: '", before, "'")).code, 0);
    const Ran ran = train(net, str("max_iter: 6 type: '", now, "'"),
                          "--snapshot=" + at("m_iter_3.solverstate"));
    EXPECT_EQ(ran.code, 3) << before << ", then " << now;
    EXPECT_HAS(ran.err,
               str("is from a solver of type ", before, ", and this one is of type ", now));
    // As BVLC Caffe writes it, without a word of the rule: squares are never below 0.
    std::filesystem::remove(at("m_iter_3.run"));
    std::filesystem::remove(at("m_iter_3.manifest"));
    const Ran bare = train(net, str("max_iter: 6 type: '", now, "'"),
                           "--snapshot=" + at("m_iter_3.solverstate"));
    if (before == "SGD" || before == "Adam") {
      EXPECT_EQ(bare.code, 3) << before << ", then " << now;
      EXPECT_HAS(bare.err, str("a solver of type ", now, " keeps squares, which never are"));
    }
  }
  // The velocities of these two are alike.
  ASSERT_EQ(train(net, "max_iter: 3 type: 'SGD' momentum: 0.5").code, 0);
  EXPECT_EQ(train(net, "max_iter: 6 type: 'Nesterov' momentum: 0.5",
                  "--snapshot=" + at("m_iter_3.solverstate"))
                .code,
            0);
}

TEST_F(Reports, TheRateGoesOnAsTheSolverSaysAfterAnotherPolicy) {
  const std::string net = str(kConstant, kProduct, kLoss);
  ASSERT_EQ(train(net, "max_iter: 10", "--set=lr_policy: 'step' gamma: 0.5 stepsize: 2").code, 0);
  put_file(at("solver.prototxt"),
           str("net: '", at("net.prototxt"),
               "' base_lr: 0.1 lr_policy: 'multistep' gamma: 0.1 "
               "stepvalue: 4 stepvalue: 15 max_iter: 17 display: 1 snapshot_prefix: '",
               at("n"), "'"));
  const Ran resumed = run(
      {"train", "--solver=" + at("solver.prototxt"), "--snapshot=" + at("m_iter_10.solverstate")});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_HAS(resumed.err,
             "has taken 4 steps of its rate; the stepvalues of this solver make it 1 by");
  EXPECT_EQ(values_of(resumed.err, ", lr = "),
            (std::vector<std::string>{"0.01", "0.01", "0.01", "0.01", "0.01", "0.001", "0.001"}));
  // Its own snapshot goes on without a word.
  const Ran again = run({"train", "--solver=" + at("solver.prototxt"), "--max_iter=19",
                         "--snapshot=" + at("n_iter_17.solverstate")});
  EXPECT_EQ(values_of(again.err, ", lr = "), (std::vector<std::string>{"0.001", "0.001"}));
  EXPECT_LACKS(again.err, "steps of its rate");
}

TEST_F(Reports, AnOutputThatFillsTheLogIsNamedWhenTheNetIsBuilt) {
  const std::string map =
      "layer { name: 'z' type: 'DummyData' top: 'map' dummy_data_param { shape { "
      "dim: 8 dim: 20 dim: 20 } } }\n";
  const Ran ran = train(str(map, kConstant, kProduct, kLoss), "max_iter: 1");
  EXPECT_EQ(ran.code, 0);
  EXPECT_HAS(ran.err, "output 'map' of net '' has 3200 numbers, a line of the log each at every");
  const Ran silent = train(
      str(map, "layer { name: 's' type: 'Silence' bottom: 'map' }\n", kConstant, kProduct, kLoss),
      "max_iter: 1");
  EXPECT_LACKS(silent.err, "a line of the log each");
}

TEST_F(Reports, ADrawingHasBothLayersOfOneName) {
  put_file(at("net.prototxt"),
           "layer { name: 'd' type: 'Input' top: 'x' input_param { shape { dim: 2 } } }\n"
           "layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'y' }\n"
           "layer { name: 'r' type: 'TanH' bottom: 'x' top: 'z' }\n");
  ASSERT_EQ(run({"draw_net", at("net.prototxt"), at("net.dot")}).code, 0);
  const std::string dot = get_file(at("net.dot"));
  for (const char* const words : {"\"layer r\" -> \"blob y\"", "r: ReLU", "r: TanH",
                                  "\"layer r'\" -> \"blob z\"", "[label=\"z\\n2\""})
    EXPECT_HAS(dot, words);
}

}  // namespace
}  // namespace shoal::test
