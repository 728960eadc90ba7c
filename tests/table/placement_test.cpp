// Rows over servers.
#include "shoal/table/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/tensor/context.h"
#include "support/places.h"

namespace shoal::table::placement_test {
namespace {

std::size_t sum_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Cut and placed.
std::vector<Row> rows_of(const std::vector<std::size_t>& params, const Servers& servers) {
  std::vector<Row> rows;
  for (const std::size_t count : params) {
    std::size_t cut = 0;
    for (const std::uint32_t length : cut_for(count, sum_of(params), servers)) {
      EXPECT_GE(length, 1u);
      EXPECT_LE(length, kRowFloats);
      rows.push_back({.length = length});
      cut += length;
    }
    EXPECT_EQ(cut, count);
  }
  place(rows, servers);
  return rows;
}

std::vector<Row> rows_of_lengths(const std::vector<std::uint32_t>& lengths,
                                 const Servers& servers) {
  std::vector<Row> rows;
  for (const std::uint32_t length : lengths) rows.push_back({.length = length});
  place(rows, servers);
  return rows;
}

// (most - least) / mean
double difference(const std::vector<Row>& rows, int servers) {
  const std::vector<std::size_t> bytes = bytes_per_server(rows, servers);
  EXPECT_EQ(bytes.size(), static_cast<std::size_t>(servers));
  return static_cast<double>(std::ranges::max(bytes) - std::ranges::min(bytes)) /
         (static_cast<double>(sum_of(bytes)) / servers);
}

std::vector<std::size_t> params_of(const std::string& model) {
  NetParameter param =
      read_net((shoal::test::repository_root() / "models" / model / "train_val.prototxt").string());
  param.mutable_state()->set_phase(TRAIN);
  param.mutable_state()->add_stage("dummy");
  for (LayerParameter& layer : *param.mutable_layer()) {
    if (layer.has_convolution_param()) layer.mutable_convolution_param()->clear_weight_filler();
    if (layer.has_inner_product_param()) layer.mutable_inner_product_param()->clear_weight_filler();
  }
  Context context({});
  const Net net(param, context);
  std::vector<std::size_t> params;
  for (const NetParam& p : net.params())
    params.push_back(static_cast<std::size_t>(p.blob->data.count()));
  return params;
}

TEST(Placement, EveryModelIsBalancedWithinFivePercent) {
  for (const char* model : {"lenet", "cifar10_quick", "cifar10_full", "caffenet", "alexnet",
                            "googlenet", "vgg16", "resnet18", "resnet50"}) {
    const std::vector<std::size_t> params = params_of(model);
    for (int servers = 1; servers <= 8; ++servers) {
      SCOPED_TRACE(str(model, " on ", servers));
      const std::vector<Row> rows = rows_of(params, servers);
      EXPECT_LE(difference(rows, servers), 0.05);
      EXPECT_LE(rows.size(),
                sum_of(params) / kRowFloats + params.size() * static_cast<std::size_t>(servers))
          << "cut more than is needed";
      EXPECT_EQ(rows, rows_of(params, servers)) << "not the same twice";
    }
  }
}

// A worker sends and reads every row in each iteration.
TEST(Placement, ManyServersDoNotCutANetIntoManyRows) {
  const std::vector<std::size_t> params = params_of("googlenet");
  const auto all = static_cast<double>(sum_of(params));
  for (const int servers : {64, 256, 1000}) {
    SCOPED_TRACE(servers);
    const std::vector<Row> rows = rows_of(params, servers);
    EXPECT_LE(rows.size(), 4096 + 2 * params.size());
    // the link of a process with a worker and a server carries the server's rows for all others
    // and its own on other servers
    const auto most =
        static_cast<double>(std::ranges::max(bytes_per_server(rows, servers)) / sizeof(float));
    EXPECT_LE(most * (servers - 1) + (all - most), 1.15 * 2 * all * (servers - 1) / servers);
  }
}

TEST(Placement, RowsAreNearlyEqualAndNoLongerThanAllowed) {
  EXPECT_EQ(cut_for(10, 1'000'000, 1, 4), (std::vector<std::uint32_t>{3, 3, 4}));
  EXPECT_EQ(cut_for(kRowFloats, kRowFloats, 1), (std::vector<std::uint32_t>{kRowFloats}));
  EXPECT_EQ(cut_for(kRowFloats + 1, kRowFloats + 1, 1).size(), 2u);
  EXPECT_EQ(cut_for(kRowFloats, kRowFloats, 4), (std::vector<std::uint32_t>(4, kRowFloats / 4)));
  EXPECT_EQ(cut_for(3 * kRowFloats, 3 * kRowFloats, 4).size(), 4u);
  EXPECT_EQ(cut_for(100, 1'000'000, 8), (std::vector<std::uint32_t>{100}))
      << "small beside a server's share";
}

TEST(Placement, RowsOfASmallModelAreShorter) {
  EXPECT_EQ(longest_row(431'080), kRowFloats / 2) << "LeNet";
  EXPECT_EQ(longest_row(6'998'552), kRowFloats) << "GoogLeNet";
}

TEST(Placement, MoreServersThanRowsLeaveSomeEmpty) {
  const std::vector<Row> rows = rows_of({20, 3}, 8);
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(bytes_per_server(rows, 8), (std::vector<std::size_t>{80, 12, 0, 0, 0, 0, 0, 0}));
}

TEST(Placement, TheLargestRowGoesFirstToTheServerWithTheLeast) {
  const std::vector<Row> rows = rows_of_lengths({1, 5, 2, 5, 4}, 2);
  const int servers[] = {1, 0, 1, 1, 0};
  for (std::size_t row = 0; row < rows.size(); ++row) EXPECT_EQ(rows[row].server, servers[row]);
}

// ---- by time ----

// Seconds of each server for these rows, by the words of the header.
std::vector<double> seconds_of(const std::vector<Row>& rows, const Servers& servers) {
  std::vector<double> own(static_cast<std::size_t>(servers.count)), seconds;
  double all = 0;
  for (const Row& row : rows) own[row.server] += row.length, all += row.length;
  for (std::size_t s = 0; s < own.size(); ++s) seconds.push_back(servers.seconds(s, own[s], all));
  return seconds;
}

TEST(PlacementByTime, SecondsAreOfLinksAndUpdates) {
  const Servers servers({{.bandwidth = 400},
                         {.bandwidth = 800, .busy = 0.25},
                         {.bandwidth = 400, .has_worker = true},
                         {}},
                        3);
  EXPECT_DOUBLE_EQ(servers.seconds(0, 10, 100), 0.01 * 10 * 3) << "from three workers";
  EXPECT_DOUBLE_EQ(servers.seconds(1, 10, 100), 0.005 * 10 * 3 + 0.25 * 40 * 3);
  EXPECT_DOUBLE_EQ(servers.seconds(2, 10, 100), 0.01 * (10 * 2 + 90))
      << "from two others, and what others have for its own";
  EXPECT_EQ(servers.seconds(3, 10, 100), 0) << "nothing limits it";
  EXPECT_EQ(Servers(4).seconds(3, 10, 100), 10);
}

TEST(PlacementByTime, AServerTenTimesAsFastHasTenTimesAsMuch) {
  for (const char* model : {"lenet", "caffenet", "googlenet"}) {
    SCOPED_TRACE(model);
    const Servers servers({{.bandwidth = 1e8}, {.bandwidth = 1e9}, {.bandwidth = 5e8}}, 4);
    const std::vector<Row> rows = rows_of(params_of(model), servers);
    const std::vector<std::size_t> bytes = bytes_per_server(rows, 3);
    const auto all = static_cast<double>(sum_of(bytes));
    for (const auto& [server, share] : {std::pair{0, 1 / 16.0}, {1, 10 / 16.0}, {2, 5 / 16.0}})
      EXPECT_NEAR(static_cast<double>(bytes[static_cast<std::size_t>(server)]) / all, share, 0.02)
          << server;
    EXPECT_LE(std::ranges::max(seconds_of(rows, servers)),
              1.3 * all / sizeof(float) * 4 * 4 / 1.6e9);
  }
}

TEST(PlacementByTime, OneSlowUpdaterGetsLess) {
  const Servers servers({{.bandwidth = 1e9, .busy = 9e-9}, {.bandwidth = 1e9}}, 2);
  const std::vector<Row> rows = rows_of({1'000'000}, servers);
  const std::vector<std::size_t> bytes = bytes_per_server(rows, 2);
  EXPECT_GT(bytes[1], 8 * bytes[0]);
  const double best = 4e6 * 2 / (1e9 + 1e8);  // of both rates together
  EXPECT_LE(std::ranges::max(seconds_of(rows, servers)), 1.05 * best);
}

TEST(PlacementByTime, WhatCostsNothingIsDividedAsBytes) {
  EXPECT_EQ(rows_of_lengths({1, 5, 2, 5, 4}, Servers({{}, {}}, 2)),
            rows_of_lengths({1, 5, 2, 5, 4}, 2));
}

// Never later than even shares, whatever the servers are.
TEST(PlacementByTime, IsNotWorseThanByBytes) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Random random(seed);
    std::vector<ServerSpeed> speeds(1 + random.below(6));
    for (ServerSpeed& speed : speeds)
      speed = {.bandwidth = 1e7 * (1 + 30 * random.unit()),
               .busy = 1e-8 * random.unit(),
               .has_worker = random.below(2) == 1};
    const Servers servers(speeds, 3 + static_cast<int>(random.below(5)));
    std::vector<std::size_t> params(1 + random.below(8));
    for (std::size_t& count : params) count = 100 + random.below(400'000);
    const auto worst = [&](const std::vector<Row>& rows) {
      return std::ranges::max(seconds_of(rows, servers));
    };
    EXPECT_LE(worst(rows_of(params, servers)), 1.05 * worst(rows_of(params, servers.count)));
  }
}

}  // namespace
}  // namespace shoal::table::placement_test
