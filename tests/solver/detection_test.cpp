// Tests of detections: mean average precision, of one solver and of a team, and what is wrong with
// its fields.
#include <gtest/gtest.h>

#include "shoal/proto/annotated.pb.h"
#include "shoal/solver/precision.h"
#include "support/team_fixture.h"

namespace shoal::test::detection_test {
namespace {

// Four true boxes; right, wrong, right, right, wrong by falling score. Recalls 1/4 1/4 1/2 3/4 3/4,
// precisions 1 1/2 2/3 3/4 3/5.
const std::vector<JudgedDetection> kFive = {
    {0.6f, true}, {0.9f, true}, {0.5f, false}, {0.8f, false}, {0.7f, true}};

TEST(AveragePrecision, IsWhatEachVersionSaysByHand) {
  EXPECT_NEAR(average_precision(kFive, 4, ApVersion::kIntegral), 0.25 * (1 + 2.0 / 3 + 0.75),
              1e-12);
  EXPECT_NEAR(average_precision(kFive, 4, ApVersion::kMaxIntegral), 0.25 * (1 + 0.75 + 0.75),
              1e-12);
  EXPECT_NEAR(average_precision(kFive, 4, ApVersion::k11Point), (3 + 5 * 0.75) / 11, 1e-12);
  for (const ApVersion version :
       {ApVersion::kIntegral, ApVersion::kMaxIntegral, ApVersion::k11Point}) {
    EXPECT_EQ(average_precision(kFive, 0, version), 0);
    EXPECT_EQ(average_precision({}, 4, version), 0);
  }
}

TEST(AveragePrecision, LeavesOutWhatFoundADifficultBoxAndGoesOnElsewhere) {
  const std::vector<float> rows = {-1, 1, 2,    -1, -1,  //
                                   -1, 2, 0,    -1, -1,  //
                                   0,  1, 0.9f, 0,  0,   //
                                   0,  1, 0.8f, 1,  0,   //
                                   3,  1, 0.7f, 0,  1};
  Judgements first, second;
  first.add(std::span(rows).first(15));
  second.add(std::span(rows).subspan(15));
  ASSERT_TRUE(first.merge(second.save()).ok());
  const std::map<int, double> all = first.of_classes(ApVersion::kIntegral);
  EXPECT_EQ(all, (std::map<int, double>{{1, 0.5}, {2, 0}}));
  EXPECT_FALSE(first.merge("abc").ok());
}

// A net whose detections are the true boxes with corners times 0.9: those at the origin are right,
// small ones far from it are wrong.
class DetectionTest : public TeamTest {
 protected:
  void SetUp() override {
    TeamTest::SetUp();
    Records records;
    for (int i = 0; i < 6; ++i) {
      AnnotatedDatum record;
      *record.mutable_datum() = [] {
        Datum pixels;
        pixels.ParseFromString(datum(1, 2, 2, "abcd", 0));
        return pixels;
      }();
      for (int label = 1; label <= 2; ++label) {
        AnnotationGroup* const group = record.add_annotation_group();
        group->set_group_label(label);
        NormalizedBBox* const box = group->add_annotation()->mutable_bbox();
        const bool far = label == 2 && i % 3 == 0;
        box->set_xmin(far ? 0.8f : 0);
        box->set_ymin(far ? 0.8f : 0);
        box->set_xmax(far ? 0.9f : 0.5f);
        box->set_ymax(far ? 0.9f : 0.5f);
      }
      records.push_back({"r" + std::to_string(i), record.SerializeAsString()});
    }
    ASSERT_TRUE(write_records("datumfile", folder_ + "/boxes", records).ok());
  }

