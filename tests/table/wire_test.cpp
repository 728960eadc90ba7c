// Messages as bytes: what they are (golden files, made by another program), that they come back,
// and what damaged ones are answered.
#include "shoal/table/wire.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator.h"
#include "support/messages.h"
#include "support/places.h"
#include "support/schemes.h"

namespace shoal::table::wire_test {
namespace {

using test::golden_messages;
using test::random_message;

constexpr std::size_t kTypes = std::variant_size_v<Message>;

std::string whole(const Frame& frame) {
  return frame.head + std::string(reinterpret_cast<const char*>(frame.payload.bytes.data()),
                                  frame.payload.bytes.size());
}

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

std::string why_not(const std::string& frame, Stage stage = Stage::kPeer) {
  const Result<Message> message = decode(frame, stage);
  return message.ok() ? "" : message.error().message;
}

#define EXPECT_SAYS(part, text) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

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
  const Message push = decode(golden_bytes("push"), Stage::kPeer).value(),
                plan = decode(golden_bytes("plan"), Stage::kPeer).value();
  EXPECT_EQ(std::get<Push>(push).row, 0x01020304u);
  EXPECT_EQ(std::get<Push>(push).base, 39);
  EXPECT_EQ(std::get<Push>(push).payload.floats()[1], -0.25f);
  EXPECT_EQ(std::get<PlanMessage>(plan).plan.rule.rule, optim::Rule::kAdam);
  EXPECT_EQ(std::get<PlanMessage>(plan).plan.rows[1],
            (Row{500, 3, 1, false, 2, 0, CodecId{1}, CodecId{2}}));
  EXPECT_EQ(std::get<PlanMessage>(plan).plan.rows[2].writer, 3);
  EXPECT_EQ(std::get<PlanMessage>(plan).plan.rows[2].reader, 2);
  EXPECT_EQ(std::get<PlanMessage>(plan).plan.ranks.at(3), 5u);
  EXPECT_EQ(std::get<Push>(push).generation, 3u);
  const Message ask = decode(golden_bytes("ask"), Stage::kPeer).value(),
                answer = decode(golden_bytes("answer"), Stage::kPeer).value();
  const Result<JoinBody> join = decode<JoinBody>(std::get<Ask>(ask).body);
  ASSERT_TRUE(join.ok());
  EXPECT_EQ(join.value().address, "10.0.0.3:29600");
  EXPECT_FALSE(join.value().server);
  const Result<RosterBody> roster = decode<RosterBody>(std::get<Answer>(answer).body);
  ASSERT_TRUE(roster.ok());
  EXPECT_EQ(roster.value().seed, 7u);
  EXPECT_EQ(roster.value().processes.at(1).worker, -1);
  EXPECT_EQ(roster.value().processes.at(1).host, "host-b");
  EXPECT_EQ(roster.value().processes.at(0).clock, 41);
  EXPECT_EQ(roster.value().why, "rank 2 leaves");
  EXPECT_EQ(roster.value().processes.at(0).weight, 1.5);
  EXPECT_EQ(roster.value().processes.at(1).bandwidth, 2e6);
  EXPECT_TRUE(roster.value().measures);
  EXPECT_EQ(std::get<PlanMessage>(plan).plan.clocks.at(3), 130);
  EXPECT_EQ(std::get<PlanMessage>(plan).plan.server_ranks.at(1), 3u);
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
  EXPECT_SAYS("said to be longer than 65534", why_not(mended(short_one)));
}

TEST(Wire, WordsForPeopleAreCutAndBodiesAreNot) {
  const Message read =
      decode(whole(encode(Refuse{Code::kPeer, std::string(9000, 'x')}, 1)), Stage::kStranger)
          .value();
  EXPECT_EQ(std::get<Refuse>(read).reason.size(), kMaxReasonBytes);
  EXPECT_DEATH(encode(Ask{Topic::kGather, 1, std::string(kMaxBodyBytes + 1, 'x')}, 1), "at most");
}

// ---- what is wrong gets an error with words ----

TEST(WireDamage, EveryBitOfEveryMessage) {
  std::size_t tried = 0;
  for (const auto& [name, message] : golden_messages()) {
    const std::string good = golden_bytes(name);
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit, ++tried) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      ASSERT_GT(why_not(bad).size(), 20u) << name << ", bit " << bit;
    }
  }
  EXPECT_GT(tried, 9'000u);
}

