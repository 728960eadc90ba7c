// Memory that processes of one machine lend each other: its pieces, how it is handed over, what
// links lend in it, and payloads that stay there.
#include "shoal/table/link/link_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <future>

#include "shoal/base/random.h"
#include "shoal/table/link/throttle.h"
#include "support/expect.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_memory_test {
namespace {

using namespace std::chrono_literals;
using test::Ends;

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
    EXPECT_HAS(other.value().look(wrong).error().message, "of shared memory that has 4096");
}

TEST(SharedMemory, AFileThatCouldBecomeShorterIsRefused) {
  const auto memory = memory_of(4096);
  EXPECT_NE(::ftruncate(memory->file().number(), 100), 0);
  EXPECT_HAS(BorrowedMemory::create(memory->file(), 8192).error().message,
             "has 4096 bytes instead of the offered 8192");
  const Descriptor file(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
  ASSERT_EQ(::ftruncate(file.number(), 4096), 0);
  EXPECT_HAS(BorrowedMemory::create(file, 4096).error().message, "its owner could shrink it");
}

// ---- handing it over ----

struct Lending : testing::Test {
  IoThreads threads{2};
  std::shared_ptr<Handover> handover = Handover::create(threads, "token").value();
};

struct HandoverTest : Lending {
  Result<BorrowedMemory> fetch(const Offer& offer, const std::string& token = "token") {
    std::promise<Result<BorrowedMemory>> got;
    const auto other = Handover::create(threads, token).value();
    other->fetch(Strand(threads), offer,
                 [&](Result<BorrowedMemory> memory) { got.set_value(std::move(memory)); });
    return got.get_future().get();
  }
};

TEST_F(HandoverTest, TheMemoryArrives) {
  const auto piece = handover->memory().allocate(5);
  std::memcpy(piece.get(), "five!", 5);
  const Result<BorrowedMemory> memory = fetch(handover->offer());
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_EQ(std::memcmp(memory.value().look({0, 5}).value().data(), "five!", 5), 0);
}

TEST_F(HandoverTest, AStrangerGetsNothing) {
  EXPECT_HAS(fetch(handover->offer(), "another token").error().message, "did not send it");
  Offer offer = handover->offer();
  offer.key[3] ^= 1;
  EXPECT_HAS(fetch(offer).error().message, "did not send it");
  offer = handover->offer();
  offer.name += "x";
  EXPECT_HAS(fetch(offer).error().message, "no process on this machine offers it");
}

// ---- links ----

Message row_of(RowId row, std::size_t floats, float value = 1.5f) {
  return RowMessage{row, 2, 3, Part::kWeights, test::owned(std::vector<float>(floats, value))};
}

struct LinkMemoryTest : Lending {
  Result<BorrowedMemory> borrowed() {
    return BorrowedMemory::create(handover->memory().file(), handover->offer().bytes);
  }
  std::shared_ptr<TrafficCounters> traffic = std::make_shared<TrafficCounters>();
};

// Memory that the other end has already.
struct TakenMemory : LinkMemory {
  TakenMemory(const LinkMemoryTest& test, std::size_t window)
      : LinkMemory(test.handover, test.traffic, window) {
    EXPECT_TRUE(take_back(Taken{}).ok());
  }
};

TEST_F(LinkMemoryTest, LendsNothingBeforeTheOtherEndHasItAndNothingShort) {
  LinkMemory memory(handover, traffic, 1 << 20);
  EXPECT_FALSE(memory.lend(row_of(1, 100'000)).has_value());
  ASSERT_TRUE(memory.take_back(Taken{}).ok());
  EXPECT_FALSE(memory.lend(row_of(1, 1000)).has_value());
  EXPECT_FALSE(memory.lend(Get{1, 2, Part::kWeights}).has_value());
  const auto lent = memory.lend(row_of(1, 100'000));
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->bytes, 400'000u);
  EXPECT_EQ(traffic->sum().shared_bytes, 400'000u);
}

TEST_F(LinkMemoryTest, PayloadsAreHeldUntilTheyAreTaken) {
  TakenMemory memory(*this, 1'000'000);
  const auto first = memory.lend(row_of(1, 100'000)), second = memory.lend(row_of(2, 200'000));
  EXPECT_NE(first->offset, second->offset);
  EXPECT_FALSE(memory.has_room());
  EXPECT_HAS(memory.take_back(Taken{3, 3}).error().message,
             "3 payloads taken from memory, but 2 were lent and 0 were counted before");
  ASSERT_TRUE(memory.take_back(Taken{1, 1}).ok());
  EXPECT_TRUE(memory.has_room() && memory.waits());
  EXPECT_EQ(memory.lend(row_of(3, 100'000))->offset, first->offset) << "its room is free again";
  EXPECT_FALSE(memory.take_back(Taken{}).ok()) << "taken once, taken for ever";
}

TEST_F(LinkMemoryTest, PayloadsThatAreTakenStayUntilTheyAreDone) {
  TakenMemory memory(*this, 500'000);
  const auto first = memory.lend(row_of(1, 100'000)), second = memory.lend(row_of(2, 100'000));
  EXPECT_FALSE(memory.has_room());
  ASSERT_TRUE(memory.take_back(Taken{2, 0}).ok());
  EXPECT_TRUE(memory.has_room());
  EXPECT_FALSE(memory.waits()) << "the other end has come to them";
  EXPECT_GT(memory.lend(row_of(3, 100'000))->offset, second->offset);
  ASSERT_TRUE(memory.take_back(Taken{3, 1}).ok());
  EXPECT_EQ(memory.lend(row_of(4, 100'000))->offset, first->offset);
  EXPECT_HAS(memory.take_back(Taken{3, 4}).error().message,
             "4 payloads returned, but 3 were taken and 1 were counted before");
  EXPECT_FALSE(memory.take_back(Taken{4, 0}).ok()) << "done once, done for ever";
}

TEST_F(LinkMemoryTest, APayloadThatLiesThereIsNotCopied) {
  TakenMemory memory(*this, 1 << 20);
  const auto before = handover->memory().allocate(1000);
  const auto piece = handover->memory().allocate(100'000);
  RowMessage row{1, 2, 3};
  row.payload.bytes = {piece.get(), 100'000};
  row.payload.owner = piece;
  EXPECT_EQ(memory.lend(row)->offset, 1024u);
  EXPECT_EQ(piece.use_count(), 3) << "the link holds it too";
}

TEST_F(LinkMemoryTest, WithoutRoomTheyGoWithTheirFrames) {
  TakenMemory memory(*this, 1 << 20);
  auto all = handover->memory().allocate(handover->memory().size());
  EXPECT_FALSE(memory.lend(row_of(1, 100'000)).has_value());
  all.reset();
  EXPECT_TRUE(memory.lend(row_of(1, 100'000)).has_value());
}

TEST_F(LinkMemoryTest, WhatALinkLentWhenItBrokeIsNeverUsedAgain) {
  std::size_t offset = 0;
  {
    TakenMemory memory(*this, 1 << 20);
    offset = memory.lend(row_of(1, 100'000))->offset;
  }
  const auto next = handover->memory().allocate(100'000);
  EXPECT_NE(handover->memory().find({next.get(), 1}).value(), offset);
}

TEST_F(LinkMemoryTest, BorrowsOnlyWhatWasOffered) {
  LinkMemory memory(handover, traffic, 1 << 20);
  EXPECT_HAS(memory.borrow({0, 1}).error().message, "but none was offered");
  EXPECT_FALSE(memory.taken().has_value());
  memory.use(Error{Code::kPeer, "no such process"}, 3, {});
  EXPECT_FALSE(memory.taken().has_value());
  memory.use(borrowed(), 3, {});
  EXPECT_EQ(std::get<Taken>(memory.taken().value()), Taken{}) << "it is there";
  ASSERT_TRUE(memory.borrow({0, 10}).ok());
  ASSERT_TRUE(memory.borrow({64, 10}).ok());
  EXPECT_EQ(std::get<Taken>(memory.taken().value()), (Taken{2, 2}));
  EXPECT_FALSE(memory.taken().has_value()) << "said once";
}

TEST_F(LinkMemoryTest, WhatIsKeptIsDoneInTheOrderInWhichItWasBorrowed) {
  LinkMemory memory(handover, traffic, 1 << 20);
  int woken = 0;
  memory.use(borrowed(), 3, [&] { ++woken; });
  ASSERT_TRUE(memory.borrow({0, 10}).ok());
  auto first = memory.keep();
  ASSERT_TRUE(memory.borrow({64, 10}).ok());
  ASSERT_TRUE(memory.borrow({128, 10}).ok());
  auto third = memory.keep();
  EXPECT_EQ(std::get<Taken>(memory.taken().value()), (Taken{3, 0}));
  third.reset();
  EXPECT_FALSE(memory.taken().has_value()) << "the first is still looked at";
  first.reset();
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(std::get<Taken>(memory.taken().value()), (Taken{3, 3}));
}

struct SharedLinks : Lending {
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
  // Returns after this time.
  void pass(std::chrono::milliseconds time) {
    std::promise<void> is_over;
    Strand(threads).after(time, [&] { is_over.set_value(); });
    is_over.get_future().wait();
  }
};

TEST_F(SharedLinks, RowsArriveThroughMemoryAndWithTheirFrames) {
  Ends ends({.handover = handover});
  ends.join();
  ASSERT_TRUE(is_shared(ends));
  exchange(ends, 60);
  const Traffic all = ends.whole_traffic();
  EXPECT_GE(all.shared_bytes, 30u * 400'000);
  EXPECT_EQ(all.bytes_sent, all.bytes_received);
}

// More than may be on its way, of which nothing is given back for longer than a peer may take.
TEST_F(SharedLinks, AnOwnerKeepsPayloadsAsLongAsItLikes) {
  LinkOptions options = test::hasty();
  options.handover = handover;
  Ends ends(options);
  ends.far.keeping = true;
  ends.join();
  ASSERT_TRUE(is_shared(ends));
  const auto before = ends.options.traffic->sum().shared_bytes;
  exchange(ends, 60);
  EXPECT_GT(ends.options.traffic->sum().shared_bytes - before, 10 * options.window);
  pass(2 * options.stall_abort);
  for (test::Ear* const ear : {&ends.near, &ends.far}) {
    std::lock_guard lock(ear->mutex);
    EXPECT_FALSE(ear->end.has_value()) << "it is not stuck";
  }
  const auto all_is_free = [&] {
    return handover->memory().allocate(handover->memory().size()) != nullptr;
  };
  EXPECT_FALSE(all_is_free());
  for (test::Ear* const ear : {&ends.near, &ends.far}) {
    std::lock_guard lock(ear->mutex);
    ear->heard.clear();
  }
  for (int i = 0; i < 2000 && !all_is_free(); ++i) pass(5ms);
  EXPECT_TRUE(all_is_free());
}

// Under a throttle, or on another machine: nobody answers at the address that is offered.
TEST_F(SharedLinks, OthersGetThemOverTcp) {
  for (const bool throttled : {true, false}) {
    if (!throttled) threads.stop();
    Ends ends({.throttles = throttled ? std::make_shared<Throttles>(1e9) : nullptr,
               .handover = handover});
    ends.join();
    exchange(ends, 10);
    EXPECT_EQ(ends.options.traffic->sum().shared_bytes, 0u);
  }
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
}  // namespace shoal::table::link_memory_test
