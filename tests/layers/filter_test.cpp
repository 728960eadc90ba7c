// Filter, and nets in which the number of items differs from pass to pass: each pass has the
// numbers of a net that was given the selected items alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "shoal/base/random.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/devices.h"
#include "support/expect.h"
#include "support/layer_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::filter_test {
namespace {

#define EXPECT_SAYS(build, words) EXPECT_HAS(message_of([&] { build; }), words)

NetParameter parse(const std::string& text, Phase phase = TRAIN) {
  NetParameter net = parse_net(text, "test.prototxt");
  net.mutable_state()->set_phase(phase);
  return net;
}

struct TestNet {
  explicit TestNet(const std::string& text, const Device* device = nullptr,
                   const NetOptions& options = {})
      : context({.device = device, .seed = 7}), net(parse(text), context, options) {}
  void put_in(const std::string& blob, const Numbers& numbers) {
    put(numbers, net.blob(blob)->data);
  }
  Numbers gradients() const {
    Numbers all;
    for (const NetParam& param : net.params())
      all.insert(all.end(), param.blob->grad.host().begin(), param.blob->grad.host().end());
    return all;
  }
  // One pass from gradients of zeros; returns the loss.
  float pass() {
    net.clear_gradients();
    const Result<float> loss = net.forward();
    EXPECT_TRUE(loss.ok()) << loss.error().message;
    const Status status = net.backward();
    EXPECT_TRUE(status.ok()) << status.error().message;
    return loss.ok() ? loss.value() : NAN;
  }
  Context context;
  Net net;
};

std::string input(const std::string& tops_and_shapes) {
  return "layer { name: 'in' type: 'Input' " + tops_and_shapes + " }\n";
}

// ---- the layer ----

std::string filter(const std::string& bottoms, const std::string& tops) {
  return "layer { name: 'f' type: 'Filter' " + bottoms + " " + tops + " }";
}
void make(const std::string& prototxt, const std::vector<Shape>& bottoms) {
  LayerRig rig(parse_layer(prototxt), bottoms);
}

TEST(Filter, SaysWhatIsWrongWithItsBottoms) {
  const std::string one = filter("bottom: 'x' bottom: 's'", "top: 'y'");
  EXPECT_SAYS(make(one, {{4, 2}, {4, 2}}),
              "layer 'f' (Filter): bottom 's', the selector, has one number for each item; its "
              "shape is 4 2 (8), in which an axis after the first is not 1");
  EXPECT_SAYS(make(one, {{4, 2}, Shape(std::vector<std::int64_t>{})}),
              "bottom 's', the selector, has one number for each item");
  EXPECT_SAYS(make(one, {{4, 2}, {3, 1, 1}}),
              "bottom 'x' has shape 4 2 (8); the selector 's' has 3 numbers, one for each item on "
              "axis 0");
  EXPECT_SAYS(make(filter("bottom: 'x' bottom: 'y' bottom: 's'", "top: 'a'"), {{4}, {4}, {4}}),
              "has 3 bottoms and 1 tops; it makes one top of each bottom but the last");
  const std::string in =
      input("top: 'x' top: 's' input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } }");
  EXPECT_SAYS(TestNet(in + filter("bottom: 'x'", "top: 'y'")),
              "has 1 bottoms; a Filter layer takes");
  EXPECT_SAYS(TestNet(in + filter("bottom: 'x' bottom: 's'", "top: 'x'")),
              "a Filter layer does not work in place");
}

TEST(Filter, HasNoGradientForTheSelector) {
  const std::string text =
      input("top: 'x' input_param { shape { dim: 4 dim: 2 } }") +
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 's' inner_product_param { "
      "num_output: 1 } }\n" +
      filter("bottom: 'x' bottom: 's'", "top: 'y'");
  const std::string loss =
      "layer { name: 'sum' type: 'Reduction' bottom: 'y' top: 'sum' loss_weight: 1 }";
  EXPECT_SAYS(TestNet(text + loss),
              "bottom 's' needs a gradient, because layers that learn make it, and a Filter layer "
              "has none for it");
  EXPECT_SAYS(TestNet(input("top: 'x' top: 's' input_param { shape { dim: 4 } }") +
                      filter("bottom: 'x' bottom: 's'",
                             "top: 'y' propagate_down: false propagate_down: true")),
              "propagate_down is true for bottom 's', to which a Filter layer has no gradient");
}

// Caffe asks whether a number is not 0: that of a NaN is true, that of -0 is not.
TEST(Filter, SelectsWhereANumberIsNotNought) {
  LayerRig rig(parse_layer(filter("bottom: 'x' bottom: 's'", "top: 'y'")), {{5}, {5}});
  EXPECT_EQ(rig.top(0).shape(), Shape{5});
  rig.input(0) = {1, 2, 3, 4, 5};
  rig.input(1) = {-0.0f, NAN, 0, -1, 1e-30f};
  rig.forward();
  EXPECT_EQ(values(rig.top(0).data), (Numbers{2, 4, 5}));
  rig.input(1) = {0, 0, 0, 0, 0};
  rig.forward();
  EXPECT_EQ(rig.top(0).shape(), Shape{0});
  rig.backward({{}}, {true, false});
  EXPECT_EQ(values(rig.bottom(0).grad), Numbers(5));
}

// ---- nets ----

constexpr int kItems = 6, kPixels = 2 * 6 * 6;

std::string shapes_of(std::int64_t items) {
  return str("top: 'x' top: 'label' top: 's' top: 't' input_param { shape { dim: ", items,
             " dim: 2 dim: 6 dim: 6 } shape { dim: ", items, " } shape { dim: ", items,
             " } shape { dim: ", items, " dim: 1 } }");
}

constexpr const char* kStem = R"(
layer { name: 'stem' type: 'Convolution' bottom: 'x' top: 'stem'
        convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }
)";
// A second one selects among what the first did.
constexpr const char* kFilters = R"(
layer { name: 'first' type: 'Filter' bottom: 'stem' bottom: 's' top: 'stem1' }
layer { name: 'first_too' type: 'Filter' bottom: 'label' bottom: 't' bottom: 's' top: 'label1' top: 't1' }
layer { name: 'second' type: 'Filter' bottom: 'stem1' bottom: 't1' top: 'picked' }
layer { name: 'second_too' type: 'Filter' bottom: 'label1' bottom: 't1' top: 'picked_label' }
)";
constexpr const char* kWithoutFilters = R"(
layer { name: 'first' type: 'Reshape' bottom: 'stem' top: 'picked' reshape_param { shape { dim: 0 dim: 3 dim: 6 dim: 6 } } }
layer { name: 'second' type: 'Reshape' bottom: 'label' top: 'picked_label' reshape_param { shape { dim: -1 } } }
layer { name: 'no_selector' type: 'Silence' bottom: 's' bottom: 't' }
)";
// Layers that share bytes, work in place, are fused, keep statistics, draw, and look on the host.
constexpr const char* kHead = R"(
layer { name: 'conv' type: 'Convolution' bottom: 'picked' top: 'conv'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }
layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm' }
layer { name: 'scale' type: 'Scale' bottom: 'norm' top: 'norm' scale_param { bias_term: true } }
layer { name: 'relu2' type: 'ReLU' bottom: 'norm' top: 'norm' }
layer { name: 'pool' type: 'Pooling' bottom: 'norm' top: 'pool' pooling_param { kernel_size: 2 stride: 2 } }
layer { name: 'lrn' type: 'LRN' bottom: 'pool' top: 'lrn' lrn_param { local_size: 3 } }
layer { name: 'flat' type: 'Reshape' bottom: 'lrn' top: 'flat' reshape_param { shape { dim: 0 dim: -1 } } }
layer { name: 'drop' type: 'Dropout' bottom: 'flat' top: 'drop' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'drop' top: 'ip'
        inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'picked_label' top: 'loss' }
