// HDF5 files: arrays of numbers come back as they were, and errors say why.
#include "shoal/proto/hdf5.h"

#include <sys/stat.h>

#include "support/hdf5_files.h"

namespace shoal::test::hdf5_test {
namespace {

using Dims = Hdf5File::Dims;
using Numbers = std::vector<float>;

TEST(Hdf5Absence, IsNamed) {
  if (why_no_hdf5().empty()) GTEST_SKIP() << "this build has HDF5";
  EXPECT_FAILS_WITH("x: this build has no HDF5: install the library (libhdf5-dev)",
                    Hdf5File::open("x", Hdf5File::Mode::kCreate, Code::kData));
}

class Hdf5Arrays : public Hdf5Fixture {};

TEST_F(Hdf5Arrays, ComeBackAsTheyWere) {
  {
    Hdf5File file = or_throw(Hdf5File::open(at("a"), Hdf5File::Mode::kCreate, Code::kData));
    ASSERT_OK(file.put("data/conv1/1x1/0", {2, 3}, Numbers{1, 2, 3, 4, 5, 6}));
    ASSERT_OK(file.put("data/b", {}, Numbers{7.5}));
    ASSERT_OK(file.put_integer("iter", -3));
    ASSERT_OK(file.put_text("name", "a net/x"));
    ASSERT_OK(file.close());
  }
  const Hdf5File file = open(at("a"));
  EXPECT_EQ(or_throw(file.arrays("data")), (std::vector<std::string>{"b", "conv1/1x1/0"}));
  EXPECT_EQ(or_throw(file.arrays("none")), std::vector<std::string>());
  EXPECT_EQ(or_throw(file.dims("data/conv1/1x1/0")), (Dims{2, 3}));
  EXPECT_EQ(or_throw(file.dims("data/b")), Dims());
  EXPECT_EQ(numbers(at("a"), "data/conv1/1x1/0"), (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(or_throw(file.integer("iter")), -3);
  EXPECT_EQ(or_throw(file.text("name")), "a net/x");
  EXPECT_TRUE(file.has("data/conv1"));
  EXPECT_FALSE(file.has("data/conv2/1x1"));
}

TEST_F(Hdf5Arrays, EqualContentsAreEqualFiles) {
  const std::vector<NamedArray> arrays = {{"data/a/0", {2}, {1, 2}}, {"b", {1, 1}, {3}}};
  EXPECT_EQ(get_file(put("a", arrays)), get_file(put("b", arrays)));
}

TEST_F(Hdf5Arrays, GrowByRows) {
  put("a", {});
  for (int i = 0; i < 3; ++i) {
    Hdf5File file = or_throw(Hdf5File::open(at("a"), Hdf5File::Mode::kAppend, Code::kData));
    const float x = static_cast<float>(i);
    ASSERT_OK(file.append("rows", {2, 2}, Numbers{x, 1, 2, 3}));
    ASSERT_OK(file.close());
  }
  EXPECT_EQ(or_throw(open(at("a")).dims("rows")), (Dims{6, 2}));
  EXPECT_EQ(numbers(at("a"), "rows"), (Numbers{0, 1, 2, 3, 1, 1, 2, 3, 2, 1, 2, 3}));
  Hdf5File file = or_throw(Hdf5File::open(at("a"), Hdf5File::Mode::kAppend, Code::kData));
  EXPECT_FAILS_WITH("the rows of the dataset 'rows' have another shape",
                    file.append("rows", {1, 3}, Numbers{1, 2, 3}));
}

TEST_F(Hdf5Arrays, ErrorsSayTheInnermostReason) {
  const auto opened = [&](const std::string& path) {
    return Hdf5File::open(path, Hdf5File::Mode::kRead, Code::kData);
  };
  EXPECT_FAILS_WITH("cannot open " + at("none") + ": No such file", opened(at("none")));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);  // nothing waits for its other end
  EXPECT_FAILS_WITH(at("pipe") + " is a pipe", opened(at("pipe")));
  put_file(at("text"), "not one of these files");
  EXPECT_FAILS_WITH(
      "cannot open " + at("text") + " as an HDF5 file: HDF5: file signature not found",
      opened(at("text")));
  const std::string whole = get_file(put("a", {{"x", {300}, Numbers(300, 1)}}));
  put_file(at("cut"), whole.substr(0, whole.size() - 100));
  EXPECT_FAILS_WITH("HDF5: truncated file", opened(at("cut")));
  EXPECT_FAILS_WITH("cannot create " + at("no/x"),
                    Hdf5File::open(at("no/x"), Hdf5File::Mode::kCreate, Code::kData));
  Hdf5File file = or_throw(Hdf5File::open(at("a"), Hdf5File::Mode::kAppend, Code::kSnapshot));
  EXPECT_FAILS_WITH("cannot open the dataset 'y': HDF5: object 'y' doesn't exist", file.dims("y"));
  EXPECT_FAILS_WITH("cannot write the dataset 'x' of " + at("a") + ": HDF5: ",
                    file.put("x", {1}, Numbers{1}));
  ASSERT_OK(file.put_text("words", "x"));
  EXPECT_FAILS_WITH("the dataset 'words' holds text, not floats or integers", file.dims("words"));
  EXPECT_FAILS_WITH("the dataset 'x' is not a text", file.text("x"));
  EXPECT_FAILS_WITH("the dataset 'x' is not a single number", file.integer("x"));
  EXPECT_EQ(file.dims("y").error().code, Code::kSnapshot);
}

}  // namespace
}  // namespace shoal::test::hdf5_test