TEST(WireDamage, EveryLength) {
  for (const auto& [name, message] : golden_messages()) {
    const std::string good = golden_bytes(name);
    for (std::size_t length = 0; length < good.size(); ++length) {
      ASSERT_GT(why_not(good.substr(0, length)).size(), 20u) << name << " cut to " << length;
      if (length < kHeaderSize) continue;
      std::string shorter = good.substr(0, length);  // and its header says so
      const auto said = static_cast<std::uint32_t>(length - kHeaderSize);
      std::memcpy(shorter.data() + 16, &said, 4);
      // a shorter payload is the receiver's codec's business
      if (length >= kHeaderSize + get_le<std::uint16_t>(good.substr(6))) continue;
      ASSERT_GT(why_not(mended(shorter)).size(), 20u) << name << " cut to " << length;
    }
    EXPECT_GT(why_not(good + '\0').size(), 20u) << name;
  }
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
    if (random.below(2) == 0 && frame.size() >= kHeaderSize) {
      const auto said = static_cast<std::uint32_t>(frame.size() - kHeaderSize);
      std::memcpy(frame.data() + 16, &said, 4);
    }
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
  EXPECT_SAYS("HTTP", why_not("GET / HTTP/1.1\r\nHost: localhost:29600\r\n\r\n"));
  EXPECT_SAYS("ssh", why_not("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"));
  EXPECT_SAYS("TLS", why_not(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) +
                             std::string(20, 'r')));
  EXPECT_SAYS("another byte order", why_not(with(get, 0, "LOHS")));
  EXPECT_SAYS("41 42 43 44", why_not(with(get, 0, "ABCD")));
  EXPECT_SAYS(str("version 1 of the protocol, and this process speaks ", int{kProtocolVersion}),
              why_not(with(get, 4, "\x01")));
  EXPECT_SAYS("unknown type 99", why_not(with(get, 5, "\x63")));
  EXPECT_SAYS("A Get came before", why_not(get, Stage::kStranger));
  EXPECT_EQ("", why_not(hello, Stage::kStranger));
  EXPECT_SAYS("crc32c", why_not(with(get, 30, "\x07").replace(20, 1, "\x07")));
  EXPECT_SAYS("unknown part, 7", why_not(with(get, 36, "\x07")));
  EXPECT_SAYS("unknown contribution, 3", why_not(with(push, 44, "\x03")));
  EXPECT_SAYS("unknown topic, 99", why_not(with(ask, 24, "\x63")));
  EXPECT_SAYS("no numbers, and the weight 1",
              why_not(with(nothing, 45, std::string_view("\0\0\x80\x3f", 4))));
  EXPECT_SAYS("the weight 0", why_not(with(push, 45, std::string_view("\0\0\0\0", 4))));
  EXPECT_SAYS("a weight of nan", why_not(with(push, 45, std::string_view("\0\0\xc0\x7f", 4))));
  EXPECT_SAYS("a yes or no of 2", why_not(with(plan, plan.size() - 120, "\x02")));
  EXPECT_SAYS("row 1 is on server 5, and there are 2",
              why_not(with(plan, plan.size() - 122, "\x05")));
  EXPECT_SAYS("which 159 bytes cannot hold", why_not(with(plan, plan.size() - 163, "\x06")));
  EXPECT_SAYS("at most 1048576 are allowed", why_not(with(plan, plan.size() - 160, "\x03")));
  EXPECT_SAYS("a scheme of 16777221 bytes", why_not(with(plan, plan.size() - 169, "\x01")));
  EXPECT_SAYS("versions that end before they begin",
              why_not(with(hello, 24, "\x63"), Stage::kStranger));
}

// decode_header sees nothing but the header: what it lets through bounds what is allocated.
TEST(WireDamage, LengthsAreBoundedBeforeAnythingIsAllocated) {
  Random random(5);
  std::size_t passed = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string head =
        whole(encode(random_message(random, random.below(kTypes), 9), 1)).substr(0, kHeaderSize);
    const auto length =
        static_cast<std::uint32_t>(std::uint64_t{random.word()} >> random.below(33));
    if (random.below(4) > 0) std::memcpy(head.data() + 16, &length, 4);
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
  EXPECT_SAYS("4294967295 bytes long; at most 8 are allowed",
              why_not(with(ping, 16, "\xff\xff\xff\xff")));
}

