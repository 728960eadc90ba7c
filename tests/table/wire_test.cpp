// Messages as bytes: what they are (golden files, made by another program), that they come back,
// and what damaged ones are answered.
#include "shoal/table/wire.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator.h"
#include "support/expect.h"
#include "support/messages.h"
#include "support/places.h"
#include "support/schemes.h"

namespace shoal::table::wire_test {
namespace {

using test::golden_messages;
using test::random_message;
using test::whole;

constexpr std::size_t kTypes = std::variant_size_v<Message>;

std::string golden_bytes(const std::string& name) {
  std::ifstream file(shoal::test::repository_root() / "tests/golden/wire" / (name + ".hex"));
  EXPECT_TRUE(file.good()) << name;
  std::string digits, bytes;
  for (std::string line; std::getline(file, line);)
    for (const char c : line.starts_with('#') ? "" : line)
      if (c != ' ') digits += c;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

// With the crc that belongs to it, so that what is behind the crc is tested.
std::string mended(std::string frame) {
  if (frame.size() < kHeaderSize) return frame;
  std::string crc;
  put_le(crc, crc32c(std::string_view(frame).substr(kHeaderSize),
                     crc32c(std::string_view(frame).substr(0, 20))));
  return frame.replace(20, 4, crc);
}

// Returns the bytes of a frame whose header says that so many bytes follow it.
std::string said_to_be(std::string frame, std::size_t length) {
  std::string bytes;
  put_le(bytes, static_cast<std::uint32_t>(length));
  return frame.replace(16, 4, bytes);
}

std::string why_not(const std::string& frame, Stage stage = Stage::kPeer) {
  const Result<Message> message = decode(frame, stage);
  return message.ok() ? "" : message.error().message;
}

TEST(Wire, GoldenBytesBothWays) {
  std::uint64_t request = 0;
  std::set<std::size_t> types;
  for (const auto& [name, message] : golden_messages()) {
    SCOPED_TRACE(name);
    const std::string golden = golden_bytes(name);
    EXPECT_EQ(whole(encode(message, request++)), golden);
    EXPECT_EQ(frame_bytes(message), golden.size());
    const Result<Message> read = decode(golden, Stage::kPeer);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value().index(), message.index());
    EXPECT_EQ(whole(encode(read.value(), request - 1)), golden);
    types.insert(message.index());
  }
  const std::string lent = golden_bytes("row_lent");
  const Message row = decode(golden_bytes("row"), Stage::kPeer).value();
  EXPECT_EQ(whole(encode(row, request++, Lent{0x123456780, 12345})), lent);
  EXPECT_EQ(types.size(), kTypes) << "a type without golden bytes";
  const auto folder = shoal::test::repository_root() / "tests/golden/wire";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}),
            static_cast<std::ptrdiff_t>(request))
      << "a file that nothing reads";
}

