// Tests training under each choice of how the CPU computes: the same bits each time, and snapshots
// that go on under another choice.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/solver_fixture.h"

namespace shoal::test::choices_train_test {
namespace {

// The solver's fields; plain: the net's convolutions are those of the plain kernels.
struct Way {
  std::string fields;
  bool plain = false;
  bool is_short() const { return fields.find("BFLOAT16") != std::string::npos; }
};
const Way kWays[] = {{"convolution: AUTO"},
                     {"convolution: DIRECT"},
                     {"convolution: AUTO", true},
                     {"precision: BFLOAT16"},
                     {"precision: BFLOAT16 convolution: DIRECT"}};
std::string name_of(const Way& way) { return way.fields + (way.plain ? ", plain" : ""); }

class ChoicesTrain : public SolverTest {
 protected:
  // Returns the small net with convolutions that fill blocks of channels.
  SolverParameter wide_solver(const Way& way, const std::string& prefix) {
    SolverParameter param =
        solver(way.fields + " test_iter: 2 test_interval: 100 test_initialization: false", prefix);
    NetParameter& net = *param.mutable_net_param();
    for (LayerParameter& layer : *net.mutable_layer()) {
      if (layer.type() != "Convolution") continue;
      layer.mutable_convolution_param()->set_num_output(16);
      layer.mutable_convolution_param()->set_kernel_size(0, 3);
      layer.mutable_convolution_param()->add_pad(1);
    }
    NetParameter wide;
    for (const LayerParameter& layer : net.layer()) {
      *wide.add_layer() = layer;
      if (layer.name() != "norm") continue;
      *wide.add_layer() =
          parse_net("layer { name: 'relu' type: 'ReLU' bottom: 'norm' top: 'norm' }", "relu")
              .layer(0);
      LayerParameter& again = *wide.add_layer();
      again = wide.layer(wide.layer_size() - 4);
      again.set_name("conv2");
      again.set_bottom(0, "norm");
      again.set_top(0, "conv2");
    }
    for (LayerParameter& layer : *wide.mutable_layer())
      if (layer.name() == "drop") layer.set_bottom(0, "conv2");
    for (LayerParameter& layer : *wide.mutable_layer())
      if (way.plain && layer.type() == "Convolution") layer.set_engine("caffe");
    net = wide;
    return param;
  }
};

struct Trace {
  std::vector<float> losses, params;
  std::vector<double> scores;  // of a test before and one after
  bool operator==(const Trace&) const = default;
};

Trace run(Solver& solver, int iterations) {
  Trace trace;
  const auto test = [&] {
    for (const TestScore& score : or_throw(solver.test(0))) trace.scores.push_back(score.mean);
  };
  test();
  for (int i = 0; i < iterations; ++i) {
    or_throw(solver.step(1));
    trace.losses.push_back(solver.last_loss());
  }
  test();
  trace.params = all_params(solver.net());
  return trace;
}

TEST_F(ChoicesTrain, TheSameChoiceMakesTheSameBits) {
  for (const Way& way : kWays)
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(str(name_of(way), ", threads ", threads));
      Solver first(wide_solver(way, "first"), with_name("first", threads)),
          second(wide_solver(way, "second"), with_name("second", threads));
      const Trace trace = run(first, 5);
      EXPECT_EQ(run(second, 5), trace);
      EXPECT_NE(trace.losses[0], trace.losses[4]);
    }
}

template <class Numbers>
double distance(const Numbers& a, const Numbers& b) {
  double error = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    all += double{b[i]} * double{b[i]};
  }
  return std::sqrt(error / all);
}

TEST_F(ChoicesTrain, ASnapshotGoesOnUnderEachChoice) {
  for (const Way& wrote : kWays) {
    Solver writer(wide_solver(wrote, "s"), with_name("s"));
    const Trace before = run(writer, 3);
    ASSERT_OK(writer.snapshot());
    const Trace after = run(writer, 3);
    for (const Way& reads : kWays) {
      SCOPED_TRACE(str("from ", name_of(wrote), " to ", name_of(reads)));
      Solver reader(wide_solver(reads, "s"), with_name("s"));
      reader.restore(folder_ + "/s_iter_3.solverstate");
      EXPECT_EQ(reader.iteration(), 3);
      EXPECT_EQ(all_params(reader.net()), before.params);
      const Trace then = run(reader, 3);
      const bool is_short = wrote.is_short() || reads.is_short();
      if (&wrote == &reads) {
        EXPECT_EQ(then, after);
      }
      EXPECT_LE(distance(then.losses, after.losses), is_short ? 0.02 : 1e-5);
      if (!is_short) {
        EXPECT_LE(distance(then.scores, after.scores), 1e-5);
      }
      EXPECT_LE(distance(then.params, after.params), is_short ? 0.02 : 1e-5);
    }
  }
}

}  // namespace
}  // namespace shoal::test::choices_train_test
