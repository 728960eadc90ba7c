// Two ends of a link in one process: what is said arrives.
#include "shoal/table/link/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "shoal/base/log.h"
#include "shoal/base/mutex.h"
#include "shoal/table/link/throttle.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_test {
namespace {

using namespace std::chrono_literals;
using test::Ends;
using test::PlainListener;
using test::PlainSocket;
using test::random_message;

#define EXPECT_SAYS(part, text) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

std::string whole(const Frame& frame) {
  return frame.head + std::string(reinterpret_cast<const char*>(frame.payload.bytes.data()),
                                  frame.payload.bytes.size());
}
std::string whole(const Message& message) { return whole(encode(message, 0)); }

// after the handshake's types, and those that links keep to themselves
constexpr std::size_t kTypes = std::variant_size_v<Message>, kFirstBusiness = 8;

// ---- two ends ----

TEST(Link, MessagesOfEveryTypeArriveInOrderBothWays) {
  const std::uint64_t seed = 53;
  SCOPED_TRACE(seed);
  Random random(seed);
  Ends ends;
  ends.join();
  std::vector<std::string> said_near, said_far;
  for (std::size_t i = 0; i < 300; ++i) {
    const std::size_t index = kFirstBusiness + i % (kTypes - kFirstBusiness);
    const Message to_far = random_message(random, index, 9000),
                  to_near = random_message(random, index, 9000);
    said_near.push_back(whole(to_far)), said_far.push_back(whole(to_near));
    ends.near_link->send(to_far);
    ends.far_link->send(to_near);
  }
  ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == said_near.size(); }));
  ASSERT_TRUE(ends.near.wait([&] { return ends.near.heard.size() == said_far.size(); }));
  for (std::size_t i = 0; i < said_near.size(); ++i) {
    ASSERT_EQ(whole(ends.far.heard[i]), said_near[i]) << i;
    ASSERT_EQ(whole(ends.near.heard[i]), said_far[i]) << i;
  }
  EXPECT_EQ(ends.near_link->peer().rank, 0u);
  EXPECT_EQ(ends.far_link->peer().rank, 1u);
  EXPECT_EQ(ends.far_link->peer().incarnation, 1001u);
  EXPECT_EQ(ends.near_link->peer().address, ends.address());
  const Traffic both = ends.whole_traffic();
  EXPECT_EQ(both.bytes_sent, both.bytes_received);
  EXPECT_EQ(both.frames_sent, both.frames_received);
  EXPECT_GE(both.frames_sent, 602u);
}

TEST(Link, NextIsAskedAgainAfterWake) {
  Ends ends;
  std::atomic<int> there{0};
  ends.near.source = [&]() -> std::optional<Message> {
    if (there <= 0) return std::nullopt;
    --there;
    return Get{1, 2, Part::kWeights};
  };
  ends.join();
  for (std::size_t round = 1; round <= 20; ++round) {
    there = 5;
    ends.near_link->wake();
    ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 5 * round; }));
  }
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kRows = 128;  // a sanitizer makes them slow
#else
constexpr std::size_t kRows = 1024;
#endif
constexpr std::size_t kFloats = 64 * 1024, kSlots = 16;
struct Rows : test::Ear {
  std::span<std::byte> place(Message& message, std::size_t bytes) override {
    EXPECT_EQ(bytes, kFloats * sizeof(float));
    return std::as_writable_bytes(std::span(slots[std::get<RowMessage>(message).row % kSlots]));
  }
  Status received(Link&, Message&& message) override {
    const auto& row = std::get<RowMessage>(message);
    EXPECT_EQ(row.payload.floats().data(), slots[row.row % kSlots].data());
    const std::span<const float> numbers = row.payload.floats();
    good += numbers.size() == kFloats && numbers[0] == static_cast<float>(row.row) &&
            numbers[kFloats / 2] == static_cast<float>(row.row % kSlots) &&
            row.row == static_cast<RowId>(count);
    std::lock_guard lock(mutex);
    ++count;
    changed.notify_all();
    return {};
  }
  std::optional<Message> next(Link&) override {
    if (sent == kRows) return std::nullopt;
    const auto numbers =
        std::make_shared<std::vector<float>>(kFloats, static_cast<float>(sent % kSlots));
    (*numbers)[0] = static_cast<float>(sent);
    return RowMessage{static_cast<RowId>(sent++), 1, 1, Part::kWeights,
                      as_payload({*numbers, numbers})};
  }
  std::vector<std::vector<float>> slots =
      std::vector<std::vector<float>>(kSlots, std::vector<float>(kFloats));
  std::size_t sent = 0, count = 0, good = 0;
};

