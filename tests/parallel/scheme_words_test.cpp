// Tests how the solver's scheme { } and the flags become the words of the table service.
#include "shoal/parallel/scheme_words.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "shoal/base/text.h"
#include "shoal/compat/mxnetg.h"
#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/merge_scheme.h"
#include "shoal/proto/solver.pb.h"
#include "support/data_files.h"

namespace shoal::parallel::scheme_words_test {
namespace {

SolverParameter solver(const std::string& text) {
  SolverParameter param;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &param)) << text;
  return param;
}

std::string phases(const std::string& text) {
  std::string words;
  std::int64_t begin = 0;
  try {
    for (const Phase& phase : phases_of(solver(text), "s"))
      words += str(words.empty() ? "" : "; ", phase.end - std::exchange(begin, phase.end), " ",
                   phase.scheme.words());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return words;
}

TEST(SchemeWords, AreOfTheFields) {
  const struct {
    const char* text;
    const char* words;
  } cases[] = {
      {"", "9 bsp"},
      {"scheme { }", "9 bsp"},
      {"scheme { type: 'SSP' staleness: 2 }", "9 ssp 2"},
      {"scheme { type: 'ssp' staleness: 0 }", "9 bsp"},
      {"scheme { type: 'async' payload: DELTA local_steps: 4 factor: 2 momentum_policy: RESET }",
       "9 async payload=delta local_steps=4 momentum_policy=reset factor=2"},
      {"scheme { type: 'async' weighting { function: POLYNOMIAL a: 0.1 definition: VERSION floor: "
       "2 cap: 9 on: RATE } compensation: 0.04 }",
       "9 async compensation=0.04 weighting=polynomial weighting_definition=version "
       "weighting_a=0.1 weighting_floor=2 weighting_cap=9 weighting_on=rate"},
      {"scheme { type: 'sync_backup' backup: 1 }", "9 sync_backup backup=1"},
      {"scheme { type: 'elastic' moving_rate: 0.3 exchange_order: BEFORE local_steps: 1 }",
       "9 elastic local_steps=1 moving_rate=0.3 exchange_order=before"},
      {"scheme { type: 'local_steps' local_steps: 5 aggregation: UNIFORM global_rate: 0.5 }",
       "9 local_steps local_steps=5 aggregation=uniform global_rate=0.5"},
      {"scheme { type: 'grouped' groups: '0,2|1' staleness: 3 }",
       "9 grouped groups=0,2|1 staleness=3"},
      {"scheme { type: 'weed_out' max_version_lag: 2 payload: WEIGHTS }",
       "9 weed_out max_version_lag=2 payload=weights"},
      {"scheme { type: 'dc_asgd' }", "9 dc_asgd"},
      {"scheme { type: 'weed_out' weedout: 4 merge_every: 8 }",
       "9 weed_out weedout=4 merge_every=8"},
      {"scheme { type: 'esync' mode: PULL epsilon: 0.25 min_steps: 2 max_steps: 40 }",
       "9 esync mode=pull epsilon=0.25 min_steps=2 max_steps=40"},
      {"scheme { type: 'drift_barrier' max_advance: 3 payload: WEIGHTS moving_rate: 0.5 }",
       "9 drift_barrier 3 payload=weights moving_rate=0.5"},
  };
  for (const auto& c : cases) EXPECT_EQ(phases(str("max_iter: 9 ", c.text)), c.words);
}

TEST(SchemeWords, SayWhatIsSenselessTogether) {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"scheme { type: 'bsp' staleness: 2 }",
       "s: scheme 'bsp staleness=2': bsp has no 'staleness', how far a worker may be ahead of the "
       "slowest"},
      {"scheme { type: 'async' moving_rate: 0.5 }",
       "async has no 'moving_rate', how hard elastic averaging pulls"},
      {"scheme { weighting { function: INVERSE } }",
       "bsp has no 'weighting', less weight for a stale update: of schemes whose updates come one "
       "by one"},
      {"scheme { type: 'async' local_steps: 4 }",
       "async has no 'local_steps', steps of a worker's own solver between two exchanges"},
      {"scheme { type: 'elastic' moving_rate: 1.5 }",
       "moving_rate is 1.5; it must be a number, above 0, at most 1"},
      {"scheme { type: 'elastic' moving_rate: 0 }",
       "moving_rate is 0; it must be a number, above 0, at most 1"},
      {"scheme { type: 'elastic' payload: GRADIENT }",
       "elastic has no 'payload', what workers send"},
      {"scheme { type: 'local_steps' global_rate: 0 }",
       "global_rate is 0; it must be a number, above 0"},
      {"scheme { type: 'sync_backup' }", "sync_backup needs backup=..."},
      {"scheme { type: 'sync_backup' backup: -1 }",
       "backup is -1; it must be a whole number, 0 to 65535"},
      {"scheme { type: 'grouped' groups: '0,x' }", "groups is 0,x: 'x' is no worker"},
      {"scheme { type: 'grouped' groups: '0||1' }", "groups is 0||1: '' is no worker"},
      {"scheme { type: 'grouped' groups: '' }", "groups is : '' is no worker"},
      {"scheme { type: 'grouped' groups: '0,1|1' }", "groups is 0,1|1: worker 1 is given twice"},
      {"scheme { type: 'grouped' groups: '0' groups_file: 'f' }",
       "groups and groups_file are given"},
      {"scheme { type: 'grouped' groups_file: '/no/such' }", "/no/such"},
      {"scheme { type: 'drift_barrier' max_advance: 0 }",
       "max_advance is 0; it must be a whole number, 1 to 1000000000"},
      {"scheme { type: 'drift_barrier' }", "drift_barrier needs max_advance=..."},
      {"scheme { type: 'elastic' staleness: 1 }",
       "elastic has no 'staleness', how far a worker may be ahead"},
      {"scheme { type: 'grouped' groups: '0' payload: DELTA }", "grouped has no 'payload'"},
      {"scheme { type: 'esinc' }", "no scheme is named 'esinc'"},
      {"scheme { iterations: -2 }", "s: iterations is -2; a phase has 1 or more"},
      {"scheme { } scheme { type: 'async' }", "s: scheme 1 of 2: iterations is not given"},
      {"scheme { iterations: 1 } scheme { type: 'asinc' }",
       "s: scheme 2 of 2: scheme 'asinc': no scheme is named 'asinc'; did you mean 'async'?"},
      {"max_iter: 2000000000 scheme { iterations: 1 } scheme { type: 'async' iterations: 1 }",
       "more than 100000 phases"},
  };
  for (const auto& c : cases)
    EXPECT_NE(phases(c.text).find(c.error), std::string::npos)
        << c.text << " says: " << phases(c.text);
}

