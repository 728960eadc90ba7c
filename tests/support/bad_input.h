// A mistake of a user's and what he is told: cases for the built tools, run as processes.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal::test {

using Words = std::vector<std::string>;

// In files, command and words '@' stands for the case's own folder and '~' for one of good files:
//   set, lmdb, leveldb   16 records of 1 x 2 x 2, labels 0 to 9, keys 00000 ...
//   a.png b.png wide.png junk.png   two of 1 x 2 x 2, one of 1 x 2 x 3, and no picture
//   model.caffemodel state.solverstate   of a layer 'ip' with params of 3 x 4 and 3
//   net.prototxt solver.prototxt
struct Case {
  std::string name;
  std::vector<std::pair<std::string, std::string>> files;  // names and contents
  Words command;                                           // the first word is the tool
  int code;
  Words words;  // parts of stderr
};
void PrintTo(const Case& c, std::ostream* out);
std::string name_of(const testing::TestParamInfo<Case>& info);

// Runs the case. Besides what that says there must be no signal, no stack trace, and, if the tool
// failed, no new file.
class BadInput : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override;
  void TearDown() override;
  void run(const Case& c);

 private:
  std::string there(std::string text) const;
  std::string folder_;
};

}  // namespace shoal::test
