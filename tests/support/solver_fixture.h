// The fixture of tests of the solver on the small net.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "shoal/solver/solver.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/solver_rig.h"

namespace shoal::test {

class SolverTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_directory("solver");
    data_ = folder_ + "/data";
    make_digits(data_);
  }
  SolverParameter solver(const std::string& more, const std::string& prefix = "s") {
    return small_solver(data_, folder_ + "/" + prefix, more);
  }
  // Returns the error of a solver made of these fields, as one line.
  std::string refusal(const std::string& more) {
    return message_of([&] { Solver s(solver(more), with_name("x.prototxt")); });
  }
  std::string folder_, data_;
};

}  // namespace shoal::test
