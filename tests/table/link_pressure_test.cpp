// Peers with the token that ask for too much: answers that are never read, ranks.
#include <gtest/gtest.h>

#include "shoal/table/link/handshake.h"
#include "shoal/table/link/link.h"
#include "shoal/table/link/reliable_channel.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_pressure_test {
namespace {

using namespace std::chrono_literals;
using test::Ends;
using test::PlainSocket;
using test::whole;

// Shakes hands in clear as rank 1.
PlainSocket member(std::uint16_t port) {
  PlainSocket socket(port);
  Handshake handshake(test::credentials(1), Purpose::kRows, random_nonce(), 0);
  const auto challenge = decode(socket.hear(kHeaderSize + 20), Stage::kStranger);
  const auto said = handshake.take(challenge.value()).value();
  socket.say(whole(*said.answer) + whole(*said.claim));
  EXPECT_EQ(socket.hear(kHeaderSize + 46).size(), kHeaderSize + 46);
  return socket;
}

TEST(LinkPressure, APeerThatAsksAndNeverReadsIsHeardNoMoreUntilItReads) {
  constexpr std::size_t kMost = 6000;
  const Answer answer{Topic::kShare, 1, std::string(64 * 1024, 'a')};
  const std::string ask = whole(Ask{Topic::kShare, 1, std::string(10'000, 'q')});
  Ends ends;
  ends.far.judge = [&](Link& link, const Message&) {
    link.send(answer);
    return Status();
  };
  PlainSocket socket = member(ends.listener.port);
  std::size_t asked = 0;
  while (asked < kMost && socket.say_within(ask, 500ms)) ++asked;
  EXPECT_LT(asked, kMost) << "it was read on and on";
  EXPECT_LT(ends.far.count(), 2500u) << "64 MiB of answers are 1024 of them";
  // The ask of which a part was taken stays so.
  EXPECT_EQ(socket.hear(asked * whole(answer).size()).size(), asked * whole(answer).size());
  EXPECT_FALSE(ends.far.end.has_value());
}

TEST(LinkPressure, WhatWaitsAtTheOwnerCountsToo) {
  Ends ends;
  ends.far.judge = [&](Link&, const Message&) {
    ends.far.backlog = 1u << 24;
    return Status();
  };
  ends.join();
  const auto heard = [&](std::size_t count) {
    return ends.far.wait([&] { return ends.far.heard.size() == count; });
  };
  ends.near_link->send(Ready{1});
  ASSERT_TRUE(heard(1));
  ends.near_link->send(Ready{2});
  // Round trips of the far end's messages, which leave though it reads nothing.
  for (std::size_t i = 1; i <= 200; ++i) {
    ends.far_link->send(Ready{3});
    ASSERT_TRUE(ends.near.wait([&] { return ends.near.heard.size() == i; }));
  }
  EXPECT_EQ(ends.far.count(), 1u);
  ends.far.backlog = 0;
  ends.far_link->wake();
  EXPECT_TRUE(heard(2));
  // An end that connects reads in any case: never do both wait for the other to read.
  ends.near.backlog = 1u << 24;
  for (int i = 0; i < 3; ++i) ends.far_link->send(Ready{4});
  EXPECT_TRUE(ends.near.wait([&] { return ends.near.heard.size() == 203; }));
}

// Throws away what is sent.
class NoLink final : public Link {
 public:
  const PeerName& peer() const override { return peer_; }
  void send(Message) override {}
  void wake() override {}
  void close(bool) override {}
  Clock heard_clock() const override { return -1; }

 private:
  PeerName peer_;
};

TEST(LinkPressure, APeerThatNeverCountsItsMessagesIsLost) {
  ReliableChannel channel;
  channel.opened(std::make_shared<NoLink>());
  const auto count = [&](Clock clock) {
    return channel.received(Ask{.topic = Topic::kHeard, .clock = clock, .body = {}});
  };
  ASSERT_OK(count(0));
  const Message ask = Ask{.topic = Topic::kShare, .clock = 1, .body = {}};
  const Message answer =
      Answer{.topic = Topic::kShare, .clock = 1, .body = std::string(1u << 24, 'a')};
  for (int i = 0; i < 16; ++i) {
    ASSERT_OK(channel.received(ask));
    channel.send(answer);
  }
  EXPECT_FAILS_WITH("it asks, and does not count the answers", channel.received(ask));
  ASSERT_OK(count(10));
  EXPECT_TRUE(channel.received(ask).ok());
}

TEST(LinkPressure, AConnectionGetsOneRank) {
  shoal::test::JobOverTcp job("b");
  shoal::test::expect_all_ok(job.start());
  Ends ends;
  Credentials self = test::credentials(kNoRank);
  self.token = job.options[0].token;
  auto link =
      ends.try_connect(str("127.0.0.1:", job.options[0].port), self, Purpose::kCoordination);
  ASSERT_OK(link);
  const auto enroll = [&](std::uint64_t incarnation) {
    link.value()->send(Ask{Topic::kEnroll, static_cast<Clock>(incarnation), {}});
  };
  for (int i = 0; i < 2; ++i) enroll(self.incarnation);
  ASSERT_TRUE(ends.near.wait([&] { return ends.near.heard.size() == 2; }));
  EXPECT_EQ(whole(ends.near.heard[0]), whole(ends.near.heard[1])) << "asked again, it has its rank";
  enroll(self.incarnation + 1);
  EXPECT_HAS(ends.near.why().message, "a connection gets one rank");
  EXPECT_EQ(ends.near.count(), 2u);
}

}  // namespace
}  // namespace shoal::table::link_pressure_test
