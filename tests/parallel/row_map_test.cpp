// Tests which rows hold which numbers of a net's params.
#include "shoal/parallel/row_map.h"

#include <gtest/gtest.h>

#include <set>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal::test::row_map_test {
namespace {

using table::RowId;

// 'one' owns 'w' and 'b', which 'two' and 'three' share; 'one' has a param of 200 000 numbers;
// 'norm' has sums that no rule changes.
constexpr const char* kNet = R"(
  layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 400 } } }
  layer { name: 'wide' type: 'InnerProduct' bottom: 'x' top: 'a' param { lr_mult: 0.5 decay_mult: 2 } param { lr_mult: 0 } inner_product_param { num_output: 500 } }
  layer { name: 'norm' type: 'BatchNorm' bottom: 'a' top: 'n' }
  layer { name: 'zero' type: 'InnerProduct' bottom: 'n' top: 'z' inner_product_param { num_output: 6 } }
  layer { name: 'one' type: 'InnerProduct' bottom: 'z' top: 'o' param { name: 'w' } param { name: 'b' } inner_product_param { num_output: 6 } }
  layer { name: 'relu' type: 'ReLU' bottom: 'o' top: 'o' }
  layer { name: 'two' type: 'InnerProduct' bottom: 'o' top: 't' param { name: 'w' } param { name: 'own' } inner_product_param { num_output: 6 } }
)";

class RowMapOfANet : public testing::Test {
 protected:
  RowMapOfANet() : context_({}), net_(parse_net(kNet, "net"), context_) {}
  int layer(const std::string& name) const {
    for (std::size_t i = 0; i < net_.layers().size(); ++i)
      if (net_.layers()[i]->name() == name) return static_cast<int>(i);
    return -1;
  }
  static std::set<std::size_t> params_of(const parallel::RowMap& map, std::span<const RowId> rows) {
    std::set<std::size_t> params;
    for (const RowId row : rows) params.insert(map.piece(row).param);
    return params;
  }
  Context context_;
  Net net_;
};

TEST_F(RowMapOfANet, ParamsThatAreReadOnceHaveFewRows) {
  const parallel::RowMap map(net_, 2,
                             {.replicated = std::vector<bool>(net_.layers().size(), true)});
  EXPECT_LT(map.rows().size(), 30u) << "of 200 000 numbers";
}

TEST_F(RowMapOfANet, CutsEveryParamOnceAndInOrder) {
  for (const int servers : {1, 3}) {
    const parallel::RowMap map(net_, servers);
    std::size_t param = 0, offset = 0;
    for (RowId row = 0; row < map.rows().size(); ++row) {
      const parallel::RowMap::Piece piece = map.piece(row);
      if (piece.param != param) {
        EXPECT_EQ(net_.params()[param].blob->data.count(), static_cast<std::int64_t>(offset))
            << "param " << param;
        ++param, offset = 0;
      }
      ASSERT_EQ(param, piece.param);
      ASSERT_EQ(offset, piece.offset);
      Blob& blob = *net_.params()[param].blob;
      EXPECT_EQ(blob.data.host().data() + offset, map.weights(row).data());
      EXPECT_EQ(blob.grad.host().data() + offset, map.gradient(row).data());
      EXPECT_EQ(map.rows()[row].length, map.weights(row).size());
      EXPECT_EQ(map.rows()[row].length, map.gradient(row).size());
      EXPECT_LT(map.rows()[row].server, servers);
      EXPECT_LE(map.rows()[row].length, table::kRowFloats / 2) << "of a small model";
      offset += map.rows()[row].length;
    }
    EXPECT_EQ(net_.params().size(), param + 1);
    EXPECT_EQ(net_.params()[param].blob->data.count(), static_cast<std::int64_t>(offset));
  }
}

TEST_F(RowMapOfANet, KnowsWhatALayerOwnsAndNeeds) {
  const parallel::RowMap map(net_, 2);
  // The params: 0, 1 of 'wide'; 2, 3, 4 of 'norm'; 5, 6 of 'zero'; 7 and 8, shared, of 'one'; 9,
  // its own bias, of 'two'.
  using Set = std::set<std::size_t>;
  const struct {
    const char* layer;
    Set owned, needed;
  } cases[] = {{"in", {}, {}},           {"wide", {0, 1}, {0, 1}}, {"norm", {2, 3, 4}, {2, 3, 4}},
               {"zero", {5, 6}, {5, 6}}, {"one", {7, 8}, {7, 8}},  {"relu", {}, {}},
               {"two", {9}, {7, 9}}};
  for (const auto& c : cases) {
    EXPECT_EQ(c.owned, params_of(map, map.owned_by(layer(c.layer)))) << c.layer;
    EXPECT_EQ(c.needed, params_of(map, map.needed_by(layer(c.layer)))) << c.layer;
  }
  EXPECT_LT(3u, map.owned_by(layer("wide")).size());  // 200 000 numbers are several rows
}

TEST_F(RowMapOfANet, SaysWhatARuleNeedsAndWhoIsFirst) {
  const parallel::RowMap map(net_, 2);
  for (RowId row = 0; row < map.rows().size(); ++row) {
    const NetParam& param = net_.params()[map.piece(row).param];
    EXPECT_EQ(static_cast<std::uint32_t>(param.layer), map.rows()[row].priority);
    EXPECT_EQ(param.lr_mult, map.rows()[row].lr_mult);
    EXPECT_EQ(param.decay_mult, map.rows()[row].decay_mult);
    EXPECT_EQ(param.lr_mult != 0, map.rows()[row].learns);
  }
  const std::vector<RowId> learning = map.learning();
  EXPECT_EQ((std::set<std::size_t>{0, 5, 6, 7, 8, 9}), params_of(map, learning));
}

}  // namespace
}  // namespace shoal::test::row_map_test
