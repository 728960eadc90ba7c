// The answers of the status server, and who gets none.
#include "shoal/status/answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shoal/status/pages.h"

namespace shoal::test::answer_test {
namespace {

using nlohmann::json;

constexpr const char* kToken = "0123456789abcdef";

class Answer : public testing::Test {
 protected:
  WebAnswer ask(WebRequest request) { return answer_to(request, policy_, board_); }
  static WebRequest get(std::string_view target, std::string_view host = "127.0.0.1:8080") {
    return {.method = "GET", .target = target, .host = host};
  }
  static std::string header(const WebAnswer& answer, std::string_view name) {
    for (const auto& [known, value] : answer.headers)
      if (known == name) return value;
    return "";
  }
  void open() {
    policy_.open = true;
    policy_.token = kToken;
    policy_.names = {"trainer.lan", "trainer"};
  }

  WebPolicy policy_;
  StatusBoard board_{"both", 100};
};

TEST_F(Answer, ShowsPageStatusAndMetricsOnThisMachine) {
  for (const char* host :
       {"localhost", "localhost:80", "127.0.0.1:8080", "[::1]:8080", "LocalHost"})
    EXPECT_EQ(ask(get("/", host)).status, 200) << host;
  const WebAnswer page = ask(get("/?x=1"));
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("status.json"), std::string::npos);
  EXPECT_EQ(page.body.find("http://www.w3.org/2000/svg"), page.body.find("http"))
      << "the page needs nothing from elsewhere";
  EXPECT_EQ(json::parse(ask(get("/status.json")).body)["max_iter"], 100);
  EXPECT_EQ(ask(get("/favicon.ico")).status, 404);
}

TEST_F(Answer, OnlyShows) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", ""}) {
    const WebAnswer answer = ask({.method = method, .target = "/status.json", .host = "localhost"});
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(header(answer, "Allow"), "GET, HEAD");
  }
}

// A page of another site whose name leads to this machine must not read the status.
TEST_F(Answer, DoesNotAnswerToOtherNames) {
  for (const char* host : {"", "evil.example", "evil.example:8080", "127.0.0.1.evil.example",
                           "localhost.evil.example", "192.168.0.7"})
    EXPECT_EQ(ask(get("/status.json", host)).status, 403) << host;
  open();
  for (const char* host : {"evil.example", "trainer.evil.example", "1.2.3.4.x", "ab.cd"}) {
    WebRequest request = get("/status.json", host);
    request.authorization = "Bearer 0123456789abcdef";
    EXPECT_EQ(ask(request).status, 403) << host;
    request.host = "192.168.0.7:8080";
    EXPECT_EQ(ask(request).status, 200);
    request.host = "Trainer.lan";
    EXPECT_EQ(ask(request).status, 200);
    request.host = "[fe80::1]:8080";
    EXPECT_EQ(ask(request).status, 200);
  }
}

TEST_F(Answer, AnOpenServerAsksForTheToken) {
  open();
  for (const char* target :
       {"/", "/status.json", "/metrics", "/nothing", "/?token=", "/?token=0123456789abcdeF",
        "/?token=0123456789abcdef0", "/status.json?tokens=0123456789abcdef"}) {
    const WebAnswer answer = ask(get(target));
    EXPECT_EQ(answer.status, 401) << target;
    EXPECT_EQ(header(answer, "WWW-Authenticate"), "Bearer");
    EXPECT_EQ(answer.body.find("max_iter"), std::string::npos);
  }
  WebRequest request = get("/status.json");
  request.authorization = "Basic 0123456789abcdef";
  EXPECT_EQ(ask(request).status, 401);
  request.authorization = "Bearer 0123456789abcdef";
  EXPECT_EQ(ask(request).status, 200);
  EXPECT_EQ(ask(get("/status.json?a=b&token=0123456789abcdef")).status, 200);
}

TEST_F(Answer, APageThatWasOpenedWithTheTokenKeepsIt) {
  open();
  const WebAnswer answer = ask(get("/?token=0123456789abcdef"));
  EXPECT_EQ(answer.status, 303);
  EXPECT_EQ(header(answer, "Location"), "/");
  EXPECT_EQ(header(answer, "Set-Cookie"),
            "shoal_status=0123456789abcdef; Path=/; HttpOnly; SameSite=Strict");
  WebRequest request = get("/status.json");
  request.cookie = "theme=dark; shoal_status=0123456789abcdef";
  EXPECT_EQ(ask(request).status, 200);
  request.cookie = "xshoal_status=0123456789abcdef";
  EXPECT_EQ(ask(request).status, 401);
  policy_.encrypted = true;
  EXPECT_TRUE(header(ask(get("/?token=0123456789abcdef")), "Set-Cookie").ends_with("; Secure"));
}

