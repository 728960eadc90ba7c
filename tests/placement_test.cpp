// Rows over servers.
#include "shoal/table/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/tensor/context.h"
#include "support/places.h"

namespace shoal::table {
namespace {

std::vector<Row> rows_of(const std::vector<std::size_t>& params, int servers, std::uint32_t longest = kRowFloats) {
  const std::size_t total = std::accumulate(params.begin(), params.end(), std::size_t{0});
  std::vector<Row> rows;
  for (const std::size_t count : params) {
    const std::vector<std::uint32_t> lengths = cut_for(count, total, servers, longest);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), count);
    for (const std::uint32_t length : lengths) {
      EXPECT_GE(length, 1u);
      EXPECT_LE(length, longest);
      rows.push_back({.length = length});
    }
  }
  place(rows, servers);
  return rows;
}

// (most - least) / mean
double difference(const std::vector<Row>& rows, int servers) {
  const std::vector<std::size_t> bytes = bytes_per_server(rows, servers);
  EXPECT_EQ(bytes.size(), static_cast<std::size_t>(servers));
  const double total = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
  return static_cast<double>(*std::ranges::max_element(bytes) - *std::ranges::min_element(bytes)) / (total / servers);
}

std::vector<std::size_t> params_of(const std::string& model) {
  NetParameter param = read_net((shoal::test::repository_root() / "models" / model / "train_val.prototxt").string());
  param.mutable_state()->set_phase(TRAIN);
  param.mutable_state()->add_stage("dummy");
  for (LayerParameter& layer : *param.mutable_layer()) {
    if (layer.has_convolution_param()) layer.mutable_convolution_param()->clear_weight_filler();
    if (layer.has_inner_product_param()) layer.mutable_inner_product_param()->clear_weight_filler();
  }
  Context context({});
  const Net net(param, context);
  std::vector<std::size_t> params;
  for (const NetParam& p : net.params()) params.push_back(static_cast<std::size_t>(p.blob->data.count()));
  return params;
}

TEST(Placement, EveryModelIsBalancedWithinFivePercent) {
  for (const char* model : {"lenet", "cifar10_quick", "cifar10_full", "caffenet", "alexnet", "googlenet", "vgg16", "resnet18", "resnet50"}) {
    const std::vector<std::size_t> params = params_of(model);
    const std::size_t total = std::accumulate(params.begin(), params.end(), std::size_t{0});
    for (int servers = 1; servers <= 8; ++servers) {
      SCOPED_TRACE(str(model, " on ", servers));
      const std::vector<Row> rows = rows_of(params, servers);
      EXPECT_LE(difference(rows, servers), 0.05);
      EXPECT_LE(rows.size(), (total / kRowFloats) + params.size() * static_cast<std::size_t>(servers)) << "cut more than is needed";
      EXPECT_EQ(rows, rows_of(params, servers)) << "not the same twice";
    }
  }
}

TEST(Placement, RowsAreNearlyEqualAndNoLongerThanAllowed) {
  EXPECT_EQ(cut_for(10, 1'000'000, 1, 4), (std::vector<std::uint32_t>{3, 3, 4}));
  EXPECT_EQ(cut_for(kRowFloats, kRowFloats, 1), (std::vector<std::uint32_t>{kRowFloats}));
  EXPECT_EQ(cut_for(kRowFloats + 1, kRowFloats + 1, 1).size(), 2u);
  EXPECT_EQ(cut_for(kRowFloats, kRowFloats, 4), (std::vector<std::uint32_t>(4, kRowFloats / 4)));
  EXPECT_EQ(cut_for(3 * kRowFloats, 3 * kRowFloats, 4).size(), 4u);
  EXPECT_EQ(cut_for(100, 1'000'000, 8), (std::vector<std::uint32_t>{100})) << "small beside a server's share";
}

TEST(Placement, MoreServersThanRowsLeaveSomeEmpty) {
  const std::vector<Row> rows = rows_of({20, 3}, 8);
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(bytes_per_server(rows, 8), (std::vector<std::size_t>{80, 12, 0, 0, 0, 0, 0, 0}));
}

TEST(Placement, TheLargestRowGoesFirstToTheServerWithTheLeast) {
  std::vector<Row> rows;
  for (const std::uint32_t length : {1u, 5u, 2u, 5u, 4u}) rows.push_back({.length = length});
  place(rows, 2);
  EXPECT_EQ(rows[1].server, 0);
  EXPECT_EQ(rows[3].server, 1);
  EXPECT_EQ(rows[4].server, 0);
  EXPECT_EQ(rows[2].server, 1);
  EXPECT_EQ(rows[0].server, 1);
}

}  // namespace
}  // namespace shoal::table