TEST(Wire, GoldenBytesMeanWhatWasSaid) {
  const auto push = std::get<Push>(decode(golden_bytes("push"), Stage::kPeer).value());
  EXPECT_EQ(push.row, 0x01020304u);
  EXPECT_EQ(push.base, 39);
  EXPECT_EQ(push.payload.floats()[1], -0.25f);
  EXPECT_EQ(push.generation, 3u);
  const Plan plan = *std::get<PlanMessage>(decode(golden_bytes("plan"), Stage::kPeer).value()).plan;
  EXPECT_EQ(plan.rule.rule, optim::Rule::kAdam);
  EXPECT_EQ(plan.rows[1], (Row{500, 3, 1, false, 2, 0, 1, 2}));
  ASSERT_EQ(plan.codecs.size(), 2u);
  EXPECT_EQ(words_of(plan.codecs[0]), "topk:0.5:2:momentum=0.75:warm_up=7");
  EXPECT_EQ(words_of(plan.codecs[1]), "fp16");
  EXPECT_EQ(plan.rows[2].writer, 3);
  EXPECT_EQ(plan.rows[2].reader, 2);
  EXPECT_EQ(plan.ranks.at(3), 5u);
  EXPECT_EQ(plan.clocks.at(3), 130);
  EXPECT_EQ(plan.server_ranks.at(1), 3u);
  const Message ask = decode(golden_bytes("ask"), Stage::kPeer).value(),
                answer = decode(golden_bytes("answer"), Stage::kPeer).value();
  const JoinBody join = decode<JoinBody>(std::get<Ask>(ask).body).value();
  EXPECT_EQ(join.address, "10.0.0.3:29600");
  EXPECT_FALSE(join.server);
  const RosterBody roster = decode<RosterBody>(std::get<Answer>(answer).body).value();
  EXPECT_EQ(roster.seed, 7u);
  EXPECT_EQ(roster.why, "rank 2 leaves");
  EXPECT_TRUE(roster.measures);
  EXPECT_EQ(roster.processes.at(0).clock, 41);
  EXPECT_EQ(roster.processes.at(0).weight, 1.5);
  EXPECT_EQ(roster.processes.at(1).worker, -1);
  EXPECT_EQ(roster.processes.at(1).host, "host-b");
  EXPECT_EQ(roster.processes.at(1).bandwidth, 2e6);
}

TEST(Wire, RandomMessagesComeBack) {
  const std::uint64_t seed = 17;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (std::size_t i = 0; i < 200 * kTypes; ++i) {
    const Message message = random_message(random, i % kTypes, i % 50 == 0 ? 70'000 : 20);
    const std::uint64_t request = random.word64();
    const std::string frame = whole(encode(message, request));
    const Result<Message> read = decode(frame, Stage::kPeer);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read.value().index(), message.index());
    ASSERT_EQ(whole(encode(read.value(), request)), frame) << name_of(message);
  }
}

TEST(Wire, LongFieldsAreMarked) {
  // 14 bytes of fields before it
  for (const std::size_t body : {65519u, 65520u, 65521u, 65522u, 200'000u}) {
    const std::string frame = whole(encode(Ask{Topic::kGather, 1, std::string(body, 'x')}, 1));
    EXPECT_EQ(get_le<std::uint16_t>(frame.substr(6)), std::min<std::size_t>(body + 14, 0xffff));
    const Result<Message> read = decode(frame, Stage::kPeer);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(std::get<Ask>(read.value()).body.size(), body);
  }
  std::string short_one = whole(encode(Ask{Topic::kGather, 1, "x"}, 1));
  short_one.replace(6, 2, "\xff\xff");
  EXPECT_HAS(why_not(mended(short_one)), "says that it is longer than 65534");
}

TEST(Wire, WordsForPeopleAreCutAndBodiesAreNot) {
  const Message read =
      decode(whole(encode(Refuse{Code::kPeer, std::string(9000, 'x')}, 1)), Stage::kStranger)
          .value();
  EXPECT_EQ(std::get<Refuse>(read).reason.size(), kMaxReasonBytes);
  EXPECT_DEATH(encode(Ask{Topic::kGather, 1, std::string(kMaxBodyBytes + 1, 'x')}, 1), "at most");
}

// ---- what is wrong gets an error with words ----

TEST(WireDamage, EveryBitAndEveryLengthOfEveryMessage) {
  std::size_t tried = 0;
  for (const auto& [name, message] : golden_messages()) {
    const std::string good = golden_bytes(name);
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit, ++tried) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      ASSERT_GT(why_not(bad).size(), 20u) << name << ", bit " << bit;
    }
    for (std::size_t length = 0; length < good.size(); ++length) {
      ASSERT_GT(why_not(good.substr(0, length)).size(), 20u) << name << " cut to " << length;
      // a shorter payload is the receiver's codec's business
      if (length < kHeaderSize || length >= kHeaderSize + get_le<std::uint16_t>(good.substr(6)))
        continue;
      const std::string shorter = said_to_be(good.substr(0, length), length - kHeaderSize);
      ASSERT_GT(why_not(mended(shorter)).size(), 20u) << name << " cut to " << length;
    }
    EXPECT_GT(why_not(good + '\0').size(), 20u) << name;
  }
  EXPECT_GT(tried, 9'000u);
}