  SolverParameter detecting(const std::string& more) {
    SolverParameter made = plain(4, "test_interval: 1 test_iter: 3 " + more);
    NetParameter net = parse_net(
        "name: 'plain' layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: "
        "TRAIN } "
        "data_param { source: '" +
            folder_ +
            "/data' backend: ANY batch_size: 4 shared_file_system: true } } "
            "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' include { phase: "
            "TRAIN } "
            "inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } } "
            "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' "
            "include { "
            "phase: TRAIN } } "
            "layer { name: 'boxes' type: 'AnnotatedData' top: 'x' top: 'truth' include { phase: "
            "TEST } "
            "data_param { source: '" +
            folder_ +
            "/boxes' backend: ANY batch_size: 2 shared_file_system: true } } "
            "layer { name: 'quiet' type: 'Silence' bottom: 'x' include { phase: TEST } } "
            "layer { name: 'cut' type: 'Slice' bottom: 'truth' top: 'item' top: 'class' top: "
            "'rest' top: "
            "'corners' top: 'hard' include { phase: TEST } slice_param { axis: 3 slice_point: 1 "
            "slice_point: 2 "
            "slice_point: 3 slice_point: 7 } } "
            "layer { name: 'quiet2' type: 'Silence' bottom: 'rest' bottom: 'hard' include { phase: "
            "TEST } } "
            "layer { name: 'score' type: 'Power' bottom: 'class' top: 'score' include { phase: "
            "TEST } "
            "power_param { scale: 0.1 } } "
            "layer { name: 'less' type: 'Power' bottom: 'corners' top: 'less' include { phase: "
            "TEST } "
            "power_param { scale: 0.9 } } "
            "layer { name: 'found' type: 'Concat' bottom: 'item' bottom: 'class' bottom: 'score' "
            "bottom: "
            "'less' top: 'found' include { phase: TEST } concat_param { axis: 3 } } "
            "layer { name: 'eval' type: 'DetectionEvaluate' bottom: 'found' bottom: 'truth' top: "
            "'detection_eval' include { phase: TEST } detection_evaluate_param { num_classes: 3 } "
            "}",
        "net.prototxt");
    *made.mutable_net_param() = net;
    return made;
  }
};

TEST_F(DetectionTest, ATestHasTheMeanOfTheClassesPrecisions) {
  for (const auto& [version, of_two] : {std::pair{"Integral", (0.5 + 2.0 / 3 + 0.6 + 2.0 / 3) / 6},
                                        {"MaxIntegral", 4.0 / 6 * 2 / 3},
                                        {"11point", 7.0 / 11 * 2 / 3}}) {
    const LogLines log;
    Solver solver(detecting(str("eval_type: 'detection' show_per_class_result: true ap_version: '",
                                version, "'")),
                  with_name("x"));
    const std::vector<TestScore> scores = or_throw(solver.test(0));
    ASSERT_EQ(scores.size(), 1u);
    EXPECT_EQ(scores[0].output, "detection_eval");
    // All of class 1 are right. Of class 2, in order: wrong, right, right, wrong, right, right.
    EXPECT_NEAR(scores[0].mean, (1 + of_two) / 2, 1e-6);
    EXPECT_TRUE(log.has("class1: 1"));
    EXPECT_TRUE(log.has("    Test net output #0: detection_eval = 0\\.[0-9]+")) << version;
  }
}

// A test of eval_type "detection" prints the precision, not the numbers that it is made from.
TEST_F(DetectionTest, WarnsOfManyNumbersOnlyIfATestPrintsThem) {
  for (const auto& [type, warns] : {std::pair{"detection", false}, {"classification", true}}) {
    SCOPED_TRACE(type);
    SolverParameter made = detecting(str("eval_type: '", type, "'"));
    LayerParameter& last = *made.mutable_net_param()->mutable_layer()->rbegin();
    last.mutable_detection_evaluate_param()->set_num_classes(300);
    const LogLines log;
    Solver solver(made, with_name("x"));
    EXPECT_EQ(log.has("output 'detection_eval' of net .* a line of the log each at every test.*"),
              warns);
  }
}

TEST_F(DetectionTest, SaysOfNoFieldThatIsReadThatItHasNoEffect) {
  const SolverParameter made = detecting("eval_type: 'detection'");
  const LogLines log;
  Solver solver(made, with_name("x"));
  EXPECT_TRUE(log.has("Creating test net .*"));
  EXPECT_FALSE(log.has(".*has no effect on a layer of this type"));
}

TEST_F(DetectionTest, ATeamHasThePrecisionOfOneSolver) {
  const SolverParameter made = detecting("eval_type: 'detection'");
  Solver alone(made, with_name("x"));
  const double want = or_throw(alone.test(0))[0].mean;
  std::vector<double> got(2);
  run(2, made, [&](Solver& solver, Team& team) {
    got[static_cast<std::size_t>(team.index())] = or_throw(solver.test(0)).at(0).mean;
  });
  EXPECT_EQ(got[0], got[1]);
  EXPECT_NEAR(got[0], want, 0.1);  // equal scores come in another order
}

TEST_F(DetectionTest, TheBestModelGoesByThePrecision) {
  SolverParameter made = detecting(
      "eval_type: 'detection' snapshot_best: 'detection_eval max' max_iter: 1 "
      "snapshot_after_train: false");
  const LogLines log;
  Solver solver(made, with_name("x"));
  ASSERT_TRUE(solver.solve().ok());
  EXPECT_TRUE(log.has("Best detection_eval so far, .*"));
}

TEST_F(DetectionTest, SaysWhatIsWrongWithItsFields) {
  const auto words = [&](const SolverParameter& made) {
    return message_of([&] { Solver solver(made, with_name("x")); });
  };
  EXPECT_HAS(words(detecting("eval_type: 'detections'")),
             "x: eval_type is 'detections'; it is classification or detection");
  EXPECT_HAS(words(detecting("eval_type: 'detection' ap_version: '12point'")),
             "ap_version is '12point'; it is one of 11point, MaxIntegral, Integral");
  EXPECT_HAS(words(plain(4, "test_interval: 1 test_iter: 1 eval_type: 'detection'")),
             "has no output of a DetectionEvaluate layer");
}

TEST_F(DetectionTest, ATeamHasNoPlateau) {
  const SolverParameter made = plain(4, "lr_policy: 'plateau' gamma: 0.1 plateau_winsize: 2");
  const auto thrown = run_team(2, [&](Team& team) { Solver solver(made, options_of(made, team)); });
  ASSERT_EQ(thrown.size(), 2u);
  EXPECT_HAS(thrown[0],
             "x: lr_policy \"plateau\" follows the loss of one solver, and 2 train together");
}

}  // namespace
}  // namespace shoal::test::detection_test
