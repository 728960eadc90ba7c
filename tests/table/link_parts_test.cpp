// The pieces of a link by themselves: strands, frames in pieces, batches, the throttle, the
// handshake.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <future>
#include <optional>
#include <thread>

#include "shoal/table/link/batch.h"
#include "shoal/table/link/frame_reader.h"
#include "shoal/table/link/handshake.h"
#include "shoal/table/link/shared_memory.h"
#include "shoal/table/link/throttle.h"
#include "support/expect.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_parts_test {
namespace {

using namespace std::chrono_literals;
using test::random_message;
using test::whole;

constexpr std::size_t kTypes = std::variant_size_v<Message>;

// ---- strands ----

TEST(Strand, RunsInOrderAndOnlyOneAtATime) {
  IoThreads threads(3);
  const Strand strand(threads);
  std::vector<int> order;
  std::promise<void> done;
  EXPECT_FALSE(strand.here());
  for (int i = 0; i < 1000; ++i) strand.post([&, i] { order.push_back(i); });
  strand.post([&] {
    EXPECT_TRUE(strand.here());
    strand.after(1ms, [&] { done.set_value(); });
  });
  ASSERT_EQ(done.get_future().wait_for(20s), std::future_status::ready);
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// Threads of its own and others', now and later, from its inside and another's: a counter without a
// lock finds out.
TEST(Strand, RunsOneAtATimeWhoeverAsks) {
  IoThreads threads(3);
  const Strand strand(threads), other(threads);
  constexpr int kEach = 2000;
  int count = 0, touched = 0, visits = 0;
  std::promise<void> done;
  const auto add = [&] {
    EXPECT_TRUE(strand.here());
    ++touched;
    if (++count == 4 * kEach) done.set_value();
  };
  const auto ask = [&] {
    for (int i = 0; i < kEach; ++i) {
      strand.post(add);
      other.post([&] { strand.run(add); });
    }
  };
  std::thread first(ask), second(ask);
  for (int i = 0; i < kEach; ++i) {
    visits += strand.try_run([&] { ++touched; });
    EXPECT_FALSE(strand.here());
  }
  first.join(), second.join();
  ASSERT_EQ(done.get_future().wait_for(20s), std::future_status::ready);
  threads.stop();
  EXPECT_EQ(touched, 4 * kEach + visits);
  EXPECT_FALSE(strand.try_run([] { FAIL(); })) << "the threads have stopped";
}

TEST(Strand, RunsAtOnceWhereItMay) {
  IoThreads threads(1);
  const Strand strand(threads), other(threads);
  std::vector<int> order;
  std::promise<void> done;
  ASSERT_TRUE(strand.try_run([&] {
    order.push_back(1);
    strand.run([&] { order.push_back(2); });
    EXPECT_FALSE(strand.try_run([&] { order.push_back(0); })) << "it is busy with this";
    strand.post([&] {
      order.push_back(4);
      other.run([&] { strand.run([&] { order.push_back(5); }); });
      order.push_back(6);
      done.set_value();
    });
    order.push_back(3);
  }));
  ASSERT_EQ(done.get_future().wait_for(20s), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST(Strand, WhatWaitsWhenThreadsStopIsThrownAway) {
  std::optional<Strand> kept;
  const auto held = std::make_shared<int>(1);
  {
    IoThreads threads(2);
    kept.emplace(threads);
    kept->after(10h, [held, strand = *kept] { FAIL(); });
    kept->post([held, strand = *kept] { strand.after(10h, [held] { FAIL(); }); });
    threads.stop();
    kept->post([held] { FAIL(); });
  }
  kept->post([held] { FAIL(); });
  kept->after(1ms, [held] { FAIL(); });
  EXPECT_EQ(held.use_count(), 1);
}

// ---- frames in pieces ----

struct Reader : FrameReader {
  Reader() { set_stage(Stage::kPeer); }
  Result<std::span<const std::byte>> borrow(const Lent& piece) override {
    return lent->look(piece);
  }
  bool keeps(const Message&) override { return owner != nullptr; }
  std::shared_ptr<const void> kept() override { return owner; }
  std::span<std::byte> place(Message&, std::size_t bytes) override {
    memory.push_back(std::vector<std::byte>(bytes));
    return deaf ? std::span<std::byte>() : memory.back();
  }
  Status frame(Message&& message) override {
    frames.push_back(whole(message));
    heard.push_back(std::move(message));
    return {};
  }
  bool deaf = false;
  std::deque<std::vector<std::byte>> memory;
  std::vector<std::string> frames;
  std::vector<Message> heard;
  const BorrowedMemory* lent = nullptr;  // where payloads may lie
  std::shared_ptr<const void> owner;     // of those that stay there
};

// Feeds `bytes` in pieces of up to `most` bytes.
Status feed(FrameReader& reader, std::string_view bytes, Random& random, std::size_t most) {
  while (!bytes.empty()) {
    const FrameReader::Room room = reader.room();
    const std::size_t taken =
        std::min({bytes.size(), room.numbers.size() + room.buffer.size(), 1 + random.below(most)});
    EXPECT_GT(taken, 0u);
    const std::size_t first = std::min(taken, room.numbers.size());
    std::copy_n(bytes.data(), first, room.numbers.data());
    std::copy_n(bytes.data() + first, taken - first, room.buffer.data());
    bytes.remove_prefix(taken);
    if (Status status = reader.took(taken); !status.ok()) return status;
  }
  return {};
}

Message row_of(std::size_t floats) {
  return RowMessage{1, 2, 3, Part::kWeights, test::owned(std::vector<float>(floats, 1.5f))};
}

TEST(FrameReader, PiecesOfAnySizeGiveTheSameMessages) {
  const std::uint64_t seed = 31;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const std::size_t most : {1u, 7u, 100u, 5000u, 100'000u, 10'000'000u}) {
    Reader reader;
    std::string stream;
    std::vector<std::string> said;
    for (int i = 0; i < (most < 50 ? 40 : 300); ++i) {
      said.push_back(
          whole(random_message(random, random.below(kTypes), i % 10 == 0 ? 80'000 : 50)));
      stream += said.back();
    }
    const Status status = feed(reader, stream, random, most);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_EQ(reader.frames, said);
  }
}

TEST(FrameReader, NumbersThatNobodyWantsAreReadAndForgotten) {
  Random random(5);
  Reader reader;
  reader.deaf = true;
  std::string stream;
  for (const std::size_t floats : {1u, 3000u, 100'000u}) stream += whole(row_of(floats));
  stream += whole(Get{9, 8, Part::kWeights});
  ASSERT_TRUE(feed(reader, stream, random, 5000).ok());
  ASSERT_EQ(reader.frames.size(), 4u);
  EXPECT_EQ(reader.frames[0], whole(RowMessage{1, 2, 3, Part::kWeights, {}}));
  EXPECT_EQ(reader.frames[3], whole(Get{9, 8, Part::kWeights}));
}

// Memory of 1 MiB that begins with a hundred numbers, and frames whose payload lies in it.
struct LentFrame : testing::Test {
  LentFrame() {
    const std::vector<float> sent(100, 2.5f);
    std::memcpy(piece.get(), sent.data(), 400);
    reader.lent = &borrowed;
  }
  Status feed(const std::string& bytes) {
    return link_parts_test::feed(reader, bytes, random, bytes.size());
  }
  std::shared_ptr<SharedMemory> memory = SharedMemory::create(1 << 20).value();
  std::shared_ptr<std::byte[]> piece = memory->allocate(400);
  BorrowedMemory borrowed = BorrowedMemory::create(memory->file(), 1 << 20).value();
  const std::string frame = encode(row_of(100), 1, Lent{0, 400}).head;
  Random random{7};
  Reader reader;
};

TEST_F(LentFrame, ItsNumbersMayStayInMemory) {
  reader.owner = memory;
  ASSERT_TRUE(feed(encode(row_of(100), 1, Lent{4096, 400}).head).ok());
  ASSERT_EQ(reader.heard.size(), 1u);
  const Payload& payload = std::get<RowMessage>(reader.heard[0]).payload;
  EXPECT_EQ(payload.bytes.data(), borrowed.look({4096, 400}).value().data());
  EXPECT_EQ(payload.bytes.size(), 400u);
  EXPECT_EQ(payload.owner, reader.owner);
}

TEST_F(LentFrame, ItsNumbersComeFromMemory) {
  ASSERT_TRUE(feed(frame.substr(0, 40)).ok());
  EXPECT_TRUE(reader.heard.empty());
  ASSERT_TRUE(feed(frame.substr(40)).ok());
  reader.deaf = true;
  ASSERT_TRUE(feed(frame).ok());
  ASSERT_EQ(reader.heard.size(), 2u);
  const auto& row = std::get<RowMessage>(reader.heard[0]);
  EXPECT_EQ(row.row, 1u);
  EXPECT_EQ(row.payload.bytes.size(), 400u);
  EXPECT_EQ(std::memcmp(reader.memory[0].data(), piece.get(), 400), 0);
  EXPECT_TRUE(std::get<RowMessage>(reader.heard[1]).payload.bytes.empty()) << "nobody wanted them";
  EXPECT_HAS(feed(encode(row_of(100), 1, Lent{1 << 20, 400}).head).error().message,
             "at offset 1048576 of shared memory that has 1048576");
}

// With its numbers behind it, or in memory.
TEST_F(LentFrame, ADamagedOneIsNoMessage) {
  for (const std::string& good : {whole(row_of(5)), frame})
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      Reader damaged;
      damaged.lent = &borrowed;
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      const Status status =
          link_parts_test::feed(damaged, bad + std::string(100, '\0'), random, 50);
      // a greater length is waited for
      EXPECT_TRUE(!status.ok() || (bit >= 128 && bit < 160)) << "bit " << bit;
      EXPECT_TRUE(damaged.frames.empty()) << "bit " << bit;
    }
}

TEST(Batch, PiecesSentInAnySizesAreTheFrames) {
  const std::uint64_t seed = 41;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 200; ++round) {
    Batch batch;
    std::string said, sent;
    std::size_t frames = 0, whole_frames = 0;
    while (batch.has_room(100'000) && frames < 1 + random.below(60)) {
      const Frame frame = encode(random_message(random, random.below(kTypes), 3000), frames++);
      said += whole(frame);
      batch.add(frame);
    }
    EXPECT_LE(frames, 32u);
    if (round % 3 == 0) batch.own();
    while (!batch.empty()) {
      std::array<std::string_view, Batch::kMostPieces> pieces;
      const std::size_t count = batch.pieces(pieces, 1 + random.below(20'000));
      std::string some;
      for (std::size_t i = 0; i < count; ++i) some += pieces[i];
      ASSERT_FALSE(some.empty());
      some.resize(1 + random.below(some.size()));
      sent += some;
      whole_frames += batch.sent(some.size());
    }
    ASSERT_EQ(sent, said);
    ASSERT_EQ(whole_frames, frames);
  }
}

TEST(Throttle, TheMeanIsTheRateWhateverIsAskedFor) {
  for (const std::size_t wanted : {100u, 5000u, 1'000'000u}) {
    Throttle throttle(1e6);
    std::chrono::nanoseconds time = 5s;
    double moved = 0;
    while (time < 15s) {
      const std::size_t bytes = std::min(wanted, throttle.most());
      throttle.moved(bytes, time);
      moved += static_cast<double>(bytes);
      time += throttle.wait(time);
      ASSERT_EQ(throttle.wait(time), 0ns);
    }
    EXPECT_NEAR(moved, 10e6, 0.02 * 10e6) << wanted;
  }
}

TEST(Throttle, WhatIsMovedAtOnceIsWorthLittleTime) {
  for (const double rate : {2e4, 1e5, 1e6, 125e6, 1e10}) {
    const std::size_t most = Throttle(rate).most();
    EXPECT_GT(most, 0u);
    EXPECT_LE(static_cast<double>(most), std::clamp(rate * 0.002, 1024.0, 32'768.0)) << rate;
  }
}

// ---- handshakes ----

Message golden(const char* name) {
  for (const auto& [other, message] : test::golden_messages())
    if (other == name) return message;
  return Bye{};
}

TEST(Handshake, ProofsAreThoseOfTheProtocol) {
  const Hello hello = std::get<Hello>(golden("hello"));
  const Welcome welcome = std::get<Welcome>(golden("welcome"));
  const Credentials near{hello.rank, hello.incarnation, std::string(test::kGoldenToken),
                         hello.configuration, test::golden_key()};
  const Credentials far{welcome.rank, welcome.incarnation, std::string(test::kGoldenToken),
                        hello.configuration};
  Handshake accepts(far, std::nullopt, std::get<Challenge>(golden("challenge")).nonce);
  Handshake connects(near, Purpose::kRows, hello.nonce, welcome.rank);
  EXPECT_FALSE(connects.begin().has_value());
  const Message challenge = accepts.begin().value();
  EXPECT_EQ(whole(challenge), whole(golden("challenge")));
  const auto said = connects.take(challenge).value();
  EXPECT_EQ(whole(*said.answer), whole(golden("hello")));
  EXPECT_EQ(whole(*said.claim), whole(golden("claim")));
  EXPECT_FALSE(said.peer.has_value());
  EXPECT_FALSE(accepts.take(*said.answer).value().peer.has_value());
  const auto answered = accepts.take(*said.claim).value();
  EXPECT_EQ(whole(*answered.answer), whole(golden("welcome")));
  const auto heard = connects.take(*answered.answer).value();
  ASSERT_TRUE(answered.peer && heard.peer);
  EXPECT_EQ(answered.peer->rank, hello.rank);
  EXPECT_EQ(answered.peer->key, near.key->public_key());
  EXPECT_EQ(heard.peer->incarnation, welcome.incarnation);
}

// Returns the message of this type and its bytes, of which one is changed.
Result<Message> changed(const Message& message, std::uint8_t type, std::size_t byte, int by) {
  std::string fields = whole(message).substr(kHeaderSize);
  fields[byte] = static_cast<char>(fields[byte] ^ by);
  return decode_fields({.type = type,
                        .fields = static_cast<std::uint16_t>(fields.size()),
                        .length = static_cast<std::uint32_t>(fields.size())},
                       fields);
}

// Every field of what is said is covered by a proof, or by the signature.
TEST(Handshake, WhatIsChangedOnTheWayIsRefused) {
  constexpr std::uint8_t kHello = 2, kWelcome = 3, kClaim = 9;  // on the wire
  const Credentials near = test::credentials(1), far = test::credentials(0);
  for (std::size_t byte = 0; byte < 100; ++byte) {
    Handshake accepts(far, std::nullopt, random_nonce()),
        connects(near, Purpose::kCoordination, random_nonce(), 0);
    const auto said = connects.take(*accepts.begin()).value();
    if (byte < 97) {
      // rows to coordination, the other way round
      const Result<Message> hello = changed(*said.answer, kHello, byte, 3);
      EXPECT_FALSE(hello.ok() && accepts.take(hello.value()).ok()) << "byte " << byte;
    }
    ASSERT_OK(accepts.take(*said.answer));
    EXPECT_FALSE(accepts.take(changed(*said.claim, kClaim, byte, 1).value()).ok())
        << "byte " << byte;
    const auto answer = accepts.take(*said.claim);
    ASSERT_OK(answer);
    if (byte >= 46) continue;
    EXPECT_FALSE(connects.take(changed(*answer.value().answer, kWelcome, byte, 1).value()).ok())
        << "byte " << byte;
  }
}

TEST(Handshake, AnOldProofIsNoProof) {
  Handshake one(test::credentials(0), std::nullopt, random_nonce()),
      other(test::credentials(0), std::nullopt, random_nonce());
  Handshake connects(test::credentials(1), Purpose::kRows, random_nonce());
  const Message hello = *connects.take(*one.begin()).value().answer;
  EXPECT_TRUE(one.take(hello).ok());
  EXPECT_FALSE(other.take(hello).ok());
}

}  // namespace
}  // namespace shoal::table::link_parts_test
