// HDF5 files of tests, in folders of their own; the tests are skipped by a build without HDF5.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shoal/proto/hdf5.h"
#include "support/data_files.h"
#include "support/expect.h"

namespace shoal::test {

struct NamedArray {
  std::string name;
  Hdf5File::Dims dims;
  std::vector<float> numbers;
};

class Hdf5Fixture : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_hdf5().empty()) GTEST_SKIP() << why_no_hdf5();
  }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  // Returns the path.
  std::string put(const std::string& name, const std::vector<NamedArray>& arrays) const {
    Hdf5File file = or_throw(Hdf5File::open(at(name), Hdf5File::Mode::kCreate, Code::kData));
    for (const NamedArray& array : arrays)
      or_throw(file.put(array.name, array.dims, array.numbers));
    or_throw(file.close());
    return at(name);
  }
  static Hdf5File open(const std::string& path) {
    return or_throw(Hdf5File::open(path, Hdf5File::Mode::kRead, Code::kData));
  }
  static std::vector<float> numbers(const std::string& path, const std::string& name) {
    const Hdf5File file = open(path);
    std::size_t count = 1;
    for (const std::int64_t dim : or_throw(file.dims(name))) count *= static_cast<std::size_t>(dim);
    std::vector<float> numbers(count);
    or_throw(file.read(name, numbers));
    return numbers;
  }
  std::string folder_ = fresh_directory("hdf5");
};

}  // namespace shoal::test
