// Encrypted connections: what arrives, what is refused, and what damage does.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>

#include "shoal/base/bytes.h"
#include "shoal/table/link/handshake.h"
#include "shoal/table/link/link.h"
#include "shoal/table/link/throttle.h"
#include "shoal/table/link/tls.h"
#include "support/expect.h"
#include "support/faulty_link.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_encryption_test {
namespace {

using namespace std::chrono_literals;
using shoal::test::FaultyLink;
using test::Ends;
using test::kGoldenToken;
using test::PlainListener;
using test::PlainSocket;
using test::whole;

constexpr std::size_t kChallenge = kHeaderSize + 20;

LinkOptions encrypted() { return {.encrypt = Encrypt::kAlways}; }

Message some_row(std::size_t floats, float number = 1) {
  return Init{1, Part::kWeights, test::owned(std::vector<float>(floats, number))};
}

// A process of the job, or nearly one, which says over TLS what a test wants.
class Impostor {
 public:
  explicit Impostor(std::uint16_t port, std::string_view token = kGoldenToken)
      : socket(port), tls(Tls::Role::kConnects, token) {
    challenge = socket.hear(kChallenge);
    tls.begin();
  }
  // Moves records until so many bytes were heard in them; fewer at the end of the connection.
  std::string hear(std::size_t bytes) {
    std::string heard;
    char piece[4096];
    for (;;) {
      for (;;) {
        const Result<std::size_t> read = tls.read(piece);
        say_records();
        if (!read.ok() || read.value() == 0) break;
        heard.append(piece, read.value());
      }
      if (heard.size() >= bytes && tls.is_open()) return heard;
      const std::string came = socket.hear(1);
      if (came.empty()) return heard;
      tls.room()[0] = came[0];
      tls.took(1);
    }
  }
  std::string records_of(std::string_view bytes) {
    EXPECT_TRUE(tls.write(std::span(&bytes, 1)));
    std::string records(tls.records());
    tls.sent(records.size());
    return records;
  }
  void say(std::string_view bytes) { socket.say(records_of(bytes)); }
  // Shakes hands as the rank.
  void join(Rank rank) {
    hear(0);
    Handshake handshake(test::credentials(rank), Purpose::kRows, random_nonce(), 0);
    handshake.bind(tls.binding(), tls.exported());
    const auto step = handshake.take(decode(challenge, Stage::kStranger).value());
    say(whole(*step.value().answer) + whole(*step.value().claim));
    const std::string welcome = hear(kHeaderSize + 46);
    EXPECT_TRUE(handshake.take(decode(welcome, Stage::kStranger).value()).value().peer);
  }
  void say_records() {
    for (std::string_view records; !(records = tls.records()).empty(); tls.sent(records.size()))
      socket.say(records);
  }