// 256 MiB each way at the same time (32 under a sanitizer), from one memory to another.
TEST(Link, RowsArriveIntact) {
  Rows near, far;
  IoThreads near_threads(1), far_threads(1);
  std::mutex mutex;
  std::vector<std::shared_ptr<Link>> links;
  const LinkOptions options;
  far.taken = [&](std::shared_ptr<Link> link) {
    std::lock_guard lock(mutex);
    links.push_back(std::move(link));
  };
  auto listener = Listener::create(far_threads, "127.0.0.1", 0, test::credentials(0), options,
                                   [&](const PeerName&) -> Result<LinkOwner*> { return &far; })
                      .value();
  connect(Strand(near_threads), str("127.0.0.1:", listener.port), Purpose::kRows,
          test::credentials(1), options, near, [&](Result<std::shared_ptr<Link>> link) {
            std::lock_guard lock(mutex);
            links.push_back(std::move(link).value());
          });
  EXPECT_TRUE(near.wait([&] { return near.count == kRows; }));
  EXPECT_TRUE(far.wait([&] { return far.count == kRows; }));
  near_threads.stop(), far_threads.stop();
  EXPECT_EQ(near.good, kRows);
  EXPECT_EQ(far.good, kRows);
}

TEST(Link, ThrottledOnesLoseNothing) {
  Ends ends({.window = 32 * 1024, .throttles = std::make_shared<Throttles>(20e6)});
  ends.join();
  for (int i = 0; i < 20; ++i)
    ends.near_link->send(Init{1, Part::kWeights, test::owned(std::vector<float>(10'000, 1.0f))});
  ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 20; }));
  EXPECT_EQ(whole(ends.far.heard[19]),
            whole(Init{1, Part::kWeights, test::owned(std::vector<float>(10'000, 1.0f))}));
}

TEST(Link, NumbersWithoutAPlaceAreForgotten) {
  Ends ends;
  ends.far.deaf = true;
  ends.join();
  ends.near_link->send(Init{1, Part::kWeights, test::owned(std::vector<float>(100'000, 1.0f))});
  ends.near_link->send(Ready{5});
  ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 2; }));
  EXPECT_TRUE(std::get<Init>(ends.far.heard[0]).payload.floats().empty());
}

TEST(Link, HeartbeatsCarryTheClock) {
  std::atomic<Clock> clock{77};
  LinkOptions options = test::hasty();
  options.clock = &clock;
  options.stall_abort = options.stall_warn = 20s;
  Ends ends(options);
  ends.far.judge = [](const Link& link, const Message&) {
    return link.heard_clock() == 77 ? Status() : Error{Code::kPeer, "another clock"};
  };
  ends.join();
  // A round trip follows each look, so that nobody need sleep.
  for (int i = 0; i < 100'000 && ends.far_link->heard_clock() != 77; ++i) {
    const std::size_t before = ends.near.count();
    ends.far_link->send(Ready{1});
    ASSERT_TRUE(ends.near.wait([&] { return ends.near.heard.size() > before; }));
  }
  EXPECT_EQ(ends.far_link->heard_clock(), 77);
}

TEST(Link, ManyAtOnce) {
  constexpr std::size_t kLinks = 64, kMessages = 50;
  IoThreads threads(2);
  const LinkOptions options{.connect = 60s};
  test::Ear near, far;
  std::mutex mutex;
  std::vector<std::shared_ptr<Link>> links;
  far.taken = [&](std::shared_ptr<Link> link) {
    std::lock_guard lock(mutex);
    links.push_back(std::move(link));
  };
  auto listener = Listener::create(threads, "127.0.0.1", 0, test::credentials(0), options,
                                   [&](const PeerName&) -> Result<LinkOwner*> { return &far; })
                      .value();
  for (std::size_t i = 0; i < kLinks; ++i)
    connect(Strand(threads), str("127.0.0.1:", listener.port), Purpose::kRows,
            test::credentials(static_cast<std::uint32_t>(i + 1)), options, near,
            [&](Result<std::shared_ptr<Link>> link) {
              ASSERT_TRUE(link.ok()) << link.error().message;
              for (std::size_t m = 0; m < kMessages; ++m)
                link.value()->send(
                    Init{1, Part::kWeights, test::owned(std::vector<float>(2000, 3.0f))});
              std::lock_guard lock(mutex);
              links.push_back(link.value());
            });
  EXPECT_TRUE(far.wait([&] { return far.heard.size() == kLinks * kMessages; })) << far.heard.size();
  threads.stop();
  EXPECT_EQ(links.size(), 2 * kLinks);
}

// ---- connect ----

TEST(LinkConnect, ErrorsSayWhatAndWhetherToTryAgain) {
  Ends ends({.connect = 2s});
  std::uint16_t closed = 0;
  { closed = PlainListener().port; }
  const auto refused = ends.try_connect(str("127.0.0.1:", closed), test::credentials(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_SAYS(
      str("No connection to 127.0.0.1:", closed, ": Connection refused: nobody listens there"),
      refused.error().message);
  EXPECT_TRUE(worth_another_try(refused.error()));
  const auto nowhere = ends.try_connect("no-such-host.invalid:29600", test::credentials(1));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_SAYS("No connection to no-such-host.invalid:29600", nowhere.error().message);
  EXPECT_TRUE(worth_another_try(nowhere.error()));
  for (const char* bad : {"host", ":5", "host:", ""}) {
    const auto link = ends.try_connect(bad, test::credentials(1));
    ASSERT_FALSE(link.ok());
    EXPECT_SAYS("is not host:port", link.error().message);
    EXPECT_FALSE(worth_another_try(link.error()));
  }
}

TEST(LinkConnect, NobodyAnswers) {
  Ends ends({.connect = 200ms});
  PlainListener mute;  // the system accepts, nobody speaks
  const auto link = ends.try_connect(str("127.0.0.1:", mute.port), test::credentials(1));
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().code, Code::kTimeout);
  EXPECT_SAYS("not done in time", link.error().message);
  EXPECT_TRUE(worth_another_try(link.error()));
}

TEST(LinkConnect, WhoLeavesInTheMiddleMayComeBack) {
  Ends ends;
  PlainListener listener;
  std::thread answers([&] {
    PlainSocket socket = listener.accept();
    socket.say(whole(Challenge{}).substr(0, 10));
  });
  const auto link = ends.try_connect(str("127.0.0.1:", listener.port), test::credentials(1));
  answers.join();
  ASSERT_FALSE(link.ok());
  EXPECT_TRUE(worth_another_try(link.error())) << link.error().message;
}

// Keeps lines of the log, which other threads write.
class HeardLog final : public google::LogSink {
 public:
  HeardLog() { google::AddLogSink(this); }
  ~HeardLog() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int, const std::tm*, const char* text,
            std::size_t length) override {
    MutexLock lock(mutex_);
    lines_.emplace_back(text, length);
    changed_.notify_all();
  }
  bool comes(const std::string& start) {
    MutexLock lock(mutex_);
    return changed_.wait_for(mutex_, 10s, [&]() REQUIRES(mutex_) { return found(start) > 0; });
  }
  int count(const std::string& start) {
    MutexLock lock(mutex_);
    return found(start);
  }

 private:
  int found(const std::string& start) REQUIRES(mutex_) {
    return static_cast<int>(std::ranges::count_if(
        lines_, [&](const std::string& line) { return line.starts_with(start); }));
  }
  Mutex mutex_;
  Condition changed_;
  std::vector<std::string> lines_ GUARDED_BY(mutex_);
};

TEST(LinkListener, OfManyThatAreTurnedAwayTheFirstAreNamedAndTheRestCounted) {
  Ends ends;
  LinkOptions options;
  options.stall_warn = std::chrono::milliseconds(300);
  const auto listener =
      Listener::create(ends.far_threads, "127.0.0.1", 0, test::credentials(2), options, nullptr);
  ASSERT_TRUE(listener.ok());
  const std::string address = str("127.0.0.1:", listener.value().port);
  const auto knock = [&](int times) {
    Credentials wrong = test::credentials(1);
    wrong.token = "wrong";
    for (int i = 0; i < times; ++i) EXPECT_FALSE(ends.try_connect(address, wrong).ok());
  };
  HeardLog log;
  knock(20);
  EXPECT_TRUE(log.comes("15 more connections were turned away in 0.3 s; the last: a connection "));
  EXPECT_EQ(log.count("a connection from"), 5);
  knock(10);
  EXPECT_TRUE(log.comes("10 more connections were turned away"));
  EXPECT_EQ(log.count("a connection from"), 5) << "one line a period while they come";
}

TEST(LinkListener, ATakenPortNamesTheNextFreeOne) {
  Ends ends;
  const auto other = Listener::create(ends.far_threads, "127.0.0.1", ends.listener.port,
                                      test::credentials(2), {}, nullptr);
  ASSERT_FALSE(other.ok());
  EXPECT_SAYS(str("Cannot listen on 127.0.0.1, port ", ends.listener.port,
                  ": Address already in use; port "),
              other.error().message);
  EXPECT_EQ(other.error().code, Code::kUsage) << "another --port mends it";
  EXPECT_SAYS("is free", other.error().message);
  const auto elsewhere =
      Listener::create(ends.far_threads, "192.0.2.1", 0, test::credentials(2), {}, nullptr);
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_SAYS("192.0.2.1", elsewhere.error().message);
  const auto nowhere = Listener::create(ends.far_threads, "no-such-host.invalid", 0,
                                        test::credentials(2), {}, nullptr);
  EXPECT_FALSE(nowhere.ok());
}

TEST(LinkListener, CallsNobodyOnceItIsGoneAndLinksStay) {
  Ends ends;
  ends.join();
  PlainSocket late(ends.listener.port);
  late.hear(kHeaderSize + 20);
  ends.listener = {};
  ends.admit = [](const PeerName&) {
    ADD_FAILURE();
    return Status();
  };
  ends.near_link->send(Ready{1});
  EXPECT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 1; }));
}

}  // namespace
}  // namespace shoal::table::link_test
