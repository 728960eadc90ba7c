// The simulated network by itself: when frames arrive, in which order, and what faults do to them.
#include "shoal/table/link/simulated.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/unreliable_link.h"

namespace shoal::table::simulated_link_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPing = 32;  // bytes of its frame

void step_all(VirtualTime& time) {
  while (time.step()) {
  }
}

// The ends of a link, which write down what comes, as "clock@microseconds".
struct Ends {
  std::function<void(Message&&)> received(std::size_t side) {
    return [this, side](const Message& message) {
      if (const auto* ping = std::get_if<Ping>(&message))
        heard[side].push_back(str(ping->clock, "@", time.now() / 1us));
      else
        heard[side].push_back("row");
    };
  }
  std::function<std::optional<Message>()> next(std::size_t side) {
    return [this, side]() -> std::optional<Message> {
      if (to_say[side] == 0) return std::nullopt;
      return Ping{--to_say[side]};
    };
  }
  void run() { step_all(time); }

  VirtualTime time;
  std::vector<std::string> heard[2];
  Clock to_say[2] = {0, 0};
};

struct Rig : Ends {
  explicit Rig(const SimulatedLinkOptions& options)
      : link(time, options, Random(1), {received(0), next(0)}, {received(1), next(1)}) {}
  SimulatedLink link;
};

struct UnreliableRig : Ends {
  explicit UnreliableRig(const UnreliableLinkOptions& options, std::uint64_t seed = 1)
      : link(time, options, Random(seed), end(0), end(1)) {}
  UnreliableEnd end(std::size_t side) {
    return {received(side), next(side), [this, side] { heard[side].push_back("up"); }};
  }
  UnreliableLink link;
};

using Words = std::vector<std::string>;

TEST(VirtualTime, GoesFromEventToEventInOrder) {
  VirtualTime time;
  std::string order;
  time.at(20ms, [&] { order += "c"; });
  time.at(10ms, [&] {
    order += "a";
    time.after(10ms, [&] { order += "d"; });
    time.at(5ms, [&] { order += str("b", time.now() / 1ms); });  // the past is now
  });
  step_all(time);
  EXPECT_EQ(order, "ab10cd");
  EXPECT_EQ(time.now(), Instant(20ms));
}

// Events of one instant come in the order in which they were said, however far ahead that was.
TEST(VirtualTime, DoesWhatASortedListOfEventsDoes) {
  VirtualTime time;
  Random random(17);
  std::vector<std::pair<Instant, int>> said, done;
  const std::function<void()> say = [&] {
    for (std::uint64_t more = random.below(4); more > 0 && said.size() < 20'000; --more) {
      const auto bits = static_cast<unsigned>(random.below(30));
      const Instant when =
          time.now() + Instant(static_cast<std::int64_t>(random.below(1u << bits) & ~3u));
      said.emplace_back(when, static_cast<int>(said.size()));
      time.at(when, [&, event = said.back()] {
        EXPECT_EQ(event.first, time.now());
        done.push_back(event);
        say();
      });
    }
  };
  while (said.size() < 20'000) {
    say();
    for (std::uint64_t steps = random.below(1000); steps > 0 && time.step(); --steps) {
    }
  }
  step_all(time);
  EXPECT_TRUE(time.is_idle());
  std::ranges::stable_sort(said, {}, &std::pair<Instant, int>::first);
  EXPECT_EQ(said, done);
}

TEST(SimulatedLink, BytesTakeTimeAndLatencyDoesNotAddUp) {
  SimulatedPort out, in;
  Rig rig({.latency = 100us, .bandwidth = kPing * 1e4, .out = {&out}, .in = {&in}});
  // a ping takes 100 us
  for (Clock clock = 1; clock <= 3; ++clock) rig.link.send(0, Ping{clock});
  rig.link.send(1, Ping{9});
  rig.run();
  EXPECT_EQ(rig.heard[1], (Words{"1@200", "2@300", "3@400"}));
  EXPECT_EQ(rig.heard[0], (Words{"9@200"}));
  EXPECT_EQ(out.bytes, 3 * kPing);
  EXPECT_EQ(out.frames, 3u);
  EXPECT_EQ(in.bytes, kPing) << "what the other end sent";
}

TEST(SimulatedLink, WhatIsSentGoesBeforeWhatIsTaken) {
  Rig rig({.latency = 100us, .bandwidth = kPing * 1e4});
  rig.to_say[0] = 2;
  rig.link.wake(0);
  rig.link.send(0, Ping{7});
  rig.run();
  EXPECT_EQ(rig.heard[1], (Words{"1@200", "7@300", "0@400"}));
}

TEST(SimulatedLink, OfWhatWaitsTheMostUrgentLeavesFirst) {
  Rig rig({.latency = 100us, .bandwidth = kPing * 1e4});
  const Urgency urgencies[] = {
      {.clock = 5}, {.clock = 5, .priority = 1}, {.clock = 5, .priority = 1},
      {.clock = 5}, {.clock = 4, .priority = 2}, {}};
  for (Clock clock = 1; const Urgency& urgency : urgencies)
    rig.link.send(0, Ping{clock++}, urgency);
  rig.run();
  EXPECT_EQ(rig.heard[1], (Words{"1@200", "6@300", "5@400", "4@500", "2@600", "3@700"}));
}

TEST(SimulatedLink, TakesNoMoreThanItsWindow) {
  Rig rig({.latency = 100us, .window = 2 * kPing});
  rig.to_say[0] = 5;
  rig.link.wake(0);
  EXPECT_EQ(rig.to_say[0], 3);
  rig.run();
  EXPECT_EQ(rig.heard[1], (Words{"4@100", "3@100", "2@200", "1@200", "0@300"}));
}

