// Training under each choice of how the CPU computes: the same bits each time, and snapshots that
// go on under another choice.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/solver_fixture.h"

namespace shoal::test::choices_train_test {
namespace {

constexpr const char* kFields[] = {"convolution: AUTO", "convolution: DIRECT",
                                   "precision: BFLOAT16",
                                   "precision: BFLOAT16 convolution: DIRECT"};

class ChoicesTrain : public SolverTest {
 protected:
  // The small net with convolutions that fill blocks of channels.
  SolverParameter wide_solver(const std::string& fields, const std::string& prefix) {
    SolverParameter param = solver(fields, prefix);
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
    net = wide;
    return param;
  }
};

struct Trace {
  std::vector<float> losses, params;
  bool operator==(const Trace&) const = default;
};

Trace run(Solver& solver, int iterations) {
  Trace trace;
  for (int i = 0; i < iterations; ++i) {
    or_throw(solver.step(1));
    trace.losses.push_back(solver.last_loss());
  }
  trace.params = all_params(solver.net());
  return trace;
}

TEST_F(ChoicesTrain, TheSameChoiceMakesTheSameBits) {
  for (const char* fields : kFields)
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(str(fields, ", threads ", threads));
      Solver first(wide_solver(fields, "first"), with_name("first", threads)),
          second(wide_solver(fields, "second"), with_name("second", threads));
      const Trace trace = run(first, 5);
      EXPECT_EQ(run(second, 5), trace);
      EXPECT_NE(trace.losses[0], trace.losses[4]);
    }
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(double{a[i]} - double{b[i]}, 2);
    all += double{b[i]} * double{b[i]};
  }
  return std::sqrt(error / all);
}

TEST_F(ChoicesTrain, ASnapshotGoesOnUnderEachChoice) {
  for (const char* wrote : kFields) {
    Solver writer(wide_solver(wrote, "s"), with_name("s"));
    const Trace before = run(writer, 3);
    ASSERT_OK(writer.snapshot());
    const Trace after = run(writer, 3);
    for (const char* reads : kFields) {
      SCOPED_TRACE(str("from ", wrote, " to ", reads));
      Solver reader(wide_solver(reads, "s"), with_name("s"));
      reader.restore(folder_ + "/s_iter_3.solverstate");
      EXPECT_EQ(reader.iteration(), 3);
      EXPECT_EQ(all_params(reader.net()), before.params);
      const Trace then = run(reader, 3);
      const bool is_short = std::string(wrote).find("BFLOAT16") != std::string::npos ||
                            std::string(reads).find("BFLOAT16") != std::string::npos;
      if (wrote == reads) {
        EXPECT_EQ(then, after);
      }
      EXPECT_LE(distance(then.losses, after.losses), is_short ? 0.02 : 1e-5);
      EXPECT_LE(distance(then.params, after.params), is_short ? 0.02 : 1e-5);
    }
  }
}

}  // namespace
}  // namespace shoal::test::choices_train_test
