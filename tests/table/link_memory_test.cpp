// Links of processes on one machine: what they lend each other in memory, frames whose payload lies
// there, and payloads that stay there.
#include "shoal/table/link/link_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "shoal/table/link/frame_reader.h"
#include "shoal/table/link/throttle.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_memory_test {
namespace {

using namespace std::chrono_literals;
using test::Ends;

#define EXPECT_SAYS(part, text) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

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
  ASSERT_TRUE(memory.take_back(Taken{}).ok());
  EXPECT_FALSE(memory.lend(row_of(1, 1000)).has_value());
  EXPECT_FALSE(memory.lend(Get{1, 2, Part::kWeights}).has_value());
  const auto lent = memory.lend(row_of(1, 100'000));
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->bytes, 400'000u);
  EXPECT_EQ(traffic->sum().shared_bytes, 400'000u);
}

TEST_F(LinkMemoryTest, PayloadsAreHeldUntilTheyAreTaken) {
  LinkMemory memory(handover, traffic, 1'000'000);
  ASSERT_TRUE(memory.take_back(Taken{}).ok());
  const auto first = memory.lend(row_of(1, 100'000)), second = memory.lend(row_of(2, 200'000));
  EXPECT_NE(first->offset, second->offset);
  EXPECT_FALSE(memory.has_room());
  EXPECT_SAYS("3 payloads were taken from memory, after 0; 2 were lent",
              memory.take_back(Taken{3, 3}).error().message);
  ASSERT_TRUE(memory.take_back(Taken{1, 1}).ok());
  EXPECT_TRUE(memory.has_room() && memory.waits());
  EXPECT_EQ(memory.lend(row_of(3, 100'000))->offset, first->offset) << "its room is free again";
  EXPECT_FALSE(memory.take_back(Taken{}).ok()) << "taken once, taken for ever";
}

TEST_F(LinkMemoryTest, PayloadsThatAreTakenStayUntilTheyAreDone) {
  LinkMemory memory(handover, traffic, 500'000);
  ASSERT_TRUE(memory.take_back(Taken{}).ok());
  const auto first = memory.lend(row_of(1, 100'000)), second = memory.lend(row_of(2, 100'000));
  EXPECT_FALSE(memory.has_room());
  ASSERT_TRUE(memory.take_back(Taken{2, 0}).ok());
  EXPECT_TRUE(memory.has_room());
  EXPECT_FALSE(memory.waits()) << "the other end has come to them";
  EXPECT_GT(memory.lend(row_of(3, 100'000))->offset, second->offset);
  ASSERT_TRUE(memory.take_back(Taken{3, 1}).ok());
  EXPECT_EQ(memory.lend(row_of(4, 100'000))->offset, first->offset);
  EXPECT_SAYS("4 payloads are needed no more, after 1; 3 were taken",
              memory.take_back(Taken{3, 4}).error().message);
  EXPECT_FALSE(memory.take_back(Taken{4, 0}).ok()) << "done once, done for ever";
}

TEST_F(LinkMemoryTest, APayloadThatLiesThereIsNotCopied) {
  LinkMemory memory(handover, traffic, 1 << 20);
  ASSERT_TRUE(memory.take_back(Taken{}).ok());
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
  ASSERT_TRUE(memory.take_back(Taken{}).ok());
  auto all = handover->memory().allocate(handover->memory().size());
  EXPECT_FALSE(memory.lend(row_of(1, 100'000)).has_value());
  all.reset();
  EXPECT_TRUE(memory.lend(row_of(1, 100'000)).has_value());
}

TEST_F(LinkMemoryTest, WhatALinkLentWhenItBrokeIsNeverUsedAgain) {
  std::size_t offset = 0;
  {
    LinkMemory memory(handover, traffic, 1 << 20);
    ASSERT_TRUE(memory.take_back(Taken{}).ok());
    offset = memory.lend(row_of(1, 100'000))->offset;
  }
  const auto next = handover->memory().allocate(100'000);
  EXPECT_NE(handover->memory().find({next.get(), 1}).value(), offset);
}

TEST_F(LinkMemoryTest, BorrowsOnlyWhatWasOffered) {
  LinkMemory memory(handover, traffic, 1 << 20);
  EXPECT_SAYS("which was not offered", memory.borrow({0, 1}).error().message);
  EXPECT_FALSE(memory.taken().has_value());
  memory.use(Error{Code::kPeer, "no such process"}, 3, {});
  EXPECT_FALSE(memory.taken().has_value());
  memory.use(BorrowedMemory::create(handover->memory().file(), handover->offer().bytes), 3, {});
  EXPECT_EQ(std::get<Taken>(memory.taken().value()), Taken{}) << "it is there";
  ASSERT_TRUE(memory.borrow({0, 10}).ok());
  ASSERT_TRUE(memory.borrow({64, 10}).ok());
  EXPECT_EQ(std::get<Taken>(memory.taken().value()), (Taken{2, 2}));
  EXPECT_FALSE(memory.taken().has_value()) << "said once";
}

TEST_F(LinkMemoryTest, WhatIsKeptIsDoneInTheOrderInWhichItWasBorrowed) {
  LinkMemory memory(handover, traffic, 1 << 20);
  int woken = 0;
  memory.use(BorrowedMemory::create(handover->memory().file(), handover->offer().bytes), 3,
             [&] { ++woken; });
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

// A frame reader beside a memory of 1 MiB.
struct Reader : FrameReader {
  Result<std::span<const std::byte>> borrow(const Lent& lent) override {
    return borrowed.look(lent);
  }
  bool keeps(const Message&) override { return owner != nullptr; }
  std::shared_ptr<const void> kept() override { return owner; }
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
  std::shared_ptr<SharedMemory> memory = SharedMemory::create(1 << 20).value();
  BorrowedMemory borrowed = BorrowedMemory::create(memory->file(), 1 << 20).value();
  std::vector<float> numbers = std::vector<float>(1000);
  std::vector<RowMessage> heard;
  bool deaf = false;
  std::shared_ptr<const void> owner;  // of what is kept
};

TEST(LentFrame, ItsNumbersMayStayInMemory) {
  Reader reader;
  reader.set_stage(Stage::kPeer);
  reader.owner = reader.memory;
  ASSERT_TRUE(reader.feed(encode(row_of(7, 100), 1, Lent{4096, 400}).head).ok());
  ASSERT_EQ(reader.heard.size(), 1u);
  const Payload& payload = reader.heard[0].payload;
  EXPECT_EQ(payload.bytes.data(), reader.borrowed.look({4096, 400}).value().data());
  EXPECT_EQ(payload.bytes.size(), 400u);
  EXPECT_EQ(payload.owner, reader.owner);
}

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
  // Returns after this time.
  void pass(std::chrono::milliseconds time) {
    std::promise<void> is_over;
    Strand(threads).after(time, [&] { is_over.set_value(); });
    is_over.get_future().wait();
  }
  IoThreads threads{1};
  std::shared_ptr<Handover> handover = Handover::create(threads, "token").value();
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

TEST_F(SharedLinks, AnotherMachineGetsThemOverTcp) {
  threads.stop();  // so that nobody answers at the address that is offered
  Ends ends({.handover = handover});
  ends.join();
  exchange(ends, 10);
  EXPECT_EQ(ends.options.traffic->sum().shared_bytes, 0u);
}

TEST_F(SharedLinks, UnderAThrottleNothingIsShared) {
  Ends ends({.throttles = std::make_shared<Throttles>(1e9), .handover = handover});
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
}  // namespace shoal::table::link_memory_test
