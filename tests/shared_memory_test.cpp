// Memory that processes of one machine lend each other: its pieces, how it is handed over, and
// links whose payloads lie in it.
#include "shoal/table/link/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <future>

#include "shoal/table/link/frame_reader.h"
#include "shoal/table/link/link_memory.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::shared_memory_test {
namespace {

using namespace std::chrono_literals;
using test::Ends;

#define EXPECT_SAYS(part, text) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

// ---- pieces ----

std::shared_ptr<SharedMemory> memory_of(std::size_t bytes) {
  return SharedMemory::create(bytes).value();
}
std::size_t place_of(const SharedMemory& memory, const std::shared_ptr<std::byte[]>& piece) {
  return memory.find({piece.get(), 1}).value();
}

TEST(SharedMemory, APieceIsUsedAgainOnlyWhenNothingHoldsIt) {
  const auto memory = memory_of(4096);
  auto first = memory->allocate(1000);
  const auto second = memory->allocate(1000);
  EXPECT_EQ(place_of(*memory, first), 0u);
  EXPECT_EQ(place_of(*memory, second), 1024u) << "pieces begin at lines";
  const auto also_first = first;
  first.reset();
  EXPECT_EQ(place_of(*memory, memory->allocate(10)), 2048u);
  std::weak_ptr<std::byte[]> gone = also_first;
  const_cast<std::shared_ptr<std::byte[]>&>(also_first).reset();
  EXPECT_TRUE(gone.expired());
  EXPECT_EQ(place_of(*memory, memory->allocate(10)), 0u);
}

TEST(SharedMemory, FragmentsGrowTogether) {
  const auto memory = memory_of(64 * 64);
  std::vector<std::shared_ptr<std::byte[]>> pieces;
  for (int i = 0; i < 64; ++i) pieces.push_back(memory->allocate(64));
  EXPECT_EQ(memory->allocate(1), nullptr) << "exhausted";
  for (int i = 0; i < 64; i += 2) pieces[static_cast<std::size_t>(i)].reset();
  EXPECT_EQ(memory->allocate(65), nullptr) << "half is free, in pieces that are too short";
  EXPECT_NE(memory->allocate(64), nullptr);
  pieces[31].reset();
  EXPECT_EQ(place_of(*memory, memory->allocate(3 * 64)), 30u * 64);
  pieces.clear();
  EXPECT_EQ(place_of(*memory, memory->allocate(64 * 64)), 0u);
}

TEST(SharedMemory, RandomPiecesNeverOverlap) {
  Random random(71);
  const auto memory = memory_of(1 << 16);
  std::vector<std::pair<std::shared_ptr<std::byte[]>, std::size_t>> held;
  for (int i = 0; i < 5000; ++i) {
    if (random.below(5) < 2 && !held.empty()) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(random.below(held.size())));
      continue;
    }
    const std::size_t bytes = 1 + random.below(3000);
    auto piece = memory->allocate(bytes);
    if (!piece) continue;
    const auto begin = piece.get();
    for (const auto& [other, length] : held)
      ASSERT_TRUE(begin + bytes <= other.get() || other.get() + length <= begin);
    held.emplace_back(std::move(piece), bytes);
  }
}

TEST(SharedMemory, WhatIsReservedOrAbandonedIsNotGiven) {
  const auto memory = memory_of(4096);
  EXPECT_EQ(memory->allocate(2048, 2049), nullptr);
  auto piece = memory->allocate(2048, 2048);
  ASSERT_NE(piece, nullptr);
  memory->abandon(std::move(piece));
  EXPECT_EQ(memory->allocate(2049), nullptr);
  EXPECT_EQ(place_of(*memory, memory->allocate(2048)), 2048u);
  memory->reclaim();
  EXPECT_EQ(place_of(*memory, memory->allocate(4096)), 0u);
  const std::byte elsewhere{};
  EXPECT_FALSE(memory->find({&elsewhere, 1}).has_value());
}

TEST(SharedMemory, TheOtherEndSeesItAndChecksWhatItIsTold) {
  const auto memory = memory_of(4096);
  const auto piece = memory->allocate(5);
  std::memcpy(piece.get(), "five!", 5);
  const auto other = BorrowedMemory::create(memory->file(), 4096);
  ASSERT_TRUE(other.ok()) << other.error().message;
  const auto bytes = other.value().look({0, 5});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(std::memcmp(bytes.value().data(), "five!", 5), 0);
  EXPECT_TRUE(other.value().look({4095, 1}).ok());
  for (const Lent& wrong :
       {Lent{4096, 1}, Lent{0, 4097}, Lent{4090, 7}, Lent{~0ull, 2}, Lent{8, 0}})
    EXPECT_SAYS("the memory that was offered has 4096", other.value().look(wrong).error().message);
}

