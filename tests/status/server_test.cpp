// The status server as a browser meets it, by curl.
#include "shoal/status/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/certificates.h"
#include "support/data_files.h"
#include "support/ports.h"

namespace shoal::test::status_server_test {
namespace {

constexpr const char* kToken = "0123456789abcdef";

// Returns what curl prints, with the status of HTTP in front of it; "000" without an answer.
std::string curl(const std::vector<std::string>& words) {
  std::vector<std::string> argv = {"/usr/bin/env", "curl", "-s", "-m",          "20",
                                   "-o",           "-",    "-w", "%{http_code}"};
  argv.insert(argv.end(), words.begin(), words.end());
  const Ran ran = run_program(argv);
  if (ran.out.size() < 3) return "000";
  return ran.out.substr(ran.out.size() - 3) + " " + ran.out.substr(0, ran.out.size() - 3);
}

std::unique_ptr<StatusServer> started(const StatusServerOptions& options,
                                      const StatusBoard& board) {
  auto server = StatusServer::start(options, board);
  EXPECT_TRUE(server.ok()) << server.error().message;
  return std::move(server).value();
}

TEST(StatusServer, ShowsTheBoardOnTheLoopback) {
  StatusBoard board("both", 100);
  const auto server = started({}, board);
  EXPECT_EQ(server->url(), str("http://127.0.0.1:", server->port(), "/"));
  const std::string status = curl({server->url() + "status.json"});
  ASSERT_TRUE(status.starts_with("200 {")) << status;
  EXPECT_EQ(nlohmann::json::parse(status.substr(4))["iteration"], 0);
  (void)board.add(ClockMetrics{.clock = 6, .time = 1});
  EXPECT_EQ(nlohmann::json::parse(curl({server->url() + "status.json"}).substr(4))["iteration"], 7);
  EXPECT_TRUE(curl({server->url()}).starts_with("200 <!DOCTYPE html>"));
  EXPECT_TRUE(curl({"-X", "POST", "-d", "x", server->url()}).starts_with("405 "));
  EXPECT_TRUE(curl({"-H", "Host: evil.example", server->url()}).starts_with("403 "));
  const std::string head = curl({"-I", server->url()});
  EXPECT_NE(head.find("Content-Security-Policy: default-src 'none'"), std::string::npos) << head;
  EXPECT_NE(head.find("Cache-Control: no-store"), std::string::npos) << head;
}

TEST(StatusServer, TakesTheNextPortIfOneIsTaken) {
  const ReservedPorts ports;
  StatusBoard board("both", 100);
  const auto first = started({.port = ports[0]}, board);
  EXPECT_EQ(first->port(), ports[0]);
  const auto second = started({.port = ports[0]}, board);
  EXPECT_GT(second->port(), ports[0]);
}

TEST(StatusServer, OtherMachinesNeedTheToken) {
  StatusBoard board("both", 100);
  const auto server = started({.token = kToken}, board);
  const std::string url = str("http://127.0.0.1:", server->port(), "/status.json");
  EXPECT_TRUE(curl({url}).starts_with("401 "));
  EXPECT_TRUE(curl({"-H", str("Authorization: Bearer ", kToken), url}).starts_with("200 "));
  // A browser is given a cookie, and asks again without the token.
  EXPECT_TRUE(
      curl({"-L", "-c", "/dev/null", str("http://127.0.0.1:", server->port(), "/?token=", kToken)})
          .starts_with("200 <!DOCTYPE"));
}

TEST(StatusServer, SpeaksHttpsWithACertificate) {
  const std::string folder = fresh_directory("status_tls");
  const table::test::Authority authority("status CA"), other("another CA");
  const table::CertificateFiles files = table::test::put_files(
      folder + "/server", authority.sign("127.0.0.1"), authority.certificate());
  const table::CertificateFiles guest =
      table::test::put_files(folder + "/guest", authority.sign("guest"), authority.certificate());
  const table::CertificateFiles stranger =
      table::test::put_files(folder + "/stranger", other.sign("guest"), other.certificate());
  StatusBoard board("both", 100);
  const auto server = started({.token = kToken,
                               .certificate = files.certificate,
                               .key = files.key,
                               .authorities = files.authorities},
                              board);
  const std::string url = str("https://127.0.0.1:", server->port(), "/status.json");
  const auto ask = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-k", url});
    return curl(words);
  };
  EXPECT_TRUE(ask({}).starts_with("401 "));
  EXPECT_TRUE(ask({"-H", str("Authorization: Bearer ", kToken)}).starts_with("200 "));
  EXPECT_TRUE(ask({"--cert", guest.certificate, "--key", guest.key}).starts_with("200 "));
  EXPECT_TRUE(ask({"--cert", stranger.certificate, "--key", stranger.key}).starts_with("000"));
  EXPECT_TRUE(curl({str("http://127.0.0.1:", server->port(), "/")}).starts_with("000"));
}

TEST(StatusServer, NamesTheFileThatIsWrong) {
  StatusBoard board("both", 100);
  const auto server = StatusServer::start(
      {.certificate = "/no/cert.pem", .key = "/no/key.pem", .authorities = "/no/ca.pem"}, board);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, Code::kUsage);
  EXPECT_TRUE(server.error().message.starts_with("/no/cert.pem: ")) << server.error().message;
}

// A client that says nothing, or garbage, keeps nobody else from looking, nor the server's end.
TEST(StatusServer, OutlivesClientsThatDoNotBehave) {
  StatusBoard board("both", 100);
  auto server = started({}, board);
  std::vector<int> sockets;
  for (int i = 0; i < 20; ++i) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in at = loopback(server->port());
    ASSERT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    const std::string garbage = i % 2 == 0 ? "" : std::string(20'000, 'x');
    (void)!::send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    sockets.push_back(socket);
  }
  EXPECT_TRUE(curl({server->url()}).starts_with("200 "));
  EXPECT_TRUE(curl({"-H", "X: " + std::string(9000, 'x'), server->url()}).starts_with("000"));
  server.reset();
  for (const int socket : sockets) ::close(socket);
}

}  // namespace
}  // namespace shoal::test::status_server_test