// Uses SpeeDO's hybrid: 100, 200, 300 and a total.
TEST(SchemeWords, PhasesMakeUpTheIterations) {
  const std::string list =
      " scheme { iterations: 100 } scheme { type: 'async' iterations: 200 } scheme { type: 'ssp' "
      "staleness: 1 iterations: 300 }";
  EXPECT_EQ(phases("max_iter: 800" + list), "100 bsp; 200 async; 300 ssp 1; 100 bsp; 100 async");
  EXPECT_EQ(phases("max_iter: 150" + list), "100 bsp; 50 async");
  EXPECT_EQ(phases("max_iter: 100" + list), "100 bsp");
  EXPECT_EQ(phases(list), "100 bsp; 200 async; 300 ssp 1") << "the sum is the default";
  EXPECT_EQ(phases("max_iter: 80 scheme { iterations: 30 } scheme { type: 'async' }"),
            "30 bsp; 50 async")
      << "the last to the end";
  EXPECT_EQ(phases("max_iter: 20 scheme { iterations: 30 } scheme { type: 'async' }"), "20 bsp");
  EXPECT_EQ(phases("max_iter: 80 scheme { iterations: 30 }"), "80 bsp") << "again and again";
  EXPECT_EQ(
      phases(
          "max_iter: 9 scheme { iterations: 2 } scheme { type: 'ssp' iterations: 3 staleness: 0 }"),
      "9 bsp")
      << "a change to the same is none";
  EXPECT_EQ(phases("max_iter: 9 scheme { iterations: 2 } scheme { type: 'async' iterations: 3 } "
                   "scheme { iterations: 2 }"),
            "2 bsp; 3 async; 4 bsp");
}