layer { name: 'aside' type: 'InnerProduct' bottom: 'picked' top: 'aside'
        inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
layer { name: 'far' type: 'EuclideanLoss' bottom: 'aside' bottom: 'ip' top: 'far' loss_weight: 0.1 }
layer { name: 'prob' type: 'Softmax' bottom: 'aside' top: 'prob' }
)";

constexpr const char* kAccuracy = R"(
layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'picked_label' top: 'accuracy' }
)";

struct Items {
  Numbers x, label;
};
Items draw_items(std::uint64_t seed) {
  Random random(seed);
  Items items;
  for (int i = 0; i < kItems * kPixels; ++i) items.x.push_back(random.gaussian(0, 1));
  for (int i = 0; i < kItems; ++i) items.label.push_back(static_cast<float>(random.below(4)));
  return items;
}
Items only(const Items& all, const std::vector<int>& chosen) {
  Items some;
  for (const int item : chosen) {
    const auto at = all.x.begin() + item * kPixels;
    some.x.insert(some.x.end(), at, at + kPixels);
    some.label.push_back(all.label[static_cast<std::size_t>(item)]);
  }
  return some;
}

// The numbers of both selectors; chosen: the items that both choose.
struct Selection {
  Numbers first, second;
  std::vector<int> chosen() const {
    std::vector<int> items;
    for (int i = 0; i < kItems; ++i)
      if (first[static_cast<std::size_t>(i)] != 0 && second[static_cast<std::size_t>(i)] != 0)
        items.push_back(i);
    return items;
  }
};
std::vector<Selection> selections() {
  const Numbers all(kItems, 1), none(kItems, 0);
  std::vector<Selection> list = {{all, all}, {none, all}, {{1, 0, 0, 0, 0, 0}, all}, {all, none}};
  Random random(11);
  for (int pass = 0; pass < 8; ++pass) {
    Selection one{none, none};
    for (Numbers* numbers : {&one.first, &one.second})
      for (float& number : *numbers) number = random.below(3) > 0 ? random.uniform(1, 2) : 0;
    list.push_back(one);
  }
  list.push_back({all, all});
  return list;
}

