// Faults of a connection: strangers, damage, silence, the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "shoal/base/bytes.h"
#include "shoal/table/link/handshake.h"
#include "shoal/table/link/link.h"
#include "shoal/table/link/process_state.h"
#include "shoal/table/link/tls.h"
#include "support/expect.h"
#include "support/faulty_link.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_faults_test {
namespace {

using namespace std::chrono_literals;
using shoal::test::FaultyLink;
using test::Ends;
using test::hasty;
using test::PlainSocket;
using test::stranger;
using test::whole;

// The last message in what was heard.
std::optional<Message> last_of(std::string_view bytes) {
  std::optional<Message> last;
  while (bytes.size() >= kHeaderSize) {
    const std::size_t size = kHeaderSize + get_le<std::uint32_t>(bytes.substr(16));
    if (bytes.size() < size) break;
    const Result<Message> message = decode(bytes.substr(0, size), Stage::kPeer);
    if (!message.ok()) break;
    last = message.value();
    bytes.remove_prefix(size);
  }
  return last;
}

std::string reason_in(std::string_view bytes) {
  const std::optional<Message> last = last_of(bytes);
  const Refuse* refuse = last ? std::get_if<Refuse>(&*last) : nullptr;
  return refuse ? refuse->reason : "";
}

Message some_row(std::size_t floats) {
  return Init{1, Part::kWeights, test::owned(std::vector<float>(floats, 1.0f))};
}

// ---- who may come in ----

TEST(LinkRefuses, WithWordsAndForGood) {
  Ends ends;
  ends.admit = [](const PeerName& peer) {
    return peer.rank == 3 ? Status(Error{Code::kConfig, "rank 3 is here already"}) : Status();
  };
  Credentials token = test::credentials(1), net = token;
  token.token = "another";
  net.configuration[0] = 9;
  const std::tuple<Credentials, const char*, Code> cases[] = {
      {token, "another token", Code::kPeer},
      {net, "net, solver and scheme must be the same", Code::kPeer},
      {test::credentials(3), "rank 3 is here already", Code::kConfig}};
  for (const auto& [who, words, code] : cases) {
    const Error why = ends.refused(ends.address(), who);
    EXPECT_HAS(why.message, words);
    EXPECT_HAS(why.message, ends.address());
    EXPECT_EQ(why.code, code);
    EXPECT_FALSE(worth_another_try(why));
  }
  EXPECT_TRUE(ends.try_connect(ends.address(), net, Purpose::kCoordination).ok())
      << "its Join says what differs";
}

// A stranger hears why it is turned away, whatever it says.
TEST(LinkRefuses, WhatIsNoProcessOfThisVersion) {
  Ends ends;
  const std::pair<std::string, std::string> cases[] = {
      {whole(Hello{.lowest = 98, .highest = 99}),
       str("speaks versions 98 to 99 of the protocol, the other only ", +kProtocolVersion)},
      {whole(Hello{}).replace(4, 1, "\x63"), "version 99 of the protocol"},
      {"GET / HTTP/1.1\r\n\r\n", "HTTP"},
      {whole(some_row(5)), "A Init came before"},
      {whole(Challenge{}), "A Challenge came instead of a Hello"}};
  for (const auto& [said, words] : cases)
    EXPECT_HAS(reason_in(stranger(ends.listener.port, said).hear_all()), words);
  ends.join();  // and none of them was in anybody's way
  const Error why = ends.refused_by([](PlainSocket socket) {
    socket.say(whole(Challenge{98, 99, {}}));
    EXPECT_HAS(reason_in(socket.hear_all()), "versions 98 to 99");
  });
  EXPECT_HAS(why.message, "versions 98 to 99");
  EXPECT_FALSE(worth_another_try(why));
}

TEST(LinkRefuses, WhoOnlyPretendsToKnowTheToken) {
  const Error why = Ends().refused_by([](PlainSocket socket) {
    socket.say(whole(Challenge{}) + whole(Welcome{}));
    socket.hear_all();
  });
  EXPECT_HAS(why.message, "could not prove that it has the job's token");
}

TEST(LinkRefuses, GarbageByTheHundred) {
  const std::uint64_t seed = 61;
  SCOPED_TRACE(seed);
  Random random(seed);
  Ends ends;
  for (int i = 0; i < 200; ++i) {
    std::string bytes = i % 2 == 0 ? "" : whole(test::random_message(random, random.below(4), 10));
    for (std::uint64_t n = 40 + random.below(300); n > 0; --n)
      bytes += static_cast<char>(random.word());
    PlainSocket stranger(ends.listener.port);
    stranger.say(bytes);
    const std::string heard = stranger.hear_all();  // an alert, if it begins as TLS does
    EXPECT_TRUE(bytes[0] == Tls::kFirstByte || !reason_in(heard).empty()) << i;
  }
  ends.join();
}

TEST(LinkRefuses, WhoDawdles) {
  Ends ends({.connect = 300ms});
  PlainSocket silent(ends.listener.port), half(ends.listener.port);
  half.say(whole(Hello{}).substr(0, 60));
  ends.join();
  EXPECT_EQ(silent.hear_all().size(), kHeaderSize + 20);  // a Challenge, then the end
  EXPECT_EQ(half.hear_all().size(), kHeaderSize + 20);
}

TEST(LinkRefuses, ASlowDripDoesNotLastLonger) {
  Ends ends({.connect = 300ms});
  PlainSocket drip(ends.listener.port);
  const std::string hello = whole(Hello{});
  bool ended = false;
  // 20 ms a byte: 2.4 s for all
  for (std::size_t i = 0; i < hello.size() - 1 && !ended; ++i) {
    drip.say(hello.substr(i, 1));
    ended = drip.ended(20ms);
  }
  EXPECT_TRUE(ended);
}

TEST(LinkRefuses, TheOldestOfTooManyStrangers) {
  Ends ends;
  std::vector<PlainSocket> crowd;
  for (int i = 0; i < 257; ++i) crowd.push_back(stranger(ends.listener.port));
  EXPECT_EQ(crowd.front().hear_all(), "");
  ends.join();
}

// ---- damage and loss ----

TEST(LinkDamage, AFlippedBitIsAnErrorAndNotData) {
  const std::uint64_t seed = 71;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 20; ++round) {
    Ends ends;
    FaultyLink wire(ends.listener.port);
    ends.join(wire.port());
    const std::size_t row = whole(some_row(1000)).size();
    const std::uint64_t at = row + random.below(row), bit = random.below(8);
    wire.damage_after(at, static_cast<int>(bit));
    for (int i = 0; i < 3; ++i) ends.near_link->send(some_row(1000));
    if (!ends.far.wait([&] { return ends.far.end.has_value() || !ends.far.heard.empty(); })) FAIL();
    // A length that has grown is waited for, up to 4 MiB; the next frames fill it up.
    for (int i = 0; i < 2; ++i) ends.near_link->send(some_row(1u << 20));
    ASSERT_EQ(ends.far.why().code, Code::kPeer) << at << ", bit " << bit;
    EXPECT_EQ(ends.far.count(), 1u);
    EXPECT_GT(ends.far.why().message.size(), 20u);
    EXPECT_EQ(ends.near.why().message, ends.far.why().message) << "the Refuse tells the other end";
  }
}

