// Runs that are watched: the page while train runs, event files beside metrics, the terminal's bar.
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/job_processes.h"
#include "support/train_tool.h"

namespace shoal::test::watch_test {
namespace {

using nlohmann::json;

class WatchedRun : public TrainTool {
 protected:
  std::string short_run(const std::string& name) const {
    return solver(name, "max_iter: 20 display: 5 test_iter: 1 test_interval: 10");
  }
  // Returns the events' curves of a folder as export_tensorboard or train wrote them: their bytes
  // without times, which differ.
  static std::size_t bytes_of_events(const std::string& folder) {
    std::size_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      EXPECT_TRUE(entry.path().filename().string().starts_with("events.out.tfevents."));
      bytes += std::filesystem::file_size(entry.path());
    }
    return bytes;
  }
};

// Waits until the process has said where its page is; returns that.
std::string page_of(const Running& running) {
  EXPECT_TRUE(wait_for_text(running, "The run is shown at "));
  const std::string log = get_file(running.directory + "/err");
  const std::size_t at = log.find("http://");
  return at == std::string::npos ? "" : log.substr(at, log.find('\n', at) - at);
}

json status_at(const std::string& page) {
  const Ran ran = run_program({"/usr/bin/env", "curl", "-s", "-m", "20", page + "status.json"});
  return ran.out.empty() ? json() : json::parse(ran.out);
}

TEST_F(WatchedRun, HasAPageWhileItTrains) {
  const std::string path =
      solver("page", "max_iter: 100000000 display: 5 test_iter: 1 test_interval: 1000000");
  const Running running = start_program(train_command(path, {"--status_port=0", "--seconds=120"}));
  const std::string page = page_of(running);
  ASSERT_TRUE(wait_for_text(running, "Iteration 50 "));
  const json status = status_at(page);
  EXPECT_EQ(status["state"], "training");
  EXPECT_EQ(status["run"]["scheme"], "local");
  EXPECT_EQ(status["max_iter"], 100000000);
  EXPECT_GE(status["iteration"], 50);
  EXPECT_TRUE(status["job"].is_null());
  std::set<std::string> curves;
  for (const json& curve : status["curves"]) curves.insert(curve["name"]);
  EXPECT_TRUE(curves.contains("train/total_loss"));
  EXPECT_TRUE(curves.contains("test0/accuracy"));
  kill(running.process, SIGINT);
  EXPECT_EQ(wait_for(running).code, 0);
}

TEST_F(WatchedRun, EachProcessOfAJobHasAPageAndTheChiefsKnowsTheJob) {
  JobProcesses job(folder_, "bb");
  const std::string path =
      solver("pages", "max_iter: 100000000 display: 5 shared_file_system: true");
  job.start_all(path, {"--status_port=0", "--seconds=120"});
  for (std::size_t rank : {0, 1}) {
    const std::string page = page_of(job.running(rank));
    json status;
    for (int tries = 0; tries < 200; ++tries) {
      status = status_at(page);
      if (status["job"].is_object() && (rank != 0 || status["job"].contains("alive"))) break;
    }
    ASSERT_TRUE(status["job"].is_object())
        << status << get_file(job.running(rank).directory + "/err");
    EXPECT_EQ(status["job"]["rank"], rank);
    EXPECT_EQ(status["job"]["processes"].size(), 2u);
    EXPECT_EQ(status["job"]["processes"][1 - rank]["alive"], true);
    EXPECT_EQ(status["job"].contains("alive"), rank == 0);
    if (rank == 0) {
      EXPECT_EQ(status["job"]["alive"], 2);
    }
  }
  job.signal(0, SIGINT);
  for (std::size_t rank : {0, 1}) EXPECT_EQ(job.wait(rank).ran.code, 0);
}

TEST_F(WatchedRun, WritesEventsForTensorBoardAlsoOutOfMetrics) {
  const std::string metrics = folder_ + "/metrics", events = folder_ + "/events",
                    later = folder_ + "/later";
  const Ran ran = train(short_run("events"), {"--metrics=" + metrics, "--tensorboard=" + events});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Ran exported =
      run_program({tool("export_tensorboard"), "--metrics=" + metrics, "--out=" + later});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(exported.out,
            "Wrote 1 run to " + later + "; tensorboard --logdir=" + later + " shows them\n");
  // The same events: numbers of nine digits come back as they were.
  EXPECT_NEAR(static_cast<double>(bytes_of_events(events)),
              static_cast<double>(bytes_of_events(later)), 8.0);
  EXPECT_GT(bytes_of_events(events), 500u);
  const Ran with = train(short_run("histograms"),
                         {"--tensorboard=" + folder_ + "/more", "--tensorboard_histograms=10"});
  ASSERT_EQ(with.code, 0) << with.err;
  EXPECT_GT(bytes_of_events(folder_ + "/more"), bytes_of_events(events) + 1000);
}

TEST_F(WatchedRun, MetricsThatAreNoneAreNamed) {
  const Ran none = run_program({tool("export_tensorboard"), "--metrics=" + folder_, "--out=x"});
  EXPECT_EQ(none.code, 4);
  EXPECT_NE(none.err.find(folder_ + ": there is no metrics.<worker>.jsonl"), std::string::npos)
      << none.err;
  put_file(folder_ + "/metrics.0.jsonl",
           "{\"kind\":\"run\",\"name\":\"n\",\"scheme\":\"local\","
           "\"worker\":0,\"workers\":1}\n{\"kind\":\"clock\"}\n");
  const Ran bad =
      run_program({tool("export_tensorboard"), "--metrics=" + folder_, "--out=" + folder_ + "/x"});
  EXPECT_EQ(bad.code, 4);
  EXPECT_NE(bad.err.find(folder_ + "/metrics.0.jsonl:2: this is no line of metrics"),
            std::string::npos)
      << bad.err;
}

TEST_F(WatchedRun, ABarReplacesTheLinesOfDisplays) {
  const Ran with = train(short_run("bar"), {"--progress=bar"});
  ASSERT_EQ(with.code, 0) << with.err;
  EXPECT_NE(with.err.find("iteration "), std::string::npos);
  EXPECT_NE(with.err.find("Iteration 10, Testing net (#0)"), std::string::npos);
  EXPECT_EQ(with.err.find("lr = "), std::string::npos) << with.err;
  const Ran without = train(short_run("nobar"), {});
  EXPECT_NE(without.err.find("lr = "), std::string::npos) << "in a pipe the log is as ever";
  EXPECT_EQ(without.err.find("\033["), std::string::npos);
}

TEST_F(WatchedRun, WrongFlagsAreNamed) {
  const std::string path = short_run("wrong");
  put_file(folder_ + "/short", "0123456789\n");
  put_file(folder_ + "/job", "a token of this job 0123\n");
  put_file(folder_ + "/odd", "0123456789;abcdef\n");
  const auto says = [&](const std::vector<std::string>& flags, const std::string& words) {
    const Ran ran = train(path, flags);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_NE(ran.err.find(words), std::string::npos) << words << "\nin\n" << ran.err;
  };
  says({"--status_port=65536"}, "--status_port=65536 is not from 0 to 65535");
  says({"--progress=on"}, "--progress=on: known are auto, bar and log");
  says({"--tensorboard_histograms=5"}, "--tensorboard_histograms=5 needs --tensorboard=DIR");
  says({"--status_port=0", "--status_token_file=" + folder_ + "/short"},
       "the status page's token has 10 bytes, fewer than 16");
  says({"--status_port=0", "--status_token_file=" + folder_ + "/odd"},
       "the status page's token has a character");
  says({"--status_port=0", "--status_token_file=" + folder_ + "/job",
        "--token_file=" + folder_ + "/job"},
       "the status page has the job's token");
  says({"--tensorboard=" + folder_ + "/short/x"}, folder_ + "/short/x/events.out.tfevents.");
}

}  // namespace
}  // namespace shoal::test::watch_test
