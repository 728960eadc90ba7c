// Mistakes in solvers, in the files given to flags, and on command lines; see support/bad_input.h.
#include <gtest/gtest.h>

#include "support/bad_input.h"

namespace shoal::test::bad_command_test {
namespace {

auto all(std::vector<Case> cases) { return testing::ValuesIn(std::move(cases)); }

// ---- solvers

const std::string kLearns =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { batch_size: 4 source: "
    "'~/set' backend: DATUMFILE } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
    "num_output: 4 } }\n"
    "layer { name: 'flat' type: 'Flatten' bottom: 'data' top: 'flat' }\n"
    "layer { name: 'quiet' type: 'Silence' bottom: 'label' }\n"
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'flat' top: 'loss' }\n";

// All that the text does not say itself is as it should be.
Case solver(const std::string& name, std::string text, const Words& words, int code = 3,
            const Words& flags = {}) {
  const std::pair<std::string, std::string> usual[] = {
      {"net", "'@/net.prototxt'"}, {"base_lr", "0.01"},          {"lr_policy", "'fixed'"},
      {"max_iter", "2"},           {"snapshot_prefix", "'@/s'"}, {"snapshot_after_train", "false"}};
  for (const auto& [field, value] : usual)
    if (text.find(field + ":") == std::string::npos) text += " " + field + ": " + value;
  Case c{name,
         {{"net.prototxt", kLearns}, {"solver.prototxt", text}},
         {"train", "--solver=@/solver.prototxt", "--threads=1"},
         code,
         words};
  c.command.insert(c.command.end(), flags.begin(), flags.end());
  return c;
}

const std::string kSolver = "@/solver.prototxt: ";

INSTANTIATE_TEST_SUITE_P(
    Solver, BadInput,
    all({
        solver("UnknownField", "momentun: 0.9",
               {"@/solver.prototxt:1:1: SolverParameter has no field 'momentun'; did you mean "
                "'momentum'?"}),
        solver("FieldTwice", "base_lr: 1\nbase_lr: 2",
               {"@/solver.prototxt:2:1: 'base_lr' is given twice"}),
        solver("UnknownType", "type: 'Adamm'",
               {kSolver + "no solver type 'Adamm'; did you mean 'Adam'? Known: SGD, Nesterov, "}),
        solver("UnknownPolicy", "lr_policy: 'fixd'",
               {kSolver + "no lr_policy 'fixd'; did you mean 'fixed'? Known: fixed, step, "}),
        solver("NoPolicy", "lr_policy: ''", {kSolver + "lr_policy is not given; known: fixed, "}),
        solver("NegativeRate", "base_lr: -1", {kSolver + "base_lr is -1; it must not be negative"}),
        solver("InfiniteRate", "base_lr: inf", {kSolver + "base_lr is inf; it must be finite"}),
        solver("NoStepsize", "lr_policy: 'step'", {kSolver + "stepsize is 0"}),
        solver("NegativeMaxIter", "max_iter: -1",
               {kSolver + "max_iter is -1; it must be 0 or more"}),
        solver("IterSizeZero", "iter_size: 0", {kSolver + "iter_size is 0; it must be 1 or more"}),
        solver("UnknownRegularization", "regularization_type: 'L3'",
               {kSolver + "no regularization_type 'L3'; known: L1, L2"}),
        solver("TwoNets", "net: 'x' train_net: 'y'",
               {kSolver + "exactly one of net, net_param, train_net and train_net_param"}),
        solver("NetMissing", "net: '@/no.prototxt'",
               {kSolver + "net: cannot open @/no.prototxt: No such file or directory"}),
        solver("NetIsASolver", "net: '~/solver.prototxt'",
               {"~/solver.prototxt is a solver in text form (.prototxt), not a net"}),
        solver("TestIterBelowZero", "test_iter: -1 test_interval: 1",
               {kSolver + "test_iter is -1; it must be 1 or more"}),
        solver("NoTestInterval", "test_iter: 1",
               {kSolver + "test_iter is given, but test_interval is not"}),
        solver("UnknownBest", "snapshot_best: 'x' test_iter: 1 test_interval: 1",
               {kSolver + "snapshot_best is 'x'"}),
        solver("WeightsMissing", "weights: '@/no.caffemodel'",
               {"cannot open @/no.caffemodel: No such file"}),
        solver("PrefixWithoutFolder", "snapshot_prefix: '@/no/s' snapshot: 1",
               {"Made folder @/no for snapshots"}, 0),
        solver("PrefixUnderAFile", "snapshot_prefix: '@/net.prototxt/s' snapshot: 1",
               {"snapshot_prefix '@/net.prototxt/s'", "Not a directory"}, 9),
        solver("NoMaxIter", "# max_iter:\n",
               {kSolver + "max_iter is not given: nothing is trained"}, 0),
        solver("NoStepvalue", "lr_policy: 'multistep' gamma: 0.1",
               {kSolver + "stepvalue is not given: with lr_policy \"multistep\" the rate never "
                          "changes"},
               0),
        solver("NoGammaOfInv", "lr_policy: 'inv' power: 0.75",
               {kSolver + "gamma is not given: with lr_policy \"inv\" the rate never changes"}, 0),
        solver("NoPowerOfPoly", "lr_policy: 'poly'",
               {kSolver + "power is not given: with lr_policy \"poly\" the rate never changes"}, 0),
        solver("Diverges", "base_lr: 1e10 max_iter: 50",
               {"the loss, ",
                "is not finite; the first that is not: @/net.prototxt:5: layer 'loss' "
                "(EuclideanLoss): top 'loss' is not finite",
                "A lower base_lr"},
               7),
    }),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    SolverWithoutLoss, BadInput,
    all({
        Case{"IsWarned",
             {{"net.prototxt", kLearns.substr(0, kLearns.find("layer { name: 'loss'"))},
              {"solver.prototxt",
               "net: '@/net.prototxt' base_lr: 1 lr_policy: 'fixed' max_iter: 1 snapshot_prefix: "
               "'@/s' snapshot_after_train: false"}},
             {"train", "--solver=@/solver.prototxt", "--threads=1"},
             0,
             {kSolver + "net '' has no loss in phase TRAIN: nothing is learned. A loss layer, such "
                        "as SoftmaxWithLoss, or a loss_weight makes one"}},
    }),
    name_of);

// ---- files given to flags

Case given(const std::string& name, const Words& flags, const Words& words, int code = 3) {
  return solver(name, "", words, code, flags);
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadInput,
    all({
        given("SolverMissing", {"--solver=@/no"}, {"cannot open @/no: No such file or directory"}),
        given("SolverIsANet", {"--solver=@/net.prototxt"},
              {"@/net.prototxt is a net in text form (.prototxt), not a solver",
               "in its field net"}),
        given("SolverIsAModel", {"--solver=~/model.caffemodel"},
              {"~/model.caffemodel is a model (.caffemodel), not a solver in text form"}),
        given("SolverIsAFolder", {"--solver=@"}, {"@ is a folder"}),
        given("WeightsMissing", {"--weights=@/no"},
              {"cannot open @/no: No such file or directory"}),
        given(
            "WeightsAreASnapshot", {"--weights=~/state.solverstate"},
            {"is a solver state (.solverstate), not a model (.caffemodel); give it to --snapshot"}),
        given("WeightsAreANet", {"--weights=@/net.prototxt"},
              {"@/net.prototxt is a net in text form (.prototxt), not a model"}),
        given("WeightsAreRecords", {"--weights=~/set"}, {"~/set is not a model (.caffemodel)"}),
        given("WeightsOfOtherShape", {"--weights=~/model.caffemodel"},
              {"@/net.prototxt:2: layer 'ip' (InnerProduct): param 0 has shape 4 4 (16), but layer "
               "'ip' in ~/model.caffemodel holds 3 4 (12)"}),
        given("SnapshotMissing", {"--snapshot=@/no"},
              {"cannot open @/no: No such file or directory"}),
        given(
            "SnapshotIsAModel", {"--snapshot=~/model.caffemodel"},
            {"is a model (.caffemodel), not a solver state (.solverstate); give it to --weights"}),
        given("SnapshotIsASolver", {"--snapshot=@/solver.prototxt"},
              {"is a solver in text form (.prototxt), not a solver state"}),
        given("SnapshotWithoutEnding", {"--snapshot=~/state"},
              {"cannot open ~/state; did you mean ~/state.solverstate?"}),
        given("SnapshotOfOtherShape", {"--snapshot=~/state.solverstate"},
              {"layer 'ip' (InnerProduct): param 0 has shape 4 4 (16)", "holds 3 4 (12)"}),
        Case{"TestModelIsASolver",
             {},
             {"test", "--model=~/solver.prototxt", "--weights=~/model.caffemodel"},
             3,
             {"~/solver.prototxt is a solver", "not a net"}},
        Case{"TestWeightsAreASnapshot",
             {},
             {"test", "--model=~/net.prototxt", "--weights=~/state.solverstate"},
             3,
             {"give it to --snapshot"}},
        Case{"UpgradeOfNothing", {}, {"upgrade_proto", "@/no", "@/out"}, 3, {"cannot open @/no"}},
        Case{"UpgradeIntoNoFolder",
             {},
             {"upgrade_proto", "~/net.prototxt", "@/no/out"},
             3,
             {"cannot create @/no/out: there is no folder @/no"}},
        Case{"UpgradeIntoAFolder",
             {},
             {"upgrade_proto", "~/net.prototxt", "@"},
             3,
             {"cannot write @: Is a directory"}},
        Case{"DeployOfASolver",
             {},
             {"deploy_net", "~/solver.prototxt", "@/out"},
             3,
             {"~/solver.prototxt is a solver"}},
        Case{"ConvertNothing",
             {},
             {"convert_format", "lmdb", "@/no", "leveldb", "@/out"},
             4,
             {"cannot open LMDB @/no: No such file or directory"}},
        Case{"ConvertAnotherKind",
             {},
             {"convert_format", "lmdb", "~/set", "leveldb", "@/out"},
             4,
             {"~/set is no LMDB", "it looks like a datumfile"}},
        Case{"ConvertIntoNoFolder",
             {},
             {"convert_format", "lmdb", "~/lmdb", "leveldb", "@/no/out"},
             4,
             {"cannot create @/no/out: there is no folder @/no"}},
        Case{"ConvertOntoItself",
             {},
             {"convert_format", "lmdb", "~/lmdb", "lmdb", "~/lmdb"},
             4,
             {"~/lmdb exists already"}},
        Case{"FeaturesOfNothing",
             {},
             {"extract_features", "@/no", "~/net.prototxt", "in", "@/out", "1", "lmdb"},
             3,
             {"cannot open @/no"}},
        Case{"FeaturesSwapped",
             {},
             {"extract_features", "~/net.prototxt", "~/model.caffemodel", "in", "@/out", "1",
              "lmdb"},
             3,
             {"~/model.caffemodel is a model (.caffemodel), not a net in text form"}},
        Case{"FeaturesOfNoKind",
             {},
             {"extract_features", "~/model.caffemodel", "~/net.prototxt", "in", "@/out", "1",
              "lmbd"},
             2,
             {"unknown back end \"lmbd\"; did you mean 'lmdb'? Known: leveldb, lmdb, datumfile, "
              "text"}},
        Case{"FeaturesOnNoDevice",
             {},
             {"extract_features", "~/model.caffemodel", "~/net.prototxt", "in", "@/out", "1",
              "lmdb", "gpu"},
             2,
             {"'gpu' is neither CPU nor GPU"}},
        Case{"FeaturesTwiceToOnePlace",
             {},
             {"extract_features", "~/model.caffemodel", "~/net.prototxt", "in,in", "@/o,@/o", "1",
              "lmdb"},
             2,
             {"the output @/o is named twice"}},
    }),
    name_of);

// ---- command lines

INSTANTIATE_TEST_SUITE_P(
    CommandLine, BadInput,
    all({
        Case{"UnknownFlag",
             {},
             {"train", "--sover=x"},
             2,
             {"unknown flag --sover; did you mean --solver?", "Try 'train --help'."}},
        Case{"FieldAsAFlag",
             {},
             {"train", "--solver=@/no", "--weight_decay=0.1"},
             2,
             {"unknown flag --weight_decay; a field of the solver is given as "
              "--set='weight_decay: ...'"}},
        Case{"FieldAsAFlagOfATest", {}, {"test", "--display=1"}, 2, {"unknown flag --display\n"}},
        Case{"NoFlag", {}, {"train"}, 2, {"this tool needs --solver=FILE"}},
        Case{"NoValue", {}, {"train", "--solver"}, 2, {"--solver needs a value (string)"}},
        Case{"AWord",
             {},
             {"train", "x.prototxt"},
             2,
             {"'x.prototxt' is not a flag; did you mean --solver=x.prototxt?"}},
        Case{"NumberTooLarge",
             {},
             {"time", "--model=x", "--iterations=99999999999"},
             2,
             {"is not a value of this flag (int32)"}},
        Case{"NoIterations",
             {},
             {"test", "--model=x", "--weights=x", "--iterations=0"},
             2,
             {"--iterations is 0; it must be 1 or more"}},
        Case{"NoWeights",
             {},
             {"test", "--model=x", "--weights=,"},
             2,
             {"this tool needs --weights=FILE"}},
        Case{"UnknownPhase",
             {},
             {"time", "--model=~/net.prototxt", "--phase=RUN"},
             2,
             {"--phase=RUN: a phase is TRAIN or TEST"}},
        Case{"SnapshotAndWeights",
             {},
             {"train", "--solver=x", "--snapshot=a", "--weights=b"},
             2,
             {"--snapshot=a and --weights=b exclude each other"}},
        Case{"TooManyThreads",
             {},
             {"train", "--solver=x", "--threads=100000"},
             2,
             {"--threads is 100000; it must be from 1 to 1024, or 0 for all cores"}},
        Case{"FewerThanNoThreads",
             {},
             {"train", "--solver=x", "--threads=-5"},
             2,
             {"--threads is -5; it must be from 1 to 1024"}},
        Case{"TooManyReplicas",
             {},
             {"train", "--solver=x", "--replicas=100000"},
             2,
             {"--replicas=100000 is not from 0 to 256"}},
        Case{"TooManyIoThreads",
             {},
             {"train", "--solver=x", "--io_threads=1000"},
             2,
             {"--io_threads=1000 is not from 1 to 256"}},
        Case{"NoNumberOfMilliseconds",
             {},
             {"train", "--solver=x", "--emulate_step_ms=nan"},
             2,
             {"--emulate_step_ms=nan is not from 0 to 1e+09"}},
        Case{"NoPort", {}, {"train", "--solver=x", "--port=-7"}, 2, {"--port=-7 is not from -1"}},
        Case{"NoAddress",
             {},
             {"train", "--solver=x", "--advertise=x:y:z"},
             2,
             {"--advertise=x:y:z is neither a host nor host:port"}},
        Case{"ADeviceForAFile",
             {},
             {"train", "--solver=/dev/zero"},
             3,
             {"cannot read /dev/zero: it is no regular file"}},
        Case{"Gpu", {}, {"train", "--solver=x", "--gpu=77"}, 5, {"GPU 77 cannot be used"}},
        Case{"QueryOfNoGpu", {}, {"device_query", "--gpu=77"}, 5, {"GPU 77 cannot be used"}},
        Case{"QueryOfNoNumber",
             {},
             {"device_query", "--gpu=0,x"},
             2,
             {"--gpu=0,x: 'x' is not the number of a GPU"}},
        Case{"UnknownCommand",
             {},
             {"caffe", "brew"},
             2,
             {"caffe: no command 'brew'", "train|test|time"}},
        Case{"UnknownBackend",
             {},
             {"convert_format", "sqlite", "x", "lmdb", "@/out"},
             2,
             {"unknown back end \"sqlite\"; known: leveldb, lmdb, datumfile"}},
        Case{"TooFewWords",
             {},
             {"convert_format", "lmdb"},
             2,
             {"too few words on the command line",
              "convert_format IN_TYPE IN_PATH OUT_TYPE OUT_PATH"}},
        Case{"NoImagesToDraw",
             {},
             {"draw_digits", "--train=0", "@"},
             2,
             {"--train and --test must be at least 1"}},
    }),
    name_of);

}  // namespace
}  // namespace shoal::test::bad_command_test