  PlainSocket socket;
  Tls tls;
  std::string challenge;
};

// ---- what arrives ----

TEST(LinkEncryption, MessagesAndRowsArriveBothWaysAndNobodyElseReadsThem) {
  const std::uint64_t seed = 83;
  SCOPED_TRACE(seed);
  Random random(seed);
  Ends ends(encrypted());
  FaultyLink wire(ends.listener.port);
  ends.join(wire.port());
  EXPECT_TRUE(ends.near_link->peer().encrypted);
  EXPECT_TRUE(ends.far_link->peer().encrypted);
  std::vector<std::string> said;
  for (std::size_t i = 0; i < 300; ++i) {
    const std::size_t floats = random.below(i % 10 == 0 ? 300'000 : 100) + 1;
    const Message message = i % 2 == 0 ? some_row(floats, static_cast<float>(i))
                                       : Message(Ask{Topic::kGather, 1, std::string(floats, 'q')});
    said.push_back(whole(message));
    ends.near_link->send(message);
    ends.far_link->send(message);
  }
  for (test::Ear* const ear : {&ends.near, &ends.far}) {
    ASSERT_TRUE(ear->wait([&] { return ear->heard.size() == said.size(); }));
    for (std::size_t i = 0; i < said.size(); ++i) ASSERT_EQ(whole(ear->heard[i]), said[i]) << i;
  }
  const std::string from_near = wire.came_from(0), from_far = wire.came_from(1);
  EXPECT_EQ(from_near[0], Tls::kFirstByte);
  EXPECT_EQ(from_near.find("SHOL"), std::string::npos);
  EXPECT_EQ(from_far.rfind("SHOL"), 0u) << "the Challenge alone is in clear";
  EXPECT_EQ((from_near + from_far).find("qqqqqqqq"), std::string::npos);
  const Traffic both = ends.whole_traffic();
  EXPECT_EQ(both.bytes_sent, both.bytes_received);
  EXPECT_EQ(both.frames_sent, both.frames_received);
}

TEST(LinkEncryption, ThrottledOnesLoseNothing) {
  Ends ends({.window = 32 * 1024,
             .throttles = std::make_shared<Throttles>(20e6),
             .encrypt = Encrypt::kAlways});
  ends.join();
  for (int i = 0; i < 20; ++i) ends.near_link->send(some_row(10'000));
  ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 20; }));
  EXPECT_EQ(whole(ends.far.heard[19]), whole(some_row(10'000)));
}

TEST(LinkEncryption, GoodbyesAndReasonsArrive) {
  {
    Ends ends(encrypted());
    ends.join();
    for (int i = 0; i < 50; ++i) ends.near_link->send(some_row(10'000));
    ends.near_link->close(true);
    ASSERT_TRUE(ends.far.wait_closed());
    EXPECT_TRUE(ends.far.end->ok());
    EXPECT_EQ(ends.far.count(), 50u) << "what was said before the Bye arrives";
  }
  Ends ends(encrypted());
  ends.far.judge = [](Link&, const Message&) {
    return Status(Error{Code::kNonFinite, "rank 1 sent a row that does not exist"});
  };
  ends.join();
  for (int i = 0; i < 100; ++i) ends.near_link->send(some_row(50'000));
  EXPECT_EQ(ends.near.why().message, "rank 1 sent a row that does not exist");
  EXPECT_EQ(ends.near.why().code, Code::kNonFinite);
}

// Within a machine `auto` is clear; an end that must encrypt does, though the other need not.
TEST(LinkEncryption, OneEndThatMustEncryptIsEnough) {
  for (const auto& [near, far, is_encrypted] :
       {std::tuple(Encrypt::kAuto, Encrypt::kAuto, false),
        std::tuple(Encrypt::kAlways, Encrypt::kAuto, true),
        std::tuple(Encrypt::kNever, Encrypt::kNever, false)}) {
    Ends ends({.encrypt = far});
    ends.options.encrypt = near;
    ends.join();
    EXPECT_EQ(ends.near_link->peer().encrypted, is_encrypted);
    EXPECT_EQ(ends.far_link->peer().encrypted, is_encrypted);
  }
}

// ---- what is refused ----

// A clear end against one that must encrypt, from either side; then ends that must against one that
// must not.
TEST(LinkEncryption, ADowngradeIsRefusedByEitherEnd) {
  const std::tuple<Encrypt, Encrypt, const char*> cases[] = {
      {Encrypt::kNever, Encrypt::kAlways, "This connection is not encrypted"},
      {Encrypt::kAuto, Encrypt::kAlways, "This connection is not encrypted"},
      {Encrypt::kAlways, Encrypt::kNever, "answered in clear where TLS was due"}};
  for (const auto& [near, far, words] : cases) {
    Ends ends({.encrypt = far});
    ends.options.encrypt = near;
    ends.admit = [](const PeerName&) {
      ADD_FAILURE() << "it came in";
      return Status();
    };
    const Error why = ends.refused(ends.address());
    EXPECT_HAS(why.message, words);
    EXPECT_HAS(why.message, "--encrypt");
    EXPECT_EQ(why.code, Code::kPeer);
    EXPECT_FALSE(worth_another_try(why));
  }
}

// One in the middle answers in clear, or puts frames in front of the TLS that it cannot read.
TEST(LinkEncryption, NothingInClearIsHeardWhereTlsIsDue) {
  LinkOptions options = encrypted();
  const std::string challenge = whole(Challenge{1, kProtocolVersion, {}}),
                    refuse = whole(Refuse{Code::kConfig, "words of a stranger"});
  const std::pair<std::string, const char*> cases[] = {
      {challenge + whole(Welcome{}), "came in clear"},
      {challenge + refuse, "came in clear"},
      {challenge + refuse.substr(0, 9), "came in clear"}};
  for (const auto& [said, words] : cases) {
    Ends ends(options);
    const Error why = ends.refused_by([&](PlainSocket socket) {
      socket.say(said);
      socket.hear_all();
    });
    EXPECT_HAS(why.message, words);
  }
  Ends ends(options);
  const Error why = ends.refused_by([&](PlainSocket socket) {
    socket.say(challenge);
    EXPECT_EQ(socket.hear(1)[0], Tls::kFirstByte);
    socket.say(refuse);
    EXPECT_EQ(socket.hear_all().find("SHOL"), std::string::npos) << "it proved nothing in clear";
  });
  EXPECT_HAS(why.message, "answered in clear where TLS was due");
}

TEST(LinkEncryption, AnotherTokenIsRefusedAndAShortOneNotUsed) {
  Ends ends(encrypted());
  ends.admit = [](const PeerName&) {
    ADD_FAILURE() << "it came in";
    return Status();
  };
  Credentials other = test::credentials(1);
  for (const auto& [token, words, code] :
       {std::tuple("another token of a job", "another token", Code::kPeer),
        std::tuple("", "token has 0 bytes; it needs at least 16", Code::kUsage),
        std::tuple("fifteen letters", "token has 15 bytes", Code::kUsage)}) {
    other.token = token;
    const Error why = ends.refused(ends.address(), other);
    EXPECT_HAS(why.message, words);
    EXPECT_EQ(why.code, code);
    EXPECT_FALSE(worth_another_try(why));
  }
}

TEST(LinkEncryption, ARecordedConnectionSaidAgainIsNoConnection) {
  Ends ends(encrypted());
  std::atomic<int> admitted{0};
  ends.admit = [&](const PeerName&) {
    ++admitted;
    return Status();
  };
  FaultyLink wire(ends.listener.port);
  ends.join(wire.port());
  ends.near_link->send(Ready{1});
  ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 1; }));
  const std::string recorded = wire.came_from(0);
  ASSERT_EQ(recorded[0], Tls::kFirstByte);
  PlainSocket again(ends.listener.port);
  again.hear(kChallenge);
  again.say(recorded);
  again.hear_all();  // an alert, then the end
  EXPECT_EQ(admitted, 1);
  EXPECT_EQ(ends.far.count(), 1u);
}

// Both ends are this machine's, but not by one address: what `auto` takes for another machine.
TEST(LinkEncryption, AutoRefusesClearConnectionsFromOtherAddresses) {
  std::optional<sockaddr_in> own;
  ifaddrs* all = nullptr;
  ASSERT_EQ(::getifaddrs(&all), 0);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !(one->ifa_flags & IFF_LOOPBACK))
      own = *reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
  ::freeifaddrs(all);
  if (!own) GTEST_SKIP() << "this machine has no address but loopback's";
  Ends ends;
  const auto listener = Listener::create(ends.far_threads, "0.0.0.0", 0, test::credentials(0), {},
                                         [&](const PeerName&) { return &ends.far; });
  ASSERT_TRUE(listener.ok());
  own->sin_port = htons(listener.value().port);
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in loopback{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  PlainSocket socket(descriptor);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback), 0);
  if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&*own), sizeof *own) != 0)
    GTEST_SKIP() << "this system does not connect 127.0.0.1 with its other addresses";
  Handshake handshake(test::credentials(1), Purpose::kRows, random_nonce());
  const auto challenge = decode(socket.hear(kChallenge), Stage::kStranger);
  socket.say(whole(*handshake.take(challenge.value()).value().answer));
  EXPECT_HAS(socket.hear_all(), "takes no such connections from other machines");
}