TEST(WireDamage, BodiesOfJoins) {
  const std::string join = encode(JoinBody{2, true, true, "h", "a:1", "text"});
  const std::string roster = encode(RosterBody{{{0, 0, 0, "h", "a:1"}, {1, 1, 1, "h", "b:1"}}, 7});
  ASSERT_TRUE(decode<JoinBody>(join).ok());
  ASSERT_TRUE(decode<RosterBody>(roster).ok());
  for (std::size_t length = 0; length < join.size(); ++length)
    EXPECT_FALSE(decode<JoinBody>(std::string_view(join).substr(0, length)).ok());
  for (std::size_t length = 0; length < roster.size(); ++length)
    EXPECT_FALSE(decode<RosterBody>(std::string_view(roster).substr(0, length)).ok());
  EXPECT_SAYS("1 bytes more", decode<JoinBody>(join + "x").error().message);
}

TEST(WireDamage, BodiesOfEnds) {
  const SegmentBody end{.clock = 7,
                        .phase_end = 9,
                        .next_scheme = SchemeSpec(),
                        .scheme = scheme_of("ssp 2"),
                        .weights = {1, 2.5},
                        .bandwidths = {1e6},
                        .measures = true};
  const std::string bytes = encode(end);
  const SegmentBody read = decode<SegmentBody>(bytes).value();
  EXPECT_EQ(words_of(read.scheme), "ssp 2");
  EXPECT_EQ(read.weights, end.weights);
  EXPECT_EQ(read.bandwidths, end.bandwidths);
  EXPECT_TRUE(read.measures);
  EXPECT_EQ(encode(read), bytes);
  std::string other = encode(SegmentBody{.scheme = scheme_of("async factor=100")});
  EXPECT_SAYS("scheme 'async factor=1e2' in other words",
              decode<SegmentBody>(other.replace(other.find("100"), 3, "1e2")).error().message);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode<SegmentBody>(std::string_view(bytes).substr(0, length)).ok());
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
  const auto damaged = [](const std::string& whole, const auto& decode) {
    for (std::size_t length = 1; length < whole.size(); ++length)
      EXPECT_FALSE(decode(std::string_view(whole).substr(0, length)).ok()) << length;
    EXPECT_SAYS("1 bytes more", decode(whole + "x").error().message);
  };
  damaged(encode(begin), decode<BeginBody>);
  damaged(encode(begin.last), decode<TaskReport>);
  damaged(encode(start), decode<Start>);
  damaged(encode(VerdictBody{7, Verdict::kDrop}), decode<VerdictBody>);
  EXPECT_FALSE(decode<TaskReport>("").ok());
  EXPECT_SAYS("an unknown verdict, 3",
              decode<VerdictBody>(std::string("\7\0\0\0\3", 5)).error().message);
  EXPECT_SAYS("a yes or no of 2",
              decode<Start>(std::string(12, '\0') + "\2" + std::string(9, '\0')).error().message);
  for (const double bad : {-1.0, HUGE_VAL, std::nan("")}) {
    EXPECT_SAYS("a number that cannot be",
                decode<TaskReport>(encode(TaskReport{.seconds = bad})).error().message);
    EXPECT_SAYS("a number that cannot be",
                decode<TaskReport>(encode(TaskReport{.samples = bad})).error().message);
    EXPECT_SAYS("a number that cannot be",
                decode<BeginBody>(encode(BeginBody{.last = {.exchange = bad}})).error().message);
    EXPECT_SAYS("a number that cannot be",
                decode<Start>(encode(Start{.mean_steps = bad})).error().message);
  }
  EXPECT_SAYS("task -1", decode<Start>(encode(Start{.at = -1})).error().message);
  EXPECT_SAYS("an end after -1 tasks",
              decode<BeginBody>(encode(BeginBody{.last = {}, .until = -1})).error().message);
}

// ---- plans ----

}  // namespace
}  // namespace shoal::table::wire_test