TEST(SchemeWords, GroupsBySpeedHaveAProfileBeforeThem) {
  const std::string by_speed =
      "scheme { type: 'grouped' group_by: SPEED staleness: 2 weighting { function: NONE } ";
  EXPECT_EQ(phases("max_iter: 100 " + by_speed + "}"),
            "30 async; 70 grouped staleness=2 weighting=none");
  EXPECT_EQ(phases("max_iter: 100 " + by_speed + "profile_iterations: 8 }"),
            "8 async; 92 grouped staleness=2 weighting=none");
  EXPECT_EQ(phases("max_iter: 100 scheme { iterations: 20 } " + by_speed + "}"),
            "20 bsp; 30 async; 50 grouped staleness=2 weighting=none");
  const auto list = phases_of(
      solver("max_iter: 100 base_lr: 1 " + by_speed + "min_group_size: 2 base_lr: 0.5 }"), "s");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].search, std::nullopt);
  EXPECT_EQ(list[1].search, (GroupSearch{.profile = 30, .smallest = 2}));
  EXPECT_EQ(list[0].own, "base_lr: 0.5");
}

TEST(SchemeWords, SayWhatIsSenselessOfGroupsBySpeed) {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"scheme { type: 'grouped' }", "grouped needs groups=..."},
      {"scheme { type: 'grouped' groups: '0' group_by: SPEED }",
       "s: scheme: group_by: SPEED finds the groups, and groups says them; leave one out"},
      {"scheme { type: 'grouped' groups_file: 'f' group_by: SPEED }", "and groups_file says them"},
      {"scheme { type: 'ssp' group_by: SPEED }",
       "group_by needs type grouped, but the type is ssp"},
      {"scheme { type: 'grouped' groups: '0' min_group_size: 2 }",
       "min_group_size needs group_by: SPEED"},
      {"scheme { type: 'grouped' group_by: SPEED profile_iterations: 0 }",
       "profile_iterations is 0; it must be 1 or more"},
      {"scheme { type: 'grouped' group_by: SPEED min_group_size: 0 }",
       "min_group_size is 0; it must be 1 or more"},
      {"scheme { type: 'grouped' group_by: SPEED regroup_interval: -1 }",
       "regroup_interval is -1; it must be 0 or more"},
      {"scheme { type: 'grouped' group_by: SPEED payload: DELTA }", "grouped has no 'payload'"},
      {"max_iter: 30 scheme { type: 'grouped' group_by: SPEED }",
       "30 iterations leave none to train in groups, since profile_iterations is 30"},
  };
  for (const auto& c : cases)
    EXPECT_NE(phases(c.text).find(c.error), std::string::npos)
        << c.text << " says: " << phases(c.text);
}

TEST(SchemeWords, GroupsComeFromFiles) {
  EXPECT_EQ(compat::read_groups("0 2\n1 3\n").value(), "0,2|1,3");
  EXPECT_EQ(compat::read_groups("10.10.10.10 10.10.10.2\n10.10.10.9\n").value(), "2,1|0")
      << "MXNet-G's order of letters: its ids 13, 11 and 9";
  EXPECT_EQ(compat::read_groups("10.0.0.1 10.0.0.2 10.0.0.1\n10.0.0.3\n").value(), "2,3,1|0")
      << "an address for each of its workers";
  EXPECT_EQ(compat::read_groups("b b\na b\n").value(), "0,1,2|3") << "the first group counts";
  EXPECT_EQ(compat::read_groups("1 0 1\n").error().message,
            "1 is given twice; each worker is in one group");
  EXPECT_EQ(compat::read_groups(" \n\n").error().message, "it names no group");
  const std::string path = test::fresh_directory("groups") + "/groups";
  std::ofstream(path) << "0\n1  2\n";
  EXPECT_EQ(phases("max_iter: 1 scheme { type: 'grouped' groups_file: '" + path + "' }"),
            "1 grouped groups=0|1,2");
}