// ---- damage ----

TEST(LinkEncryption, AChangedBitEndsTheConnectionAndIsNotData) {
  const std::uint64_t seed = 89;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 20; ++round) {
    Ends ends(encrypted());
    FaultyLink wire(ends.listener.port);
    ends.join(wire.port());
    wire.damage_after(random.below(12'000), static_cast<int>(random.below(8)));
    for (int i = 0; i < 3; ++i) ends.near_link->send(some_row(1000));
    for (int i = 0; i < 2; ++i) ends.near_link->send(some_row(1u << 20));
    ASSERT_EQ(ends.far.why().code, Code::kPeer) << ends.far.why().message;
    for (const Message& message : ends.far.heard)
      ASSERT_TRUE(whole(message) == whole(some_row(1000)) ||
                  whole(message) == whole(some_row(1u << 20)));
    EXPECT_EQ(ends.near.why().code, Code::kPeer);
  }
}

TEST(LinkEncryption, ACutInTheMiddleOfARecordIsALossAndNotData) {
  Ends ends(encrypted());
  Impostor impostor(ends.listener.port);
  impostor.join(1);
  impostor.say(whole(Ready{1}));
  const std::string record = impostor.records_of(whole(Ready{2}));
  impostor.socket.say(record.substr(0, record.size() / 2));
  ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 1; }));
  { const PlainSocket ends_here = std::move(impostor.socket); }
  EXPECT_EQ(ends.far.why().code, Code::kPeer);
  EXPECT_HAS(ends.far.why().message, "without a Bye");
  EXPECT_EQ(ends.far.count(), 1u);
}