class FilterNets : public testing::TestWithParam<TestDevice> {
 protected:
  const Device* device() const { return GetParam().get(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, FilterNets, testing::ValuesIn(test_devices()),
                         [](const auto& device) { return device.param.name; });

void expect_near(const Numbers& got, const Numbers& want, const char* what) {
  EXPECT_LE(relative_error(got, want, 0.01), 2e-6) << what;
}

TEST_P(FilterNets, HaveTheNumbersOfTheSelectedItemsAlone) {
  const std::string head = std::string(kHead) + kAccuracy;
  TestNet filtered(input(shapes_of(kItems)) + kStem + kFilters + head, device()),
      alone(input(shapes_of(kItems)) + kStem + kWithoutFilters + head, device());
  const NetMemory planned = filtered.net.memory();
  std::set<std::size_t> counts;
  for (const Selection& selection : selections()) {
    const std::vector<int> chosen = selection.chosen();
    SCOPED_TRACE(chosen.size());
    counts.insert(chosen.size());
    const Items items = draw_items(counts.size()), some = only(items, chosen);
    filtered.put_in("x", items.x);
    filtered.put_in("label", items.label);
    filtered.put_in("s", selection.first);
    filtered.put_in("t", selection.second);
    const float loss = filtered.pass();
    const auto top = [&](const char* name) { return values(filtered.net.blob(name)->data); };
    if (chosen.empty()) {
      EXPECT_EQ(loss, 0);
      EXPECT_EQ(top("accuracy"), Numbers{0});
      EXPECT_EQ(filtered.gradients(), Numbers(filtered.gradients().size()));
      EXPECT_EQ(filtered.net.blob("prob")->shape(), (Shape{0, 4}));
    } else {
      const auto count = static_cast<std::int64_t>(chosen.size());
      for (const char* name : {"x", "label", "s", "t"}) {
        std::vector<std::int64_t> dims = alone.net.blob(name)->shape().dims();
        dims[0] = count;
        alone.net.blob(name)->reshape(Shape(dims));
      }
      alone.net.reshape();
      alone.put_in("x", some.x);
      alone.put_in("label", some.label);
      expect_near({loss}, {alone.pass()}, "loss");
      EXPECT_EQ(top("accuracy"), values(alone.net.blob("accuracy")->data));
      expect_near(top("prob"), values(alone.net.blob("prob")->data), "prob");
      expect_near(filtered.gradients(), alone.gradients(), "gradients");
    }
    for (std::size_t i = 0; i < filtered.net.params().size(); ++i)
      expect_near(values(filtered.net.params()[i].blob->data),
                  values(alone.net.params()[i].blob->data), "params, running sums among them");
    EXPECT_EQ(filtered.net.find_non_finite(), "");
  }
  EXPECT_GE(counts.size(), 4u) << "few numbers of items were tried";
  EXPECT_EQ(filtered.net.memory().blobs, planned.blobs) << "the memory was planned anew";
}

TEST_P(FilterNets, GiveNoGradientToAnItemThatWasNotSelected) {
  TestNet t(input(shapes_of(kItems)) + kStem + kFilters + kHead, device(), {.share_memory = false});
  const Items items = draw_items(3);
  t.put_in("x", items.x);
  t.put_in("label", items.label);
  for (const Selection& selection : selections()) {
    t.put_in("s", selection.first);
    t.put_in("t", selection.second);
    t.pass();
    const Numbers grad = values(t.net.blob("stem")->grad);
    const std::vector<int> chosen = selection.chosen();
    for (int item = 0; item < kItems; ++item) {
      const auto length = static_cast<std::int64_t>(grad.size()) / kItems;
      const auto at = grad.begin() + item * length;
      const bool has_any = std::any_of(at, at + length, [](float x) { return x != 0; });
      EXPECT_EQ(has_any, std::ranges::count(chosen, item) == 1) << "item " << item;
    }
  }
}

// Each item goes one of two ways, which share their params: so the net is one of all items, in
// another order. One way may get none.
TEST_P(FilterNets, JoinTwoWaysOfABatch) {
  const std::string in = input(
      "top: 'x' top: 'label' top: 'left' top: 'right' input_param { shape { dim: 6 dim: 72 } "
      "shape { dim: 6 } shape { dim: 6 } shape { dim: 6 } }");
  const auto product = [](const std::string& name, const std::string& bottom) {
    return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
           name +
           "' param { name: 'w' } param { name: 'b' } inner_product_param { num_output: 4 "
           "weight_filler { type: 'constant' value: 0.01 } } }\n";
  };
  const auto way = [&](const std::string& side) {
    return "layer { name: 'to_" + side + "' type: 'Filter' bottom: 'x' bottom: 'label' bottom: '" +
           side + "' top: 'x_" + side + "' top: 'label_" + side + "' }\n" +
           product("y_" + side, "x_" + side);
  };
  const std::string loss =
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 'z' top: 'loss' }";
  TestNet two(in + way("left") + way("right") +
                  "layer { name: 'y' type: 'Concat' bottom: 'y_left' bottom: 'y_right' top: 'y' "
                  "concat_param { axis: 0 } }\n"
                  "layer { name: 'z' type: 'Concat' bottom: 'label_left' bottom: 'label_right' "
                  "top: 'z' concat_param { axis: 0 } }\n" +
                  loss,
              device()),
      one(in + "layer { name: 's' type: 'Silence' bottom: 'left' bottom: 'right' }\n" +
              product("y", "x") +
              "layer { name: 'z' type: 'Reshape' bottom: 'label' top: 'z' reshape_param { shape { "
              "dim: -1 } } }\n" +
              loss,
          device());
  const Items items = draw_items(5);
  one.put_in("x", items.x);
  one.put_in("label", items.label);
  const float want = one.pass();
  two.put_in("x", items.x);
  two.put_in("label", items.label);
  for (const Selection& selection : selections()) {
    Numbers other;
    for (const float number : selection.first) other.push_back(number == 0 ? 1 : 0);
    two.put_in("left", selection.first);
    two.put_in("right", other);
    expect_near({two.pass()}, {want}, "loss");
    expect_near(two.gradients(), one.gradients(), "gradients");
  }
}

// A layer that cannot follow ends the pass; the next goes on.
TEST_P(FilterNets, SayWhichLayerCannotFollow) {
  TestNet t(input("top: 'x' top: 's' input_param { shape { dim: 6 dim: 2 } shape { dim: 6 } }") +
                filter("bottom: 'x' bottom: 's'", "top: 'y'") +
                "\nlayer { name: 'cut' type: 'Slice' bottom: 'y' top: 'a' top: 'b' slice_param { "
                "axis: 0 } }",
            device());
  t.put_in("x", Numbers(12, 1));
  t.put_in("s", {1, 1, 1, 0, 0, 0});
  EXPECT_FAILS_WITH(
      "test.prototxt:3: layer 'cut' (Slice): axis 0 of the bottom's shape 3 2 (6) does not divide "
      "into 2 equal tops",
      t.net.forward());
  t.put_in("s", {1, 1, 1, 0, 0, 1});
  ASSERT_OK(t.net.forward());
  EXPECT_EQ(t.net.blob("b")->shape(), (Shape{2, 2}));
}

// A number whose square is too large; behind the filters alone are squares taken.
TEST(FilterNets, NameTheLayerThatMadeANumberNotFinite) {
  TestNet t(input(shapes_of(kItems)) + kStem + kFilters + kHead);
  Items items = draw_items(3);
  items.x[2 * kPixels] = 1e30f;
  t.put_in("x", items.x);
  t.put_in("label", items.label);
  t.put_in("t", Numbers(kItems, 1));
  t.put_in("s", {1, 1, 1, 0, 0, 0});
  t.pass();
  EXPECT_HAS(t.net.find_non_finite(), "layer 'far' (EuclideanLoss): top 'far' is not finite");
  EXPECT_EQ(t.net.blob("picked")->shape()[0], 3);
  t.put_in("s", {1, 1, 0, 0, 0, 0});
  t.pass();
  EXPECT_EQ(t.net.find_non_finite(), "");
}

TEST(FilterNets, KnowWhichLayersVary) {
  const LogLines log;
  TestNet t(input(shapes_of(kItems)) + kStem + kFilters + kHead + kAccuracy +
            "layer { name: 'errors' type: 'Power' bottom: 'accuracy' top: 'errors' power_param { "
            "scale: -1 shift: 1 } }");
  std::string varying;
  for (std::size_t i = 0; i < t.net.layers().size(); ++i)
    if (t.net.varies(static_cast<int>(i)) && t.net.layers()[i]->type() != "Split")
      varying += t.net.layers()[i]->name() + " ";
  EXPECT_EQ(varying,
            "first first_too second second_too conv relu norm scale relu2 pool lrn flat drop ip "
            "loss aside far prob "
            "accuracy ");
  std::string outputs, of_one_size;
  for (const Blob* output : t.net.outputs()) outputs += output->name + " ";
  for (const Blob* output : t.net.outputs_of_one_size()) of_one_size += output->name + " ";
  EXPECT_EQ(outputs, "errors far loss prob ");
  EXPECT_EQ(of_one_size, "errors far loss ");
  EXPECT_TRUE(
      log.has("output 'prob' varies in size from pass to pass, so its mean is not reported"));
}

}  // namespace
}  // namespace shoal::test::filter_test
