// Caps on what a process takes from others: connections, handshakes, bytes before a proof.
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>

#include "shoal/table/link/link.h"
#include "shoal/table/link/tls.h"
#include "support/expect.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_caps_test {
namespace {

using namespace std::chrono_literals;
using test::Ends;
using test::PlainSocket;
using test::stranger;

std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// One that has been refused is read from for a while, so that it can read the reason.
TEST(LinkCaps, StrangersHaveSoManySocketsThoughTheyWereRefused) {
  constexpr int kStrangers = 600;
  Ends ends;
  const std::ptrdiff_t before = open_files();
  std::vector<PlainSocket> crowd;
  for (int i = 0; i < kStrangers; ++i) {
    crowd.push_back(stranger(ends.listener.port, std::string(100, 'x')));
    crowd.back().hear(kHeaderSize + 5);  // the start of the Refuse
  }
  ends.join();
  EXPECT_LE(open_files() - before - kStrangers,
            static_cast<std::ptrdiff_t>(Listener::kMostStrangers) + 16);
}

TEST(LinkCaps, AJobsProcessesHaveSoManyLinks) {
  std::mutex mutex;
  std::vector<std::shared_ptr<Link>> held, links;
  std::deque<test::Ear> ears;
  Ends ends;
  std::atomic<std::size_t> processes{2};
  const auto accept = [&](const PeerName&) {
    std::lock_guard lock(mutex);
    test::Ear& ear = ears.emplace_back();
    ear.taken = [&](std::shared_ptr<Link> link) {
      std::lock_guard taking(mutex);
      held.push_back(std::move(link));
    };
    return &ear;
  };
  const auto listener = Listener::create(ends.far_threads, "127.0.0.1", 0, ends.far_self,
                                         ends.options, accept, [&] { return processes.load(); });
  ASSERT_TRUE(listener.ok());
  const std::string address = str("127.0.0.1:", listener.value().port);
  const std::size_t most = 2 * Listener::kLinksOfAProcess + Listener::kSpareLinks;
  const auto open = [&] { return ends.try_connect(address, test::credentials(1)); };
  for (std::size_t i = 0; i < most; ++i) {
    auto link = open();
    ASSERT_TRUE(link.ok()) << i << ": " << link.error().message;
    links.push_back(std::move(link).value());
  }
  const auto refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_HAS(refused.error().message, str("this process has ", most,
                                          " connections already, more than a job of 2 processes"));
  processes = 3;  // one more has joined
  for (std::size_t i = 0; i < Listener::kLinksOfAProcess; ++i) {
    auto link = open();
    ASSERT_TRUE(link.ok()) << i << ": " << link.error().message;
    links.push_back(std::move(link).value());
  }
  EXPECT_FALSE(open().ok());
  links.front()->close(true);
  test::Ear* first = nullptr;
  {
    std::lock_guard lock(mutex);
    first = &ears.front();
  }
  ASSERT_TRUE(first->wait_closed());
  EXPECT_TRUE(open().ok()) << "a link that has closed counts no more";
}

// The ClientHello of TLS says that it is long, and never ends.
TEST(LinkCaps, ManyBytesWithoutAProofEndTheConnection) {
  Ends ends({.encrypt = Encrypt::kAlways, .connect = 60s});
  PlainSocket socket = stranger(ends.listener.port);
  constexpr std::size_t kRecord = 16 * 1024, kRecords = 7;
  std::string record("\x16\x03\x01\x40\x00\x01\x01\xff\xf0", 9);
  for (std::size_t i = 0; i < kRecords; ++i) {
    record.resize(5 + kRecord);
    if (!socket.say_within(record, 1s)) break;
    record.resize(5);
  }
  EXPECT_TRUE(socket.ended(10s)) << "long before the deadline of the handshake";
}

}  // namespace
}  // namespace shoal::table::link_caps_test
