// Two ends of a link in one process: what is said arrives.
#include "shoal/table/link/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "shoal/base/log.h"
#include "shoal/base/mutex.h"
#include "shoal/table/link/throttle.h"
#include "support/expect.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_test {
namespace {

using namespace std::chrono_literals;
using test::Ends;
using test::PlainListener;
using test::PlainSocket;
using test::random_message;
using test::whole;

// after the handshake's types, and those that links keep to themselves
constexpr std::size_t kTypes = std::variant_size_v<Message>, kFirstBusiness = 9;

Message some_numbers(std::size_t count) {
  return Init{1, Part::kWeights, test::owned(std::vector<float>(count, 1.0f))};
}

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
  EXPECT_GE(both.frames_sent, 603u);
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
// Says rows that tell their number, and finds each in the place that it gave them.
struct Rows {
  explicit Rows(test::Ear& ear) {
    ear.where = [this](const Message& message) {
      return std::as_writable_bytes(std::span(slots[std::get<RowMessage>(message).row % kSlots]));
    };
    ear.judge = [this](Link&, const Message& message) {
      const auto& row = std::get<RowMessage>(message);
      const std::span<const float> numbers = row.payload.floats();
      EXPECT_EQ(numbers.data(), slots[row.row % kSlots].data());
      good += numbers.size() == kFloats && numbers[0] == static_cast<float>(row.row) &&
              numbers[kFloats / 2] == static_cast<float>(row.row % kSlots) &&
              row.row == static_cast<RowId>(count++);
      return Status();
    };
    ear.source = [this]() -> std::optional<Message> {
      if (sent == kRows) return std::nullopt;
      std::vector<float> numbers(kFloats, static_cast<float>(sent % kSlots));
      numbers[0] = static_cast<float>(sent);
      return RowMessage{static_cast<RowId>(sent++), 1, 1, Part::kWeights,
                        test::owned(std::move(numbers))};
    };
  }
  std::vector<std::vector<float>> slots =
      std::vector<std::vector<float>>(kSlots, std::vector<float>(kFloats));
  std::size_t sent = 0, count = 0, good = 0;
};

// 256 MiB each way at the same time (32 under a sanitizer), from one memory to another.
TEST(Link, RowsArriveIntact) {
  Ends ends;
  Rows near(ends.near), far(ends.far);
  ends.join();
  for (test::Ear* const ear : {&ends.near, &ends.far})
    EXPECT_TRUE(ear->wait([&] { return ear->heard.size() == kRows; }));
  ends.near_threads.stop(), ends.far_threads.stop();
  EXPECT_EQ(near.good, kRows);
  EXPECT_EQ(far.good, kRows);
}

TEST(Link, ThrottledOnesLoseNothing) {
  Ends ends({.window = 32 * 1024, .throttles = std::make_shared<Throttles>(20e6)});
  ends.join();
  for (int i = 0; i < 20; ++i) ends.near_link->send(some_numbers(10'000));
  ASSERT_TRUE(ends.far.wait([&] { return ends.far.heard.size() == 20; }));
  EXPECT_EQ(whole(ends.far.heard[19]), whole(some_numbers(10'000)));
}

TEST(Link, NumbersWithoutAPlaceAreForgotten) {
  Ends ends;
  ends.far.deaf = true;
  ends.join();
  ends.near_link->send(some_numbers(100'000));
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
  Ends ends({.connect = 60s});
  std::vector<std::shared_ptr<Link>> links;
  const auto keep = [&](std::shared_ptr<Link> link) {
    std::lock_guard lock(ends.mutex);
    links.push_back(std::move(link));
  };
  ends.far.taken = keep;
  for (std::size_t i = 0; i < kLinks; ++i)
    connect(Strand(ends.near_threads), ends.address(), 0, Purpose::kRows,
            test::credentials(static_cast<std::uint32_t>(i + 1)), ends.options, ends.near,
            [&](Result<std::shared_ptr<Link>> link) {
              ASSERT_OK(link);
              for (std::size_t m = 0; m < kMessages; ++m) link.value()->send(some_numbers(2000));
              keep(link.value());
            });
  test::Ear& far = ends.far;
  EXPECT_TRUE(far.wait([&] { return far.heard.size() == kLinks * kMessages; })) << far.heard.size();
  ends.near_threads.stop(), ends.far_threads.stop();
  EXPECT_EQ(links.size(), 2 * kLinks);
}

// ---- connect ----

TEST(LinkConnect, ErrorsSayWhatAndWhetherToTryAgain) {
  Ends ends({.connect = 2s});
  std::uint16_t closed = 0;
  { closed = PlainListener().port; }
  const std::string no_such = "no-such-host.invalid:29600", nobody = str("127.0.0.1:", closed);
  for (const auto& [address, words] :
       {std::pair{nobody,
                  "No connection to " + nobody + ": Connection refused: nobody listens there"},
        {no_such, "No connection to " + no_such}}) {
    const Error why = ends.refused(address);
    EXPECT_HAS(why.message, words);
    EXPECT_TRUE(worth_another_try(why));
  }
  for (const char* bad : {"host", ":5", "host:", ""}) {
    const Error why = ends.refused(bad);
    EXPECT_HAS(why.message, "is not host:port");
    EXPECT_FALSE(worth_another_try(why));
  }
}

TEST(LinkConnect, NobodyAnswers) {
  Ends ends({.connect = 200ms});
  const PlainListener mute;  // the system accepts, nobody speaks
  const Error why = ends.refused(str("127.0.0.1:", mute.port));
  EXPECT_EQ(why.code, Code::kTimeout);
  EXPECT_HAS(why.message, "not done in time");
  EXPECT_TRUE(worth_another_try(why));
}

TEST(LinkConnect, WhoLeavesInTheMiddleMayComeBack) {
  const Error why =
      Ends().refused_by([](PlainSocket socket) { socket.say(whole(Challenge{}).substr(0, 10)); });
  EXPECT_TRUE(worth_another_try(why)) << why.message;
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
    for (int i = 0; i < times; ++i) (void)ends.refused(address, wrong);
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
  const auto listen = [&](const char* host, std::uint16_t port) {
    return Listener::create(ends.far_threads, host, port, test::credentials(2), {}, nullptr);
  };
  const auto other = listen("127.0.0.1", ends.listener.port);
  ASSERT_FALSE(other.ok());
  EXPECT_HAS(other.error().message, str("Cannot listen on 127.0.0.1, port ", ends.listener.port,
                                        ": Address already in use; port "));
  EXPECT_EQ(other.error().code, Code::kUsage) << "another --port mends it";
  EXPECT_HAS(other.error().message, "is free");
  EXPECT_FAILS_WITH("192.0.2.1", listen("192.0.2.1", 0));
  EXPECT_FALSE(listen("no-such-host.invalid", 0).ok());
}

TEST(LinkListener, CallsNobodyOnceItIsGoneAndLinksStay) {
  Ends ends;
  ends.join();
  const PlainSocket late = test::stranger(ends.listener.port);
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
