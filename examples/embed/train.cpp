// Trains a net as `train` does on one machine: a program of its own that links libshoal.a. README.md says how to build it.
// usage: train SOLVER.PROTOTXT
#include <iostream>

#include "shoal/base/error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/solver.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: train SOLVER.PROTOTXT\n";
    return 2;
  }
  try {
    shoal::Solver solver(shoal::read_solver(argv[1]));
    const shoal::Result<shoal::Ending> ending = solver.solve();
    if (ending.ok()) return 0;
    std::cerr << ending.error().message << '\n';
    return static_cast<int>(ending.error().code);
  } catch (const shoal::ConfigError& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.error().code);
  }
}
