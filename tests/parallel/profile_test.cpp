// Tests how workers' speeds are measured, and what is written of them.
#include "shoal/parallel/tuning/profile.h"

#include <gtest/gtest.h>

#include "shoal/base/file.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/job.h"

namespace shoal::parallel::profile_test {
namespace {

using test::get_file;
using test::run_team;

TEST(Profile, AHiccupIsNoSlowWorker) {
  parallel::MeanTime times;
  EXPECT_EQ(times.mean(), 0);
  for (int i = 0; i < 9; ++i) times.add(0.1);
  times.add(60);
  EXPECT_NEAR(times.mean(), (9 * 0.1 + 0.3) / 10, 1e-12);
  for (int i = 0; i < 100; ++i) times.add(0.2);
  EXPECT_NEAR(times.mean(), 0.2, 1e-12) << "the last hundred";
}

TEST(Profile, EveryoneFindsTheSame) {
  const double seconds[] = {0.25, 0.05, 0.26, 0.05, 0};
  std::vector<Profile> found(5);
  const auto thrown = run_team(5, [&](Team& team) {
    const auto index = static_cast<std::size_t>(team.index());
    found[index] = or_throw(make_profile(
        team, {.busy = seconds[index], .items = 10, .iteration = 7 - team.index()}, {}));
  });
  EXPECT_EQ(thrown, std::vector<std::string>(5));
  for (const Profile& profile : found) {
    EXPECT_EQ(profile.speeds,
              (std::vector<double>{10 / 0.25, 10 / 0.05, 10 / 0.26, 10 / 0.05, 10 / 0.26}))
        << "who measured nothing is the slowest";
    EXPECT_EQ(text_of(profile.grouping.groups), "1,3|0,2,4");
    EXPECT_EQ(profile.least, 3);
  }
  EXPECT_HAS(text_of(found[0]),
             "speeds 40, 200, 38.5, 200, 38.5 items/s; 2 groups (Calinski-Harabasz index ");
  EXPECT_HAS(text_of(found[0]), "): 1,3|0,2,4");
}

TEST(Profile, WithoutAnyMeasurementAllAreOneGroup) {
  run_team(3, [&](Team& team) {
    EXPECT_EQ(text_of(or_throw(make_profile(team, {}, {}))),
              "speeds 1, 1, 1 items/s; 1 group: 0,1,2");
  });
}

// A server that came too late to be measured has the link of the others.
TEST(Profile, WhatAnExchangeTakesCounts) {
  const std::optional<double> exchanges[] = {0.1, std::nullopt, 0.3};
  run_team(3, [&](Team& team) {
    const Profile profile = or_throw(
        make_profile(team, {.busy = 0.1, .exchange = exchanges[team.index()], .items = 3}, {}));
    ASSERT_EQ(profile.speeds.size(), 3u);
    EXPECT_DOUBLE_EQ(profile.speeds[0], 15);
    EXPECT_DOUBLE_EQ(profile.speeds[1], 10);
    EXPECT_DOUBLE_EQ(profile.speeds[2], 7.5);
  });
}

// A worker that is in the generation, and has left, has zeros.
TEST(Profile, WhoHasLeftHoldsNobodyUp) {
  run_team(3, [&](Team& team) {
    std::vector<double> nothing(15);
    if (team.index() == 1) return (void)team.sum(nothing);
    const Profile profile =
        or_throw(make_profile(team, {.busy = 0.1, .items = 3, .iteration = 8}, {}));
    EXPECT_EQ(profile.least, 8);
    EXPECT_EQ(text_of(profile.grouping.groups), "0,1,2");
  });
}

table::RosterBody roster_of(const std::vector<std::string>& addresses) {
  table::RosterBody roster;
  roster.processes.push_back(
      {.rank = 0, .worker = -1, .server = 0, .host = "s", .address = "10.0.0.99:29600"});
  for (std::uint32_t i = 0; i < addresses.size(); ++i)
    roster.processes.push_back({.rank = i + 1,
                                .worker = static_cast<std::int32_t>(i),
                                .server = -1,
                                .host = "w",
                                .address = addresses[i]});
  return roster;
}

TEST(Profile, FilesAreOfTheWorkersAddresses) {
  const std::string folder = test::fresh_directory("profile");
  const ProfileFiles files{folder + "/groups", folder + "/data_sharding"};
  Profile profile{.speeds = {20, 10, 20}, .grouping = {}};
  profile.grouping = find_groups(profile.speeds);
  ASSERT_OK(write(files, profile, roster_of({"10.0.0.3:1", "10.0.0.2:1", "10.0.0.1:1"})));
  EXPECT_EQ(get_file(files.groups), "10.0.0.3 10.0.0.1\n10.0.0.2\n");
  EXPECT_EQ(get_file(files.data_sharding), "0 0.4\n0.4 0.6\n0.6 1\n");
  ASSERT_OK(write(files, profile, roster_of({"[::3]:1", "[::2]:1", "[::1]:1"})));
  EXPECT_EQ(get_file(files.groups), "::3 ::1\n::2\n");
}

TEST(Profile, BothFilesAreWrittenOrNone) {
  const std::string folder = test::fresh_directory("profile");
  Profile profile{.speeds = {1}, .grouping = {}};
  profile.grouping = find_groups(profile.speeds);
  const ProfileFiles files{folder + "/groups", folder + "/none/data_sharding"};
  EXPECT_FAILS_WITH("/none", check_writable(files));
  EXPECT_FAILS_WITH("/none", write(files, profile, roster_of({"a:1"})));
  EXPECT_FALSE(file_exists(files.groups));
}

}  // namespace
}  // namespace shoal::parallel::profile_test