TEST(SharedMemory, AFileThatCouldBecomeShorterIsRefused) {
  const auto memory = memory_of(4096);
  EXPECT_NE(::ftruncate(memory->file().number(), 100), 0);
  EXPECT_SAYS("has 4096 bytes, and not 8192",
              BorrowedMemory::create(memory->file(), 8192).error().message);
  const Descriptor file(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
  ASSERT_EQ(::ftruncate(file.number(), 4096), 0);
  EXPECT_SAYS("could become shorter", BorrowedMemory::create(file, 4096).error().message);
}

// ---- handing it over ----

struct HandoverTest : testing::Test {
  Result<BorrowedMemory> fetch(const Offer& offer, const std::string& token = "token") {
    std::promise<Result<BorrowedMemory>> got;
    const auto other = Handover::create(threads, token).value();
    other->fetch(Strand(threads), offer,
                 [&](Result<BorrowedMemory> memory) { got.set_value(std::move(memory)); });
    return got.get_future().get();
  }
  IoThreads threads{2};
  std::shared_ptr<Handover> owner = Handover::create(threads, "token").value();
};

TEST_F(HandoverTest, TheMemoryArrives) {
  const auto piece = owner->memory().allocate(5);
  std::memcpy(piece.get(), "five!", 5);
  const Result<BorrowedMemory> memory = fetch(owner->offer());
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_EQ(std::memcmp(memory.value().look({0, 5}).value().data(), "five!", 5), 0);
}

TEST_F(HandoverTest, AStrangerGetsNothing) {
  EXPECT_SAYS("does not hand it over", fetch(owner->offer(), "another token").error().message);
  Offer offer = owner->offer();
  offer.key[3] ^= 1;
  EXPECT_SAYS("does not hand it over", fetch(offer).error().message);
  offer = owner->offer();
  offer.name += "x";
  EXPECT_SAYS("no process of this machine has it", fetch(offer).error().message);
}

// ---- links ----

Message row_of(RowId row, std::size_t floats, float value = 1.5f) {
  return RowMessage{row, 2, 3, Part::kWeights, test::owned(std::vector<float>(floats, value))};
}

struct LinkMemoryTest : testing::Test {
  IoThreads threads{1};
  std::shared_ptr<Handover> handover = Handover::create(threads, "token").value();
  std::shared_ptr<TrafficCounters> traffic = std::make_shared<TrafficCounters>();
};

TEST_F(LinkMemoryTest, LendsNothingBeforeTheOtherEndHasItAndNothingShort) {
  LinkMemory memory(handover, traffic, 1 << 20);
  EXPECT_FALSE(memory.lend(row_of(1, 100'000)).has_value());
  ASSERT_TRUE(memory.take_back(Taken{0}).ok());
  EXPECT_FALSE(memory.lend(row_of(1, 1000)).has_value());
  EXPECT_FALSE(memory.lend(Get{1, 2, Part::kWeights}).has_value());
  const auto lent = memory.lend(row_of(1, 100'000));
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->bytes, 400'000u);
  EXPECT_EQ(traffic->sum().shared_bytes, 400'000u);
}

TEST_F(LinkMemoryTest, PayloadsAreHeldUntilTheyAreTaken) {
  LinkMemory memory(handover, traffic, 1'000'000);
  ASSERT_TRUE(memory.take_back(Taken{0}).ok());
  const auto first = memory.lend(row_of(1, 100'000)), second = memory.lend(row_of(2, 200'000));
  EXPECT_NE(first->offset, second->offset);
  EXPECT_FALSE(memory.has_room());
  EXPECT_SAYS("3 payloads were taken from memory; 2 were lent",
              memory.take_back(Taken{3}).error().message);
  ASSERT_TRUE(memory.take_back(Taken{1}).ok());
  EXPECT_TRUE(memory.has_room() && memory.waits());
  EXPECT_EQ(memory.lend(row_of(3, 100'000))->offset, first->offset) << "its room is free again";
  EXPECT_FALSE(memory.take_back(Taken{0}).ok()) << "taken once, taken for ever";
}

TEST_F(LinkMemoryTest, APayloadThatLiesThereIsNotCopied) {
  LinkMemory memory(handover, traffic, 1 << 20);
  ASSERT_TRUE(memory.take_back(Taken{0}).ok());
  const auto before = handover->memory().allocate(1000);
  const auto piece = handover->memory().allocate(100'000);
  RowMessage row{1, 2, 3};
  row.payload.bytes = {piece.get(), 100'000};
  row.payload.owner = piece;
  EXPECT_EQ(memory.lend(row)->offset, 1024u);
  EXPECT_EQ(piece.use_count(), 3) << "the link holds it too";
}

TEST_F(LinkMemoryTest, WithoutRoomTheyGoWithTheirFrames) {
  LinkMemory memory(handover, traffic, 1 << 20);
  ASSERT_TRUE(memory.take_back(Taken{0}).ok());
  auto all = handover->memory().allocate(handover->memory().size());
  EXPECT_FALSE(memory.lend(row_of(1, 100'000)).has_value());
  all.reset();
  EXPECT_TRUE(memory.lend(row_of(1, 100'000)).has_value());
}

TEST_F(LinkMemoryTest, WhatALinkLentWhenItBrokeIsNeverUsedAgain) {
  std::size_t offset = 0;
  {
    LinkMemory memory(handover, traffic, 1 << 20);
    ASSERT_TRUE(memory.take_back(Taken{0}).ok());
    offset = memory.lend(row_of(1, 100'000))->offset;
  }
  const auto next = handover->memory().allocate(100'000);
  EXPECT_NE(handover->memory().find({next.get(), 1}).value(), offset);
}

TEST_F(LinkMemoryTest, BorrowsOnlyWhatWasOffered) {
  LinkMemory memory(handover, traffic, 1 << 20);
  EXPECT_SAYS("which was not offered", memory.borrow({0, 1}).error().message);
  EXPECT_FALSE(memory.taken().has_value());
  memory.use(Error{Code::kPeer, "no such process"}, 3);
  EXPECT_FALSE(memory.taken().has_value());
  memory.use(BorrowedMemory::create(handover->memory().file(), handover->offer().bytes), 3);
  EXPECT_EQ(std::get<Taken>(memory.taken().value()).payloads, 0u) << "it is there";
  ASSERT_TRUE(memory.borrow({0, 10}).ok());
  ASSERT_TRUE(memory.borrow({64, 10}).ok());
  EXPECT_EQ(std::get<Taken>(memory.taken().value()).payloads, 2u);
  EXPECT_FALSE(memory.taken().has_value()) << "said once";
}

// A frame reader beside a memory of 1 MiB.
struct Reader : FrameReader {
  Result<std::span<const std::byte>> borrow(const Lent& lent) override {
    return borrowed.look(lent);
  }
  std::span<std::byte> place(Message&, std::size_t bytes) override {
    return std::as_writable_bytes(std::span(numbers)).first(deaf ? 0 : bytes);
  }
  Status frame(Message&& message) override {
    heard.push_back(std::get<RowMessage>(message));
    return {};
  }
  Status feed(const std::string& bytes) {
    std::copy(bytes.begin(), bytes.end(), room().buffer.begin());
    return took(bytes.size());
  }
  std::shared_ptr<SharedMemory> memory = memory_of(1 << 20);
  BorrowedMemory borrowed = BorrowedMemory::create(memory->file(), 1 << 20).value();
  std::vector<float> numbers = std::vector<float>(1000);
  std::vector<RowMessage> heard;
  bool deaf = false;
};

TEST(LentFrame, ItsNumbersComeFromMemory) {
  Reader reader;
  reader.set_stage(Stage::kPeer);
  const auto piece = reader.memory->allocate(400);
  std::vector<float> sent(100, 2.5f);
  std::memcpy(piece.get(), sent.data(), 400);
  const std::string frame = encode(row_of(7, 100), 1, Lent{0, 400}).head;
  ASSERT_TRUE(reader.feed(frame.substr(0, 40)).ok());
  EXPECT_TRUE(reader.heard.empty());
  ASSERT_TRUE(reader.feed(frame.substr(40)).ok());
  reader.deaf = true;
  ASSERT_TRUE(reader.feed(frame).ok());
  ASSERT_EQ(reader.heard.size(), 2u);
  EXPECT_EQ(reader.heard[0].row, 7u);
  EXPECT_EQ(reader.heard[0].payload.bytes.size(), 400u);
  EXPECT_EQ(reader.numbers[99], 2.5f);
  EXPECT_TRUE(reader.heard[1].payload.bytes.empty()) << "nobody wanted them";
}

TEST(LentFrame, ADamagedOneIsRefused) {
  const std::string good = encode(row_of(7, 100), 1, Lent{0, 400}).head;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Reader reader;
    reader.set_stage(Stage::kPeer);
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    const Status status = reader.feed(bad + std::string(100, '\0'));
    EXPECT_TRUE(!status.ok() || (bit >= 128 && bit < 160)) << "bit " << bit;
    EXPECT_TRUE(reader.heard.empty()) << "bit " << bit;
  }
  Reader reader;
  reader.set_stage(Stage::kPeer);
  EXPECT_SAYS("say",
              reader.feed(encode(row_of(7, 100), 1, Lent{1 << 20, 400}).head).error().message);
}

struct SharedLinks : testing::Test {
  static std::vector<float> counting(std::size_t floats) {
    std::vector<float> numbers(floats);
    for (std::size_t i = 0; i < floats; ++i) numbers[i] = static_cast<float>(i % 1000);
    return numbers;
  }
  // Sends rows both ways, of which every other one is short.
  static void exchange(Ends& ends, std::size_t rows) {
    for (RowId row = 0; row < rows; ++row) {
      const RowMessage said{row, 1, 2, Part::kWeights,
                            test::owned(counting(row % 2 == 0 ? 100'000 : 10))};
      ends.near_link->send(said), ends.far_link->send(said);
    }
    for (test::Ear* const ear : {&ends.near, &ends.far}) {
      ASSERT_TRUE(ear->wait([&] { return ear->heard.size() == rows; }));
      for (RowId row = 0; row < rows; ++row) {
        const auto& heard = std::get<RowMessage>(ear->heard[row]);
        ASSERT_EQ(heard.row, row);
        const auto wanted = counting(row % 2 == 0 ? 100'000 : 10);
        ASSERT_TRUE(std::ranges::equal(heard.payload.floats(), wanted)) << row;
      }
    }
  }
  // Until both ends have the other's memory.
  static bool is_shared(Ends& ends) {
    for (int i = 0; i < 2000; ++i) {
      const std::size_t before = ends.far.count();
      ends.near_link->send(row_of(1, 50'000));
      if (!ends.far.wait([&] { return ends.far.heard.size() > before; })) return false;
      if (ends.options.traffic->sum().shared_bytes > 0) break;
    }
    std::lock_guard lock(ends.far.mutex);
    ends.far.heard.clear();
    return ends.options.traffic->sum().shared_bytes > 0;
  }
  IoThreads threads{1};
  std::shared_ptr<Handover> handover = Handover::create(threads, "token").value();
};

TEST_F(SharedLinks, RowsArriveThroughMemoryAndWithTheirFrames) {
  Ends ends({.handover = handover});
  ends.join();
  ASSERT_TRUE(is_shared(ends));
  exchange(ends, 60);
  const Traffic all = ends.options.traffic->sum();
  EXPECT_GE(all.shared_bytes, 30u * 400'000);
  EXPECT_LT(all.bytes_sent - all.bytes_received, 1000u) << "the last Taken or Ping is on its way";
}

TEST_F(SharedLinks, AnotherMachineGetsThemOverTcp) {
  threads.stop();  // so that nobody answers at the address that is offered
  Ends ends({.handover = handover});
  ends.join();
  exchange(ends, 10);
  EXPECT_EQ(ends.options.traffic->sum().shared_bytes, 0u);
}

TEST_F(SharedLinks, UnderAThrottleNothingIsShared) {
  Ends ends({.throttle = 1e9, .handover = handover});
  ends.join();
  exchange(ends, 10);
  EXPECT_EQ(ends.options.traffic->sum().shared_bytes, 0u);
}

TEST_F(SharedLinks, ALinkThatBreaksLeavesTheOtherEndWhatItWasTold) {
  Ends ends({.handover = handover});
  ends.join();
  ASSERT_TRUE(is_shared(ends));
  for (RowId row = 0; row < 20; ++row) ends.near_link->send(row_of(row, 100'000));
  ends.near_link->close(false);
  EXPECT_TRUE(ends.far.wait_closed());
  for (const Message& heard : ends.far.heard)
    EXPECT_TRUE(std::ranges::all_of(std::get<RowMessage>(heard).payload.floats(),
                                    [](float number) { return number == 1.5f; }));
}

}  // namespace
}  // namespace shoal::table::shared_memory_test