// Random damage under a right crc: an error, or a message that has exactly these bytes.
TEST(WireDamage, AnyBytesByTheThousand) {
  const std::uint64_t seed = 23;
  SCOPED_TRACE(seed);
  Random random(seed);
  std::size_t refused = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string frame = whole(encode(random_message(random, random.below(kTypes), 20), 1));
    if (frame.size() > 4000) continue;
    for (std::uint64_t n = 1 + random.below(4); n > 0; --n)
      frame[4 + random.below(frame.size() - 4)] = static_cast<char>(random.word());
    if (random.below(4) == 0) frame.resize(random.below(frame.size() + 1));
    if (random.below(2) == 0 && frame.size() >= kHeaderSize)
      frame = said_to_be(frame, frame.size() - kHeaderSize);
    frame = mended(frame);
    const Stage stage = random.below(2) == 0 ? Stage::kStranger : Stage::kPeer;
    const Result<Message> read = decode(frame, stage);
    if (!read.ok()) {
      ASSERT_GT(read.error().message.size(), 20u);
      ASSERT_EQ(read.error().code, Code::kPeer);
      ++refused;
    } else {
      ASSERT_EQ(whole(encode(read.value(), get_le<std::uint64_t>(frame.substr(8)))), frame);
    }
  }
  EXPECT_GT(refused, 20'000u);
}

std::string with(std::string frame, std::size_t at, std::string_view bytes) {
  return mended(frame.replace(at, bytes.size(), bytes));
}

TEST(WireDamage, EachIsNamed) {
  const std::string push = golden_bytes("push"), get = golden_bytes("get"),
                    plan = golden_bytes("plan"), ask = golden_bytes("ask");
  const std::string hello = golden_bytes("hello"), nothing = golden_bytes("push_nothing");
  EXPECT_HAS(why_not("GET / HTTP/1.1\r\nHost: localhost:29600\r\n\r\n"), "HTTP");
  EXPECT_HAS(why_not("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"), "ssh");
  EXPECT_HAS(why_not(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) +
                     std::string(20, 'r')),
             "TLS");
  EXPECT_HAS(why_not(with(get, 0, "LOHS")), "another byte order");
  EXPECT_HAS(why_not(with(get, 0, "ABCD")), "41 42 43 44");
  EXPECT_HAS(why_not(with(get, 4, "\x01")),
             str("version 1 of the protocol, and this process speaks ", int{kProtocolVersion}));
  EXPECT_HAS(why_not(with(get, 5, "\x63")), "unknown type 99");
  EXPECT_HAS(why_not(get, Stage::kStranger), "A Get came before");
  EXPECT_EQ("", why_not(hello, Stage::kStranger));
  EXPECT_HAS(why_not(with(get, 30, "\x07").replace(20, 1, "\x07")), "crc32c");
  EXPECT_HAS(why_not(with(get, 36, "\x07")), "unknown part, 7");
  EXPECT_HAS(why_not(with(push, 44, "\x03")), "unknown contribution, 3");
  EXPECT_HAS(why_not(with(ask, 24, "\x63")), "unknown topic, 99");
  EXPECT_HAS(why_not(with(nothing, 45, std::string_view("\0\0\x80\x3f", 4))),
             "no numbers, but the weight 1");
  EXPECT_HAS(why_not(with(push, 45, std::string_view("\0\0\0\0", 4))), "the weight 0");
  EXPECT_HAS(why_not(with(push, 45, std::string_view("\0\0\xc0\x7f", 4))), "a weight of nan");
  EXPECT_HAS(why_not(with(plan, plan.size() - 157, "\x02")), "a bool of 2");
  EXPECT_HAS(why_not(with(plan, plan.size() - 159, "\x05")),
             "row 1 is on server 5, but there are 2");
  EXPECT_HAS(why_not(with(plan, plan.size() - 200, "\x07")), "which 196 bytes cannot hold");
  EXPECT_HAS(why_not(with(plan, plan.size() - 197, "\x03")), "at most 1048576 are allowed");
  EXPECT_HAS(why_not(with(plan, plan.size() - 206, "\x01")), "a scheme of 16777221 bytes");
  EXPECT_HAS(why_not(with(hello, 24, "\x63"), Stage::kStranger),
             "a lowest version above its highest");
}

