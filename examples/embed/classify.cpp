// Classifies a blank image with a net: a program of its own that links libshoal.a. README.md says how to build it.
// usage: classify DEPLOY.PROTOTXT [WEIGHTS.CAFFEMODEL]
#include <algorithm>
#include <iostream>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: classify DEPLOY.PROTOTXT [WEIGHTS.CAFFEMODEL]\n";
    return 2;
  }
  try {
    shoal::Context context({.threads = 1});
    shoal::Net net(shoal::read_net(argv[1]), context);
    if (argc > 2) net.copy_weights(shoal::read_weights(argv[2]), argv[2]);
    std::ranges::fill(net.blob("data")->data.host_mut(), 0.5f);
    const shoal::Result<float> loss = net.forward();
    if (!loss.ok()) {
      std::cerr << loss.error().message << '\n';
      return 1;
    }
    for (const float score : net.outputs()[0]->data.host()) std::cout << score << '\n';
  } catch (const shoal::ConfigError& error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
}