TEST(UnreliableLink, WhatIsLateFillsTheWindowToo) {
  UnreliableRig rig({.link = {.latency = 100us, .window = 2 * kPing}, .faults = {.reorder = 1}});
  rig.to_say[0] = 5;
  rig.link.wake(0);
  rig.time.at(101us, [&] { EXPECT_EQ(rig.to_say[0], 3); });
  rig.run();
  EXPECT_EQ(rig.heard[1].size(), 5u);
  EXPECT_EQ(rig.link.counters(0).most_waiting, 2 * kPing);
  for (Clock clock = 0; clock < 5; ++clock) rig.link.send(0, Ping{clock});
  EXPECT_EQ(rig.link.counters(0).most_waiting, 5 * kPing);
}

// The numbers of the pings that were heard.
Words clocks_of(const Words& heard) {
  Words clocks;
  for (const std::string& each : heard) clocks.push_back(each.substr(0, each.find('@')));
  return clocks;
}

TEST(SimulatedLink, KeepsTheOrderWhateverTheJitter) {
  Rig plain({.latency = 10us, .jitter = 1ms});
  UnreliableRig delayed({.link = {.latency = 10us, .jitter = 1ms}, .faults = {.delay = 0.5}});
  Words sent;
  for (Clock clock = 0; clock < 50; ++clock) {
    plain.link.send(0, Ping{clock});
    delayed.link.send(0, Ping{clock});
    sent.push_back(str(clock));
  }
  plain.run();
  delayed.run();
  EXPECT_EQ(clocks_of(plain.heard[1]), sent);
  EXPECT_EQ(clocks_of(delayed.heard[1]), sent);
}

TEST(UnreliableLink, FaultsHappenAsOftenAsAskedFor) {
  const struct {
    LinkFaults faults;
    std::size_t least, most;
    bool ordered;
  } cases[] = {{{.lose = 0.5}, 400, 600, true},
               {{.repeat = 0.5}, 1400, 1600, false},
               {{.reorder = 0.5}, 1000, 1000, false}};
  for (const auto& each : cases) {
    UnreliableRig rig({.link = {.latency = 10us}, .faults = each.faults});
    for (Clock clock = 1000; clock < 2000; ++clock) rig.link.send(0, Ping{clock});
    rig.run();
    EXPECT_GE(rig.heard[1].size(), each.least);
    EXPECT_LE(rig.heard[1].size(), each.most);
    EXPECT_EQ(std::is_sorted(rig.heard[1].begin(), rig.heard[1].end()), each.ordered);
  }
}

TEST(UnreliableLink, ABreakLosesWhatIsOnItsWayAndWaits) {
  UnreliableRig rig(
      {.link = {.latency = 100us, .bandwidth = kPing * 1e4}, .faults = {.down = 1ms}});
  for (Clock clock = 1; clock <= 4; ++clock) rig.link.send(0, Ping{clock});
  rig.link.send(1, Ping{8});
  // 1 is there, 2 on its way, 3 leaving, 4 waiting; 8 is there
  rig.time.at(250us, [&] { rig.link.cut(); });
  rig.time.at(251us, [&] { rig.link.send(0, Ping{5}); });
  rig.time.at(2ms, [&] { rig.link.send(0, Ping{6}); });
  rig.run();
  EXPECT_EQ(rig.heard[1], (Words{"1@200", "up", "6@2200"}));
  EXPECT_EQ(rig.heard[0], (Words{"8@200", "up"}));
  EXPECT_EQ(rig.link.counters(0).resets, 1u);
}

TEST(UnreliableLink, DamageIsSeenAndBreaksTheConnection) {
  UnreliableRig rig({.link = {.latency = 100us}, .faults = {.damage = 1, .down = 1ms}});
  rig.link.send(0, Ping{1});
  rig.run();
  EXPECT_EQ(rig.heard[1], (Words{"up"}));
}

TEST(SimulatedLink, NumbersAreCopiedWhenTheyLeave) {
  VirtualTime time;
  std::vector<float> numbers(4, 1.f), heard;
  SimulatedLink link(time, {}, Random(1), {.received = [](const Message&) {}},
                     {.received = [&](const Message& message) {
                       const std::span<const float> values =
                           std::get<Push>(message).payload.floats();
                       heard.assign(values.begin(), values.end());
                     }});
  link.send(0, Push{.row = 3, .payload = as_payload({numbers, nullptr})});
  numbers.assign(4, 2.f);
  step_all(time);
  EXPECT_EQ(heard, std::vector<float>(4, 1.f));
}

TEST(UnreliableLink, ASeedIsAHistory) {
  std::vector<Words> histories;
  for (const std::uint64_t seed : {5, 5, 6}) {
    UnreliableRig rig({.link = {.latency = 10us, .jitter = 1ms},
                       .faults = {.lose = 0.2, .repeat = 0.2, .reorder = 0.2, .reset = 0.02}},
                      seed);
    for (Clock clock = 0; clock < 100; ++clock)
      rig.time.at(clock * 1ms, [&rig, clock] { rig.link.send(0, Ping{clock}); });
    rig.run();
    histories.push_back(rig.heard[1]);
  }
  EXPECT_EQ(histories[0], histories[1]);
  EXPECT_NE(histories[0], histories[2]);
}

}  // namespace
}  // namespace shoal::table::simulated_link_test