// decode_header sees nothing but the header: what it lets through bounds what is allocated.
TEST(WireDamage, LengthsAreBoundedBeforeAnythingIsAllocated) {
  Random random(5);
  std::size_t passed = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string head =
        whole(encode(random_message(random, random.below(kTypes), 9), 1)).substr(0, kHeaderSize);
    const std::size_t length = std::size_t{random.word()} >> random.below(33);
    if (random.below(4) > 0) head = said_to_be(head, length);
    if (random.below(4) > 0) head.replace(6, 2, i % 2 == 0 ? "\xff\xff" : "\xfe\xff");
    const Result<Header> stranger = decode_header(head, Stage::kStranger),
                         peer = decode_header(head, Stage::kPeer);
    ASSERT_TRUE(!stranger.ok() || stranger.value().length <= 4096u);
    if (!peer.ok()) continue;
    ++passed;
    ASSERT_LE(peer.value().payload_bytes(), kMaxPayloadBytes);
    constexpr int kPlan = 16;
    ASSERT_LE(peer.value().length, (peer.value().type == kPlan ? 31u << 20 : 16u << 20) + 1000);
  }
  EXPECT_GT(passed, 10'000u);
  std::string ping = golden_bytes("ping");
  EXPECT_HAS(why_not(with(ping, 16, "\xff\xff\xff\xff")),
             "4294967295 bytes long; at most 8 are allowed");
}

// Every shorter body is refused, and a longer one.
template <class Body>
void expect_refused_cut(const std::string& body) {
  for (std::size_t length = 1; length < body.size(); ++length)
    EXPECT_FALSE(decode<Body>(std::string_view(body).substr(0, length)).ok()) << length;
  EXPECT_HAS(decode<Body>(body + "x").error().message, "1 bytes after its last field");
}

TEST(WireDamage, BodiesOfJoinsAndEnds) {
  const std::string join = encode(JoinBody{2, true, true, "h", "a:1", "text"});
  const std::string roster = encode(RosterBody{{{0, 0, 0, "h", "a:1"}, {1, 1, 1, "h", "b:1"}}, 7});
  ASSERT_TRUE(decode<JoinBody>(join).ok() && !decode<JoinBody>("").ok());
  ASSERT_TRUE(decode<RosterBody>(roster).ok() && !decode<RosterBody>("").ok());
  const SegmentBody end{.clock = 7,
                        .phase_end = 9,
                        .next_scheme = SchemeSpec(),
                        .scheme = scheme_of("ssp 2"),
                        .weights = {1, 2.5},
                        .bandwidths = {1e6},
                        .measures = true};
  const SegmentBody read = decode<SegmentBody>(encode(end)).value();
  EXPECT_EQ(words_of(read.scheme), "ssp 2");
  EXPECT_EQ(read.weights, end.weights);
  EXPECT_EQ(read.bandwidths, end.bandwidths);
  EXPECT_TRUE(read.measures);
  EXPECT_EQ(encode(read), encode(end));
  std::string other = encode(SegmentBody{.scheme = scheme_of("async factor=100")});
  EXPECT_HAS(decode<SegmentBody>(other.replace(other.find("100"), 3, "1e2")).error().message,
             "scheme 'async factor=1e2' in words that are not its standard form");
  EXPECT_FALSE(decode<SegmentBody>("").ok());
  expect_refused_cut<JoinBody>(join);
  expect_refused_cut<RosterBody>(roster);
  expect_refused_cut<SegmentBody>(encode(end));
}