// A process with the token breaks the protocol: in clear, and in records.
TEST(LinkEncryption, GarbageAfterAGoodHandshakeEndsTheConnection) {
  std::string oversize = whole(Ready{1});
  oversize.replace(16, 4, "\xff\xff\xff\x7f");
  const std::tuple<bool, std::string, const char*> cases[] = {
      {false, std::string(100, 'x'), "The encrypted connection broke"},
      {false, whole(Ready{1}), "The encrypted connection broke"},
      {true, std::string(100, 'x'), "A frame begins with 78 78 78 78"},
      {true, oversize, "bytes"}};
  for (const auto& [in_records, bytes, words] : cases) {
    Ends ends(encrypted());
    Impostor impostor(ends.listener.port);
    impostor.join(1);
    if (in_records)
      impostor.say(bytes);
    else
      impostor.socket.say(bytes);
    EXPECT_EQ(ends.far.why().code, Code::kPeer);
    EXPECT_HAS(ends.far.why().message, words);
    EXPECT_EQ(ends.far.count(), 0u);
  }
}

TEST(LinkEncryption, WhoStopsInTheMiddleOfTheHandshakeIsGivenUp) {
  LinkOptions options = encrypted();
  options.connect = 300ms;
  Ends ends(options);
  Impostor impostor(ends.listener.port);
  const std::string hello(impostor.tls.records());
  impostor.socket.say(hello.substr(0, hello.size() / 2));
  EXPECT_EQ(impostor.socket.hear_all(), "");
  const Error why = ends.refused_by([](PlainSocket socket) {
    socket.say(whole(Challenge{1, kProtocolVersion, {}}));
    socket.hear_all();
  });
  EXPECT_EQ(why.code, Code::kTimeout);
}

}  // namespace
}  // namespace shoal::table::link_encryption_test
