// The fixture of tests that run the data tools in a folder of their own. Wants the variable
// TOOLS_DIR; skipped by name without it.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "shoal/proto/blob.pb.h"
#include "support/data_files.h"

namespace shoal::test {

class DataTools : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
  }
  static std::vector<std::string> command(std::vector<std::string> words) {
    words[0] = tools_dir() + "/" + words[0];
    return words;
  }
  Ran run(std::vector<std::string> words, std::uint64_t limit = 0) {
    return run_program(command(std::move(words)), limit);
  }
  Records records(const std::string& path, const std::string& backend = "lmdb") {
    return or_throw(read_all(*or_throw(open_source(backend, path))));
  }
  static Datum parse(const std::string& value) {
    Datum datum;
    EXPECT_TRUE(datum.ParseFromString(value));
    return datum;
  }
  std::vector<std::string> left() const {  // what a tool made here
    std::vector<std::string> names = entries(directory_);
    std::erase_if(names, [&](const std::string& name) { return given_.contains(name); });
    return names;
  }
  std::string give(const std::string& name, const std::string& bytes) {
    given_.insert(name);
    put_file(directory_ + "/" + name, bytes);
    return directory_ + "/" + name;
  }
  std::string directory_ = fresh_directory("tools");
  std::set<std::string> given_;
};

}  // namespace shoal::test
