// The ways in which the CPU may compute a net, compared with one another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/proto/net.pb.h"
#include "support/layer_rig.h"

namespace shoal::test {

struct Choice {
  const char* name;
  bool direct = false;
  Precision precision = Precision::kFloat32;
  bool is_short() const { return precision == Precision::kBfloat16; }
};
inline constexpr Choice kAuto{"AUTO"}, kDirect{"DIRECT", true},
    kShort{"BFLOAT16", false, Precision::kBfloat16};
inline constexpr Choice kChoices[] = {kAuto, kDirect, kShort};

// A net with its context, which draws the same numbers for each choice.
struct ChosenNet {
  ChosenNet(const NetParameter& param, const Choice& choice, int threads = 1,
            const NetOptions& options = {});
  Context context;
  Net net;
};

NetParameter net_of(const std::string& prototxt, Phase phase);
// The same net, whose convolutions are those of the plain kernels, with images in plain order.
NetParameter plain_net(NetParameter param);

// The result of one pass, by name: the loss, blobs, and params with their gradients.
using Results = std::vector<std::pair<std::string, Numbers>>;
// Runs forward, and backward in phase TRAIN. Returns blobs that no layer takes, or all.
Results run_pass(Net& net, bool all_blobs);

// Expects the same names and close numbers: no number farther off than `largest` times the largest
// of its tensor, and no tensor farther off than `rms` times its size, as roots of mean squares.
struct Tolerance {
  double largest, rms;
};
void expect_close(const Results& got, const Results& want, const Tolerance& tolerance);

// Returns whether this build's convolutions keep images in blocks of channels on this processor.
bool keeps_blocks();

}  // namespace shoal::test
