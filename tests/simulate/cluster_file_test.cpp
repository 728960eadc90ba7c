// Tests descriptions of a simulated cluster that name files.
#include <gtest/gtest.h>

#include "shoal/simulate/cluster.h"
#include "support/data_files.h"

namespace shoal::test::cluster_file_test {
namespace {

TEST(ClusterFile, LayersTakeTheTimesThatTheToolPrints) {
  const std::string log = fresh_directory("cluster_file") + "/log";
  const std::string text = "worker { compute { layers: '" + log + "' } }";
  put_file(log,
           "I1124 10:00:00.000000  7 time.cpp:120] Average time per layer:\n"
           "I1124 10:00:00.000000  7 time.cpp:131]       conv1\tforward: 1.5 ms.\n"
           "I1124 10:00:00.000000  7 time.cpp:131]       conv1\tbackward: 2.25 ms.\n"
           "ip\tforward: 4 ms.\n"
           "Average Forward pass: 5.5 ms.\n");
  const simulate::Compute compute = simulate::parse_cluster(text, "c").processes.at(0).compute;
  ASSERT_EQ(compute.layers.size(), 2u);
  EXPECT_EQ(compute.layers[0].name, "conv1");
  EXPECT_DOUBLE_EQ(compute.layers[0].forward, 0.0015);
  EXPECT_DOUBLE_EQ(compute.layers[0].backward, 0.00225);
  EXPECT_EQ(compute.layers[1].name, "ip");
  EXPECT_DOUBLE_EQ(compute.layers[1].forward, 0.004);
  EXPECT_EQ(compute.layers[1].backward, 0);
  EXPECT_DOUBLE_EQ(compute.mean, 0.00775);
  put_file(log, "Average Forward pass: 5.5 ms.\n");
  EXPECT_HAS(message_of([&] { simulate::parse_cluster(text, "c"); }), "no line has a layer's time");
}

TEST(ClusterFile, ATraceHasANumberOnEachLine) {
  const std::string path = fresh_directory("cluster_trace") + "/trace";
  const std::string text = "worker { compute { speed: 2 trace: '" + path + "' } }";
  put_file(path, "# ms\n\n 10\r\n30.5\n");
  const simulate::Compute compute = simulate::parse_cluster(text, "c").processes.at(0).compute;
  EXPECT_EQ(compute.trace, (std::vector<double>{0.005, 0.01525}));
  for (const char* wrong : {"10,5", "10 ms", "x", "-1"}) {
    put_file(path, std::string("# ms\n\n10\n") + wrong + "\n");
    EXPECT_HAS(message_of([&] { simulate::parse_cluster(text, "c"); }),
               path + ":4: '" + wrong + "' is no number of milliseconds");
  }
}

}  // namespace
}  // namespace shoal::test::cluster_file_test