TEST(LinkDamage, ABrokenConnectionIsAnErrorOnBothEnds) {
  Ends ends;
  FaultyLink wire(ends.listener.port);
  ends.join(wire.port());
  wire.cut();
  EXPECT_EQ(ends.near.why().code, Code::kPeer);
  EXPECT_EQ(ends.far.why().code, Code::kPeer);
}

TEST(LinkStall, ASilentPeerIsNamedThenGivenUp) {
  Ends ends(hasty());
  FaultyLink wire(ends.listener.port);
  ends.join(wire.port());
  wire.hold();
  EXPECT_TRUE(ends.near.wait([&] { return ends.near.silences == 1; }));
  EXPECT_EQ(ends.near.why().code, Code::kTimeout);
  EXPECT_HAS(ends.near.why().message, "Nothing was heard for");
  EXPECT_EQ(ends.near.silences, 1);
}

TEST(LinkStall, WhoPingsIsNotSilent) {
  LinkOptions options = hasty();
  options.stall_warn = options.stall_abort = 1s;
  Ends ends(options);
  ends.join();
  std::promise<void> later;
  const Strand strand(ends.near_threads);
  strand.after(2s, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_FALSE(ends.near.end.has_value());
}

// Its pings come, but it takes nothing.
TEST(LinkStall, APeerThatReadsNothingIsGivenUpAndHoldsLittleMemory) {
  Ends ends({.heartbeat = 20ms});  // the far end is patient
  ends.options = hasty();
  std::atomic<std::size_t> asked{0};
  ends.near.source = [&]() -> std::optional<Message> {
    ++asked;
    return some_row(64 * 1024);
  };
  FaultyLink wire(ends.listener.port);
  ends.join(wire.port());
  wire.hold_forward();
  EXPECT_EQ(ends.near.why().code, Code::kTimeout);
  EXPECT_HAS(ends.near.why().message, "Nothing of what was sent was taken");
  const std::size_t arrived = ends.far.count();
  EXPECT_LT(asked - arrived, 200u)
      << "rows of 256 KiB: what the system and the wire hold, and one window";
}

// ---- the end ----

TEST(LinkEnd, AByeIsNoLoss) {
  for (const bool near_leaves : {true, false}) {
    Ends ends;
    ends.join();
    test::Ear& left = near_leaves ? ends.far : ends.near;
    Link& leaves = near_leaves ? *ends.near_link : *ends.far_link;
    for (int i = 0; i < 50; ++i) leaves.send(some_row(10'000));
    leaves.close(true);
    ASSERT_TRUE(left.wait_closed());
    EXPECT_TRUE(left.end->ok());
    EXPECT_EQ(left.count(), 50u) << "what was said before the Bye arrives";
    EXPECT_FALSE((near_leaves ? ends.near : ends.far).end.has_value())
        << "who closes hears nothing more";
  }
}

// Closed so, or held by nobody any more.
TEST(LinkEnd, WithoutAByeItIsALoss) {
  for (const bool closes : {true, false}) {
    Ends ends;
    ends.join();
    if (closes) ends.near_link->close(false);
    if (!closes) ends.near_link.reset();
    EXPECT_EQ(ends.far.why().code, Code::kPeer);
    EXPECT_HAS(ends.far.why().message, "without a Bye");
  }
}

// While rows are under way in both directions, and from the middle of a callback.
TEST(LinkEnd, InTheMiddleFromEitherSide) {
  // rows from either side: what is heard is kept, and a closer may be late
  constexpr int kMost = 2000;
  for (const bool with_bye : {false, true}) {
    // near's thread, far's, inside received()
    for (const int closer : {0, 1, 2}) {
      Ends ends;
      // without an owner: not touched once the end is known
      std::vector<float> numbers(64 * 1024, 1.0f);
      const auto row = [&, left = kMost]() mutable {
        return left-- > 0
                   ? std::optional<Message>(Init{1, Part::kWeights, as_payload({numbers, nullptr})})
                   : std::nullopt;
      };
      ends.near.source = ends.far.source = row;
      if (closer == 2)
        ends.near.judge = [&, n = 0](Link& link, const Message&) mutable {
          if (++n == 20) ends.near.over = true, link.close(with_bye);
          return Status();
        };
      ends.join();
      ASSERT_TRUE(
          ends.far.wait([&] { return ends.far.heard.size() > 10 || ends.far.end.has_value(); }));
      if (closer == 0) ends.near_link->close(with_bye);
      if (closer == 1) ends.far_link->close(with_bye);
      test::Ear& other = closer == 1 ? ends.near : ends.far;
      ASSERT_TRUE(other.wait_closed()) << closer;
      EXPECT_EQ(other.end->ok(), with_bye) << closer;
      ends.near_threads.stop(), ends.far_threads.stop();  // before the numbers go
    }
  }
}

// A row half of which the system took: the rest of it follows the owner's goodbye, and is what it
// was though the owner's memory is not.
TEST(LinkEnd, WhatIsOnItsWayIsSentAsItWas) {
  std::vector<float> numbers(kMaxRowFloats, 1.0f);  // without an owner
  Ends ends;
  FaultyLink wire(ends.listener.port);
  ends.near.source = [&]() -> std::optional<Message> {
    return Init{1, Part::kWeights, as_payload({numbers, nullptr})};
  };
  ends.far.judge = [&, first = true](Link&, const Message&) mutable {
    if (std::exchange(first, false)) wire.hold_forward();
    return Status();
  };
  ends.join(wire.port());
  ASSERT_TRUE(ends.far.wait([&] { return !ends.far.heard.empty(); }));
  ends.near.over = true;
  ends.near_link->close(true);
  let_run(ends.near_threads);  // the link has closed
  std::ranges::fill(numbers, 2.0f);
  wire.go_on();
  ASSERT_TRUE(ends.far.wait_closed());
  for (const Message& message : ends.far.heard)
    for (const float number : std::get<Init>(message).payload.floats()) ASSERT_EQ(number, 1.0f);
  EXPECT_TRUE(ends.far.end->ok()) << ends.far.why().message;
}

TEST(LinkEnd, AnErrorOfTheOwnerReachesTheOtherEnd) {
  Ends ends;
  ends.far.judge = [](Link&, const Message&) {
    return Status(Error{Code::kNonFinite, "rank 1 sent a row that does not exist"});
  };
  ends.join();
  // and more on its way, which must not drown the reason
  for (int i = 0; i < 100; ++i) ends.near_link->send(some_row(50'000));
  EXPECT_EQ(ends.near.why().code, Code::kNonFinite);
  EXPECT_EQ(ends.near.why().message, "rank 1 sent a row that does not exist");
  EXPECT_EQ(ends.far.why().code, Code::kNonFinite);
  EXPECT_EQ(ends.far.count(), 1u);
}

TEST(LinkEnd, FromManyThreadsAtOnce) {
  for (int round = 0; round < 20; ++round) {
    Ends ends({}, 2);
    ends.join();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          ends.near_link->send(some_row(100));
          ends.near_link->wake();
          ends.far_link->heard_clock();
          if (i == 25 && t % 2 == 0)
            (t == 0 ? ends.near_link : ends.far_link)->close(round % 2 == 0);
        }
      });
    for (std::thread& thread : threads) thread.join();
    if (round % 2 == 1) ends.near_link.reset();
    ends.far_link.reset();
  }
}

}  // namespace
}  // namespace shoal::table::link_faults_test