// ---- flags ----

SchemeFlag field(const char* name, const char* value) { return {name, name, value}; }

std::string merged(const std::string& text, const SchemeFlags& flags) {
  SolverParameter param = solver(text);
  try {
    merge_scheme(flags, param);
  } catch (const ConfigError& error) {
    return error.what();
  }
  std::string words;
  for (const SchemeParameter& scheme : param.scheme()) words += spec_of(scheme, "s").words();
  return words;
}

TEST(SchemeWords, FlagsStandAboveTheSolver) {
  const std::string ssp = "scheme { type: 'SSP' staleness: 2 weighting { function: INVERSE } }";
  EXPECT_EQ(merged("", {}), "");
  EXPECT_EQ(merged(ssp, {}), "ssp 2 weighting=inverse");
  EXPECT_EQ(merged(ssp, {.fields = {field("staleness", "3")}}), "ssp 3 weighting=inverse");
  EXPECT_EQ(merged(ssp, {.fields = {field("staleness", "unbounded")}}), "async weighting=inverse");
  EXPECT_EQ(merged(ssp, {.scheme = "async"}), "async") << "another type begins anew";
  EXPECT_EQ(merged(ssp, {.scheme = "SSP", .fields = {field("factor", "2")}}),
            "ssp 2 factor=2 weighting=inverse");
  EXPECT_EQ(merged("", {.fields = {field("staleness", "3")}}), "ssp 3");
  EXPECT_EQ(merged("", {.fields = {field("staleness", "0")}}), "bsp");
  EXPECT_EQ(merged("", {.scheme = "bsp", .fields = {field("staleness", "0")}}), "bsp");
  EXPECT_EQ(merged("", {.scheme = "ssp"}), "bsp");
  EXPECT_EQ(merged("", {.scheme = "async", .fields = {field("staleness", "unbounded")}}), "async");
  EXPECT_EQ(merged("", {.fields = {field("staleness", "1"), field("groups", "0|1")}}),
            "grouped groups=0|1 staleness=1");
  EXPECT_EQ(merged("", {.fields = {field("moving_rate", "0.5")}}), "elastic moving_rate=0.5");
  EXPECT_EQ(merged("", {.fields = {field("local_steps", "3")}}), "local_steps local_steps=3");
  EXPECT_EQ(merged("", {.fields = {field("local_steps", "3"), field("moving_rate", "0.5"),
                                   field("max_version_lag", "4")}}),
            "weed_out max_version_lag=4 payload=weights local_steps=3 moving_rate=0.5");
  EXPECT_EQ(merged("", {.scheme = "async",
                        .fields = {{"weighting_a", "weighting_a", "0.5"},
                                   {"weighting", "weighting", "exponential"}}}),
            "async weighting=exponential weighting_a=0.5");
  EXPECT_EQ(merged("", {.fields = {field("max_advance", "2"), field("moving_rate", "0.5")}}),
            "drift_barrier 2 payload=weights moving_rate=0.5");
  EXPECT_EQ(merged("", {.fields = {field("epsilon", "1")}}), "esync epsilon=1");
  EXPECT_EQ(merged("", {.scheme = "local_steps"}), "local_steps");
  EXPECT_EQ(merged("", {.sync = true}), "local_steps local_steps=1") << "SpeeDO's --train is 1";
  EXPECT_EQ(merged("", {.sync = true, .fields = {{"train", "local_steps", "5"}}}),
            "local_steps local_steps=5");
  EXPECT_EQ(merged("", {.fields = {{"movingRate", "moving_rate", "0.5"}}}),
            "elastic local_steps=1 moving_rate=0.5");
  EXPECT_EQ(
      merged("", {.fields = {{"movingRate", "moving_rate", "0.5"}, field("local_steps", "7")}}),
      "elastic local_steps=7 moving_rate=0.5");
  EXPECT_EQ(merged("", {.scheme = "async", .gradient_only = true}), "async factor=1");
  EXPECT_EQ(merged("", {.sync = true, .gradient_only = true}), "bsp");
  EXPECT_EQ(merged("", {.kv_store = "dist_sync"}), "bsp");
  EXPECT_EQ(merged("", {.kv_store = "dist_ssync", .fields = {field("staleness", "3")}}),
            "ssp 2 factor=1 weighting=inverse")
      << "MXNet-G's bound is one more than it admits";
  EXPECT_EQ(merged("", {.kv_store = "dist_async"}), "async factor=1 weighting=inverse");
  EXPECT_EQ(merged("", {.kv_store = "dist_async", .fields = {field("factor", "3")}}),
            "async factor=3 weighting=inverse");
  EXPECT_EQ(merged("", {.kv_store = "dist_gsync", .fields = {field("groups", "0|1")}}),
            "grouped groups=0|1");
}