TEST_F(Answer, ACertificateDoesInsteadOfTheToken) {
  open();
  policy_.token.clear();
  EXPECT_EQ(ask(get("/status.json?token=")).status, 401);
  WebRequest request = get("/status.json");
  request.certified = true;
  EXPECT_EQ(ask(request).status, 200);
}

TEST(StatusPages, TheObjectHasWhatTheBoardShows) {
  StatusBoard board("both", 100);
  board.begin({.name = "a \"net\"", .scheme = "ssp 2", .worker = 1, .workers = 2});
  for (int clock = 0; clock < 3; ++clock)
    (void)board.add(ClockMetrics{
        .clock = clock, .time = clock + 1.0, .compute = 0.5, .samples = 8, .pushes = {0, 0, 1}});
  (void)board.add(FaultMetrics{.time = 2, .number = 1, .rank = 3, .host = "b", .why = "killed"});
  board.set_job({.rank = 1,
                 .generation = 4,
                 .processes = {{.rank = 0, .host = "a", .worker = 0, .server = 0},
                               {.rank = 1, .host = "b", .worker = 1, .alive = false}},
                 .bytes_sent = 7,
                 .bytes_received = 9});
  board.set_pace(R"({"t":3,"records":[]})");
  const json status = json::parse(status_json(board.look()));
  EXPECT_EQ(status["state"], "training");
  EXPECT_EQ(status["run"]["name"], "a \"net\"");
  EXPECT_EQ(status["run"]["scheme"], "ssp 2");
  EXPECT_EQ(status["iteration"], 3);
  EXPECT_EQ(status["total"]["samples"], 24);
  EXPECT_EQ(status["total"]["push_staleness"], 2);
  EXPECT_TRUE(status["total"]["read_staleness"].is_null());
  EXPECT_EQ(status["job"]["generation"], 4);
  EXPECT_EQ(status["job"]["losses"], 1);
  EXPECT_EQ(status["job"]["processes"][1]["alive"], false);
  EXPECT_EQ(status["job"]["processes"][1]["this"], true);
  EXPECT_EQ(status["job"]["processes"][1]["server"], -1);
  EXPECT_EQ(status["curves"][0]["values"], json::parse("[8,8,8]"));
  EXPECT_EQ(status["curves"][0]["iterations"], json::parse("[1,2,3]"));
  EXPECT_EQ(status["faults"][0]["why"], "killed");
  EXPECT_EQ(status["pace"]["t"], 3);
  EXPECT_TRUE(json::parse(status_json(StatusBoard("", 1).look()))["job"].is_null());
}

TEST(StatusPages, PrometheusIsToldTheSame) {
  StatusBoard board("both", 100);
  board.begin({.name = "net", .scheme = "bsp", .worker = 1});
  (void)board.add(ClockMetrics{.clock = 4, .time = 2, .compute = 0.5, .samples = 8});
  (void)board.add(ScoreMetrics{.clock = 5, .time = 2, .loss = 0.25});
  board.set_job({.rank = 1, .generation = 4, .processes = {{.rank = 0, .host = "a"}}});
  const Result<std::string> text = prometheus_text(board.look());
  if (!text.ok()) {
    EXPECT_NE(text.error().message.find("prometheus-cpp-dev"), std::string::npos);
    return;
  }
  for (const char* line : {"# TYPE shoal_samples_total counter\nshoal_samples_total 8\n",
                           "shoal_iteration 5\n", "shoal_seconds_total{part=\"compute\"} 0.5\n",
                           "shoal_generation 4\n", "shoal_process_alive{host=\"a\",rank=\"0\"} 1\n",
                           "shoal_value{name=\"train/total_loss\"} 0.25\n",
                           "shoal_info{net=\"net\",scheme=\"bsp\",version="})
    EXPECT_NE(text.value().find(line), std::string::npos) << line << "\nin\n" << text.value();
}

}  // namespace
}  // namespace shoal::test::answer_test
