// The layers that read and write HDF5 files: order, state, sharing, and errors with the list's
// line.
#include <filesystem>
#include <set>

#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_rig.h"
#include "support/devices.h"
#include "support/hdf5_files.h"
#include "support/solver_rig.h"

namespace shoal::test::hdf5_layers_test {
namespace {

using Dims = Hdf5File::Dims;
using Numbers = std::vector<float>;

TEST(Hdf5Absence, IsNamedByLayers) {
  if (why_no_hdf5().empty()) GTEST_SKIP() << "this build has HDF5";
  for (const std::string layer : {"type: 'HDF5Data' top: 'x' hdf5_data_param { source: 'l' }",
                                  "type: 'HDF5Output' hdf5_output_param { file_name: 'f' }"})
    EXPECT_HAS(trouble(layer), "this build has no HDF5: install the library (libhdf5-dev)");
}

// ---- HDF5Data ----

// Files of rows: the first of file f is 100 f, and row r of it is the numbers 100 f + r and minus
// that, with the label 100 f + r.
class Hdf5DataTest : public Hdf5Fixture {
 protected:
  std::string put_rows(int file, int rows) {
    Numbers data, label;
    for (int r = 0; r < rows; ++r) {
      const float x = static_cast<float>(100 * file + r);
      data.insert(data.end(), {x, -x});
      label.push_back(x);
    }
    return put(str("f", file), {{"data", {rows, 1, 2}, data}, {"label", {rows}, label}});
  }
  // A list of files with so many rows each.
  std::string put_list(const std::vector<int>& rows, const std::string& name = "list") {
    std::string text;
    for (std::size_t f = 0; f < rows.size(); ++f) {
      text += put_rows(static_cast<int>(f), rows[f]) + (f == 0 ? " \r\n\n" : "\n");
      for (int r = 0; r < rows[f]; ++r) all_.push_back(static_cast<float>(100 * f + r));
    }
    put_file(at(name), text);
    return at(name);
  }
  static std::string layer(const std::string& fields, const std::string& rest = "") {
    return "type: 'HDF5Data' top: 'data' top: 'label' hdf5_data_param { " + fields + " } " + rest;
  }
  // The labels of so many batches.
  static Numbers labels(DataRig& rig, int batches) {
    Numbers labels;
    for (int i = 0; i < batches; ++i) {
      EXPECT_EQ(rig.forward(), "");
      const Numbers batch = rig.labels();
      labels.insert(labels.end(), batch.begin(), batch.end());
    }
    return labels;
  }
  Numbers all_;  // labels of the list, in order
};

TEST_F(Hdf5DataTest, ReadsFileAfterFileRoundAndRound) {
  DataRig rig(layer("source: '" + put_list({3, 2}) + "' batch_size: 4"));
  EXPECT_EQ(rig.shape(0), (Shape{4, 1, 2}));
  EXPECT_EQ(rig.shape(1), (Shape{4}));
  for (std::size_t batch = 0; batch < 5; ++batch) {
    ASSERT_EQ(rig.forward(), "");
    for (std::size_t i = 0; i < 4; ++i) {
      const float x = all_[(4 * batch + i) % 5];
      EXPECT_EQ(rig.labels()[i], x);
      EXPECT_EQ(rig.data()[2 * i], x);
      EXPECT_EQ(rig.data()[2 * i + 1], -x);
    }
  }
  EXPECT_EQ(rig.layer().record_name(0), "row 1 of " + at("f0"));
  EXPECT_EQ(rig.layer().record_name(2), "row 0 of " + at("f1"));
  EXPECT_EQ(rig.layer().record_name(4), "");
  EXPECT_GT(rig.layer().seconds_waited(), 0);
}

TEST_F(Hdf5DataTest, OtherTypesBecomeFloats) {
  {
    Hdf5File file = or_throw(Hdf5File::open(at("i"), Hdf5File::Mode::kCreate, Code::kData));
    ASSERT_OK(file.put("data", {1}, Numbers{0.5}));
    ASSERT_OK(file.put_integer("label", 7));
    ASSERT_OK(file.close());
  }
  put_file(at("list"), at("i"));
  DataRig rig(layer("source: '" + at("list") + "' batch_size: 2"));
  ASSERT_EQ(rig.forward(), "");
  EXPECT_EQ(rig.data(), (Numbers{0.5, 0.5}));
  EXPECT_EQ(rig.labels(), (Numbers{7, 7}));
}

TEST_F(Hdf5DataTest, ShufflesFilesAndTheRowsOfEach) {
  const std::string shuffled =
      layer("source: '" + put_list({5, 4, 6, 3}) + "' batch_size: 18 shuffle: true");
  DataRig rig(shuffled, 7), same(shuffled, 7), other(shuffled, 8);
  std::set<Numbers> orders;
  std::set<std::vector<int>> file_orders;
  for (int epoch = 0; epoch < 6; ++epoch) {
    const Numbers order = labels(rig, 1);
    EXPECT_EQ(labels(same, 1), order);
    EXPECT_NE(labels(other, 1), order);
    EXPECT_EQ(std::multiset<float>(order.begin(), order.end()),
              std::multiset<float>(all_.begin(), all_.end()));
    std::vector<int> files;
    for (const float label : order) {
      const int file = static_cast<int>(label) / 100;
      if (files.empty() || files.back() != file) files.push_back(file);
    }
    EXPECT_EQ(files.size(), 4u) << "each file is read once an epoch";
    orders.insert(order);
    file_orders.insert(files);
  }
  EXPECT_EQ(orders.size(), 6u);
  EXPECT_GT(file_orders.size(), 1u);
}

TEST_F(Hdf5DataTest, NetsShareEveryEpoch) {
  const std::string shared = layer("source: '" + put_list({5, 4, 6, 3}) +
                                   "' batch_size: 3 shuffle: true shared_file_system: true");
  DataRig alone(shared, 7);
  const Numbers order = labels(alone, 12);
  for (int client = 0; client < 2; ++client) {
    DataRig rig(shared, 7, TRAIN, {.client = client, .clients = 2});
    const Numbers own = labels(rig, 6);
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_EQ(own[i], order[2 * i + static_cast<std::size_t>(client)]) << client << " " << i;
  }
}

TEST_F(Hdf5DataTest, ClientsReadListsOfTheirOwn) {
  const std::string source = put_list({5}, "list_1");
  const std::string mine = layer("source: '" + at("list") + "' batch_size: 5");
  DataRig rig(mine, 1, TRAIN, {.client = 1, .clients = 2});
  EXPECT_EQ(labels(rig, 1), all_);
  EXPECT_HAS(trouble(mine, Share{.client = 0, .clients = 2}),
             at("list_0") + ", the part of client 0 of 2, does not exist; divide the lines of " +
                 at("list") + " among lists of that name, or set shared_file_system: true");
}

TEST_F(Hdf5DataTest, RestoredAtAnyBatchGoesOnBitForBit) {
  const std::string source = "source: '" + put_list({5, 4, 6, 3}) + "' batch_size: 5";
  for (const std::string more : {"", " shuffle: true"}) {
    DataRig through(layer(source + more), 42);
    for (int n = 0; n < 8; ++n) {
      DataRig resumed(layer(source + more), 5);  // a seed that the state replaces
      ASSERT_OK(resumed.layer().load_state(through.layer().save_state()));
      DataRig before(layer(source + more), 42);
      labels(before, n);
      EXPECT_EQ(labels(resumed, 4), labels(before, 4)) << more << n;
      labels(through, 1);
    }
  }
  // Two nets go on where one had come to.
  DataRig one(layer(source + " shared_file_system: true"), 42);
  labels(one, 2);
  DataRig first(layer(source + " shared_file_system: true"), 42, TRAIN,
                {.client = 0, .clients = 2});
  ASSERT_OK(first.layer().load_state(one.layer().save_state()));
  EXPECT_EQ(labels(first, 1), (Numbers{all_[10], all_[12], all_[14], all_[16], all_[0]}));
  EXPECT_FAILS_WITH("the saved state has 3 bytes", first.layer().load_state("abc"));
}

TEST_F(Hdf5DataTest, ABatchLargerThanTheSetIsWarnedOf) {
  LogLines log;
  DataRig rig(layer("source: '" + put_list({2, 1}) + "' batch_size: 4"));
  EXPECT_EQ(labels(rig, 1), (Numbers{0, 1, 100, 0}));
  EXPECT_TRUE(log.has("layer 'd': a batch of 4 is larger than the set " + at("list") +
                      " of 3 rows: each batch holds some of them more than once"));
}

TEST_F(Hdf5DataTest, MistakesAreNamedWithTheListsLine) {
  const auto trouble_with = [&](const std::string& text, const std::string& rest = "") {
    put_file(at("list"), text);
    return trouble(layer("source: '" + at("list") + "' batch_size: 2", rest));
  };
  const std::string good = put_rows(0, 3), line = at("list") + ":2: ";
  EXPECT_EQ(trouble_with(good), "");
  EXPECT_HAS(trouble_with("\n \n"), "the list " + at("list") + " names no files");
  EXPECT_HAS(trouble_with(good + "\n" + at("none")), line + "cannot open " + at("none"));
  EXPECT_HAS(trouble_with(good + "\nf0"), "; there is one beside the list, " + at("f0") +
                                              ", but its names count from the current folder");
  EXPECT_HAS(trouble_with(good + "\n" + at("list")), "HDF5: file signature not found");
  EXPECT_HAS(trouble_with(good, "transform_param { scale: 2 }"),
             "transform_param does not apply to HDF5Data");
  EXPECT_HAS(trouble(layer("source: '" + good + "' batch_size: 2")),
             good + " is an HDF5 file; source is a text file that names such files");
  EXPECT_HAS(trouble(layer("source: '" + at("no") + "' batch_size: 2")), "cannot open " + at("no"));
  EXPECT_HAS(trouble(layer("source: 'x'")), "batch_size is 0; it must be from 1 to");
  EXPECT_HAS(trouble(layer("batch_size: 2")), "no source is given");
  const auto second = [&](const std::vector<NamedArray>& arrays) {
    return trouble_with(good + "\n" + put("second", arrays));
  };
  EXPECT_HAS(second({{"data", {3, 1, 2}, Numbers(6)}, {"labels", {3}, Numbers(3)}}),
             line + at("second") +
                 " has no dataset 'label', which a top is named after; it has data, labels");
  EXPECT_HAS(second({{"data", {3, 1, 2}, Numbers(6)}, {"label", {4}, Numbers(4)}}),
             line + at("second") + ": the dataset 'label' has 4 rows, and 'data' has 3");
  EXPECT_HAS(second({{"data", {3, 2, 1}, Numbers(6)}, {"label", {3}, Numbers(3)}}),
             line + at("second") + ": a row of the dataset 'data' has the shape 2 1 (2), but in " +
                 good + " (line 1) it has 1 2 (2)");
  EXPECT_HAS(second({{"data", {0, 1, 2}, {}}, {"label", {0}, {}}}),
             line + at("second") + ": the dataset 'data' has no rows");
  EXPECT_HAS(second({{"data", {}, {1}}, {"label", {1}, {1}}}),
             "the dataset 'data' is a single number; its first axis should be the rows");
}

TEST_F(Hdf5DataTest, AFileThatIsLostLaterEndsThePass) {
  DataRig rig(layer("source: '" + put_list({3, 2}) + "' batch_size: 3"));
  EXPECT_EQ(labels(rig, 1), (Numbers{0, 1, 2}));
  std::filesystem::remove(at("f1"));
  EXPECT_HAS(rig.forward(), at("list") + ":3: cannot open " + at("f1"));
}

// ---- HDF5Output ----

class Hdf5OutputTest : public Hdf5DataTest {
 protected:
  std::string net() {
    return "layers { name: 'd' type: HDF5_DATA top: 'data' top: 'label' hdf5_data_param { source: "
           "'" +
           put_list({3, 2}) +
           "' batch_size: 2 } } layers { name: 'o' type: HDF5_OUTPUT bottom: 'data' bottom: "
           "'label' hdf5_output_param { file_name: '" +
           at("out") + "' } }";
  }
};

TEST_F(Hdf5OutputTest, HoldsEveryBatch) {
  const std::string text = net();
  for (int run = 0; run < 2; ++run) {  // the second replaces the first's
    Context context({.threads = 1});
    Net made(parse_net(text, "v1.prototxt"), context);
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(made.forward());
      EXPECT_EQ(or_throw(open(at("out")).dims("data")), (Dims{2 * (i + 1), 1, 2}));
    }
  }
  EXPECT_EQ(numbers(at("out"), "label"), (Numbers{0, 1, 2, 100, 101, 0}));
  EXPECT_EQ(numbers(at("out"), "data"), (Numbers{0, 0, 1, -1, 2, -2, 100, -100, 101, -101, 0, 0}));
  // One layer reads what the other wrote.
  put_file(at("list2"), at("out"));
  DataRig rig(layer("source: '" + at("list2") + "' batch_size: 6"));
  EXPECT_EQ(labels(rig, 1), (Numbers{0, 1, 2, 100, 101, 0}));
}

TEST_F(Hdf5OutputTest, IsTheSameOnEveryDevice) {
  const std::string between =
      "layers { name: 'p' type: POWER bottom: 'data' top: 'twice' power_param { scale: 2 } }";
  std::string text = net();
  text.replace(text.find("bottom: 'data'"), 14, "bottom: 'twice'");
  text.insert(text.find("layers { name: 'o'"), between);
  for (const TestDevice& device : test_devices()) {
    Context context({.device = device.get(), .threads = 1});
    Net made(parse_net(text, "v1.prototxt"), context);
    for (int i = 0; i < 3; ++i) ASSERT_OK(made.forward());
    EXPECT_EQ(numbers(at("out"), "label"), (Numbers{0, 1, 2, 100, 101, 0})) << device.name;
    EXPECT_EQ(numbers(at("out"), "data"), (Numbers{0, 0, 2, -2, 4, -4, 200, -200, 202, -202, 0, 0}))
        << device.name;
  }
}

TEST_F(Hdf5OutputTest, EachNetOfAJobHasAFileOfItsOwn) {
  const NetParameter param = parse_net(net(), "v1.prototxt");
  NetParameter shared = param;
  shared.mutable_layer(0)->mutable_hdf5_data_param()->set_shared_file_system(true);
  Context context({.threads = 1, .share = {.client = 1, .clients = 2}});
  Net made(shared, context);
  ASSERT_OK(made.forward());
  EXPECT_EQ(numbers(at("out_1"), "label"), (Numbers{1, 100}));
  EXPECT_FALSE(std::filesystem::exists(at("out")));
}

TEST_F(Hdf5OutputTest, MistakesAreNamed) {
  const auto refusal = [&](const std::string& fields, const std::string& label_shape) {
    return message_of([&] {
      Context context({.threads = 1});
      Net made(parse_net("layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
                         "shape { dim: 2 dim: 3 } shape { " +
                             label_shape +
                             " } } } layer { name: 'o' type: 'HDF5Output' bottom: 'x' bottom: 'y' "
                             "hdf5_output_param { " +
                             fields + " } }",
                         "x"),
               context);
    });
  };
  EXPECT_HAS(refusal("", "dim: 2"), "layer 'o' (HDF5Output): hdf5_output_param gives no file_name");
  EXPECT_HAS(refusal("file_name: '" + at("no/x") + "'", "dim: 2"), "cannot create " + at("no/x"));
  EXPECT_HAS(refusal("file_name: '" + at("x") + "'", "dim: 3"),
             "its bottoms have the shapes 2 3 (6) and 3 (3); their first axes");
}

TEST_F(Hdf5OutputTest, AFileThatIsGoneEndsThePass) {
  Context context({.threads = 1});
  Net made(parse_net(net(), "v1.prototxt"), context);
  ASSERT_OK(made.forward());
  std::filesystem::remove(at("out"));
  EXPECT_FAILS_WITH("layer 'o' (HDF5Output): cannot open " + at("out"), made.forward());
}

}  // namespace
}  // namespace shoal::test::hdf5_layers_test