TEST(SchemeWords, FlagsThatContradictAreNamed) {
  EXPECT_EQ(
      merged("", {.scheme = "bsp", .fields = {field("staleness", "2")}}),
      "--scheme=bsp and --staleness=2 exclude each other: only ssp and grouped have a staleness");
  EXPECT_EQ(merged("", {.scheme = "async", .sync = true}),
            "--scheme=async and --sync exclude each other");
  EXPECT_EQ(merged("", {.scheme = "async", .consistency_model = "SSP"}),
            "--scheme=async and --consistency_model=SSP exclude each other");
  EXPECT_EQ(merged("", {.consistency_model = "BSP"}),
            "--consistency_model=BSP: known are SSP, SSPPush and SSPAggr");
  EXPECT_EQ(merged("", {.kv_store = "local"}),
            "--kv-store=local: known are dist_sync, dist_async, dist_ssync and dist_gsync");
  EXPECT_EQ(merged("", {.fields = {field("staleness", "-1")}}),
            "--staleness=-1: it must be a number of clocks, 0 or more, or unbounded");
  EXPECT_EQ(merged("", {.fields = {field("backup", "many")}}),
            "--backup=many: it must be a whole number, 0 to 65535");
  EXPECT_EQ(merged("", {.fields = {field("factor", "")}}),
            "--factor=: it must be a number, 0 or more");
  EXPECT_EQ(merged("", {.fields = {field("payload", "deltas")}}),
            "--payload=deltas; did you mean 'delta'? Known: gradient, delta, weights");
  EXPECT_EQ(
      merged("scheme { iterations: 3 } scheme { type: 'async' }",
             {.fields = {field("staleness", "1")}}),
      "the solver has 2 schemes, one after the other; give --scheme too, to replace them all");
}

TEST(FactorTiming, IsOfSchemesThatSumTheGradientsOfAClock) {
  const auto timing = [](const char* words) {
    const auto found = factor_timing(table::parse_scheme(words).value());
    return found ? str(found->sum.make().value()->name(), " after ", found->staleness) : "none";
  };
  EXPECT_EQ(timing("bsp"), "bsp after 0");
  EXPECT_EQ(timing("ssp 2"), "bsp after 2");
  EXPECT_EQ(timing("ssp 2 factor=3"), "ssp 0 factor=3 after 2");
  for (const char* words : {"ssp 2 weighting=inverse", "ssp unbounded", "async", "local_steps"})
    EXPECT_EQ(timing(words), "none") << words;
}

}  // namespace
}  // namespace shoal::parallel::scheme_words_test
