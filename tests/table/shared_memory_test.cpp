// Memory that processes of one machine lend each other: its pieces, and how it is handed over.
#include "shoal/table/link/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <future>

#include "shoal/base/random.h"
#include "shoal/table/link/handover.h"

namespace shoal::table::shared_memory_test {
namespace {

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

}  // namespace
}  // namespace shoal::table::shared_memory_test