TEST(WireDamage, TheBodyOfAnAccount) {
  AccountBody account{.seconds = 12.5,
                      .alive = 3,
                      .taking_part = 2,
                      .losses = 70,
                      .in_params = 1ll << 40,
                      .computed = (1ll << 40) + 1,
                      .possible = 2e12,
                      .ended = true};
  account.faults.push_back({.number = 70,
                            .rank = 5,
                            .host = "b",
                            .why = "killed",
                            .since = 1.5,
                            .stopped = 0.25,
                            .back = -1,
                            .steps = 1});
  const std::string bytes = encode(account);
  EXPECT_EQ(bytes.size(), 8u + 3 * 4 + 3 * 8 + 1 + 4 + 2 * 4 + 2 * 4 + 7 + 4 * 8);
  EXPECT_EQ(decode<AccountBody>(bytes).value(), account);
  expect_refused_cut<AccountBody>(bytes);
  account.possible = std::numeric_limits<double>::infinity();
  EXPECT_HAS(decode<AccountBody>(encode(account)).error().message,
             "a body of an account: a number that is negative or not finite");
}

TEST(WireDamage, BodiesOfTasks) {
  const BeginBody begin{.last = {.steps = 3, .seconds = 0.5, .samples = 192, .exchange = 0.25},
                        .until = 1000};
  const Start start{.steps = 34, .mean_steps = 17.5, .over = true, .reread = true, .at = 12};
  EXPECT_EQ(encode(begin).size(), 36u);
  EXPECT_EQ(decode<BeginBody>(encode(begin)).value(), begin);
  EXPECT_EQ(decode<BeginBody>("").value(), BeginBody());
  EXPECT_EQ(encode(begin.last).size(), 28u);
  EXPECT_EQ(decode<TaskReport>(encode(begin.last)).value(), begin.last);
  EXPECT_EQ(encode(start), std::string("\x22\0\0\0"
                                       "\0\0\0\0\0\x80\x31\x40"
                                       "\1\1"
                                       "\x0c\0\0\0\0\0\0\0",
                                       22));
  EXPECT_EQ(decode<Start>(encode(start)).value(), start);
  EXPECT_EQ(encode(VerdictBody{7, Verdict::kAnother}), std::string("\7\0\0\0\2", 5));
  EXPECT_EQ(decode<VerdictBody>(encode(VerdictBody{7, Verdict::kAnother})).value().verdict,
            Verdict::kAnother);
  expect_refused_cut<BeginBody>(encode(begin));
  expect_refused_cut<TaskReport>(encode(begin.last));
  expect_refused_cut<Start>(encode(start));
  expect_refused_cut<VerdictBody>(encode(VerdictBody{7, Verdict::kDrop}));
  EXPECT_FALSE(decode<TaskReport>("").ok());
  EXPECT_HAS(decode<VerdictBody>(std::string("\7\0\0\0\3", 5)).error().message,
             "an unknown verdict, 3");
  EXPECT_HAS(decode<Start>(std::string(12, '\0') + "\2" + std::string(9, '\0')).error().message,
             "a bool of 2");
  for (const double bad : {-1.0, HUGE_VAL, std::nan("")})
    for (const Status& status :
         {Status(decode<TaskReport>(encode(TaskReport{.seconds = bad}))),
          Status(decode<TaskReport>(encode(TaskReport{.samples = bad}))),
          Status(decode<BeginBody>(encode(BeginBody{.last = {.exchange = bad}}))),
          Status(decode<Start>(encode(Start{.mean_steps = bad})))})
      EXPECT_FAILS_WITH("a number that is negative or not finite", status);
  EXPECT_HAS(decode<Start>(encode(Start{.at = -1})).error().message, "task -1");
  EXPECT_HAS(decode<BeginBody>(encode(BeginBody{.last = {}, .until = -1})).error().message,
             "an end after -1 tasks");
}

}  // namespace
}  // namespace shoal::table::wire_test
