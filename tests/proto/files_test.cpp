// Models of every writer, and files that are not what they should be.
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "shoal/base/bytes.h"
#include "shoal/base/file.h"
#include "shoal/base/random.h"
#include "shoal/proto/hdf5.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/places.h"

namespace shoal::proto_files_test {
namespace {

namespace fs = std::filesystem;

// The words of the ConfigError that `run` throws, or "" if it throws none.
template <class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.error().code, Code::kConfig);
    return error.what();
  }
  return "";
}

class ProtoFiles : public testing::Test {
 protected:
  ProtoFiles() : folder_(fs::path(testing::TempDir()) / ("proto_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ProtoFiles() override { fs::remove_all(folder_); }
  std::string put(const std::string& name, const std::string& bytes) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

void set_blob(BlobProto& blob, std::initializer_list<int> dims,
              std::initializer_list<float> values) {
  for (const int dim : dims) blob.mutable_shape()->add_dim(dim);
  for (const float value : values) blob.add_data(value);
}

NetParameter small_model() {
  NetParameter net;
  net.set_name("small");
  LayerParameter& layer = *net.add_layer();
  layer.set_name("ip");
  layer.set_type("InnerProduct");
  layer.set_origin("small.prototxt:3");
  set_blob(*layer.add_blobs(), {2, 2}, {1, 2, 3, 4});
  set_blob(*layer.add_blobs(), {2}, {5, -6});
  return net;
}

SolverState small_state() {
  SolverState state;
  state.set_iter(7);
  state.set_learned_net("small_iter_7.caffemodel");
  set_blob(*state.add_history(), {2, 2}, {0, 1, 0, 1});
  return state;
}

// A fork's fields have numbers that mean others here: some of these look like params of other
// layers, and one can be no message at all.
TEST_F(ProtoFiles, ParamsOfForksWithCollidingNumbersArePassedOver) {
  NetParameter net;
  net.set_name("forked");
  for (const char* name : {"center", "conv"}) {
    LayerParameter& layer = *net.add_layer();
    layer.set_name(name);
    layer.set_type(name == std::string("conv") ? "Convolution" : "CenterLoss");
    set_blob(*layer.add_blobs(), {2}, {1.5f, -2});
    auto& unknown = *layer.GetReflection()->MutableUnknownFields(&layer);
    google::protobuf::UnknownFieldSet param;
    param.AddVarint(1, 10);            // num_output of center_loss_param; beta of swish_param
    param.AddFixed32(2, 0x3f800000u);  // max of clip_param, which has no min
    std::string bytes;
    ASSERT_TRUE(param.SerializeToString(&bytes));
    for (const int number : {147, 148, 200, 201, 8266711})
      unknown.AddLengthDelimited(number, bytes);
    google::protobuf::UnknownFieldSet text;
    text.AddLengthDelimited(1, "\xff\xff\xff");  // shape of input_param, and no shape
    ASSERT_TRUE(text.SerializeToString(&bytes));
    if (name == std::string("conv")) unknown.AddLengthDelimited(143, bytes);
  }
  const NetParameter read = read_weights(put("fork.caffemodel", net.SerializeAsString()));
  EXPECT_EQ(read.name(), "forked");
  ASSERT_EQ(read.layer_size(), 2);
  for (const LayerParameter& layer : read.layer()) {
    ASSERT_EQ(layer.blobs_size(), 1);
    EXPECT_EQ(layer.blobs(0).data(1), -2);
    EXPECT_FALSE(layer.has_clip_param());
    EXPECT_FALSE(layer.has_swish_param());
    EXPECT_TRUE(layer.IsInitialized());  // so that it can be written
  }
  EXPECT_EQ(read.layer(0).type(), "CenterLoss");
  EXPECT_EQ(read.layer(1).name(), "conv");
  // A model that is cut short is damaged, whoever wrote it.
  const std::string whole = net.SerializeAsString();
  EXPECT_NE(error_of([&] {
              read_weights(put("cut", whole.substr(0, whole.size() - 5)));
            }).find("is damaged"),
            std::string::npos);
}

TEST_F(ProtoFiles, TextFilesOfAnotherKindAreSaidToBeThat) {
  const std::string net = put("net.prototxt", "layer { name: 'a' type: 'ReLU' }");
  const std::string solver = put("solver.prototxt", "net: 'x'\nbase_lr: 0.1\n");
  EXPECT_EQ(error_of([&] { read_net(solver); }),
            solver +
                " is a solver in text form (.prototxt), not a net in text form (.prototxt); "
                "the net is the file that its field net names");
  EXPECT_EQ(error_of([&] { read_solver(net); }),
            net +
                " is a net in text form (.prototxt), not a solver in text form (.prototxt); "
                "a solver names its net in its field net");
  EXPECT_NE(error_of([&] {
              read_net(path("none"));
            }).find("cannot open " + path("none") + ": No such file"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { read_net(folder_.string()); }), folder_.string() + " is a folder");
  EXPECT_EQ(error_of([&] { read_net(put("empty", "")); }), path("empty") + " is empty");
  EXPECT_EQ(error_of([&] { read_net(put("name", "name: 'x'")); }),
            path("name") + ": the net has no layer");
  ASSERT_TRUE(write_binary(small_model(), path("m.caffemodel")).ok());
  EXPECT_EQ(error_of([&] { read_net(path("m.caffemodel")); }),
            path("m.caffemodel") + " is a model (.caffemodel), not a net in text form (.prototxt)");
}

TEST_F(ProtoFiles, WhatIsWrittenIsReadButTheOrigin) {
  const NetParameter net = small_model();
  ASSERT_TRUE(write_binary(net, path("m.caffemodel")).ok());
  ASSERT_TRUE(write_text(net, path("m.prototxt")).ok());
  NetParameter want = net;
  clear_origins(want);
  EXPECT_FALSE(want.layer(0).has_origin());
  EXPECT_EQ(read_weights(path("m.caffemodel")).SerializeAsString(), want.SerializeAsString());
  EXPECT_EQ(or_throw(read_file(path("m.prototxt"))).find("origin"), std::string::npos);
  NetParameter again = read_net(path("m.prototxt"));
  EXPECT_EQ(again.layer(0).origin(), path("m.prototxt") + ":2");
  clear_origins(again);
  EXPECT_EQ(again.SerializeAsString(), want.SerializeAsString());
  ASSERT_TRUE(write_binary(small_state(), path("m.solverstate")).ok());
  EXPECT_EQ(read_solver_state(path("m.solverstate")).SerializeAsString(),
            small_state().SerializeAsString());
  ASSERT_TRUE(write_binary(net.layer(0).blobs(0), path("mean")).ok());
  EXPECT_EQ(read_blob_proto(path("mean")).SerializeAsString(),
            net.layer(0).blobs(0).SerializeAsString());
  EXPECT_FALSE(write_binary(net, path("no/such/folder")).ok());
}

TEST_F(ProtoFiles, RunStatesComeBack) {
  RunState state;
  state.set_version(1);
  state.set_iteration(20);
  state.add_net()->mutable_random()->set_position(5);
  state.add_net()->add_layer()->set_state(std::string("\0\1", 2));
  ASSERT_TRUE(write_binary(state, path("x.run")).ok());
  EXPECT_EQ(read_run_state(path("x.run")).SerializeAsString(), state.SerializeAsString());
  EXPECT_EQ(error_of([&] { read_solver_state(path("x.run")); }),
            path("x.run") + " is the state of a run (.run), not a solver state (.solverstate)");
}

TEST_F(ProtoFiles, FilesOfAnotherKindAreNamedWithTheFlagTheyBelongTo) {
  ASSERT_TRUE(write_binary(small_model(), path("m")).ok());
  ASSERT_TRUE(write_binary(small_state(), path("s")).ok());
  ASSERT_TRUE(write_binary(small_model().layer(0).blobs(0), path("b")).ok());
  const std::string h5 = put("h", "\x89HDF\r\n\x1a\nand more"),
                    text = put("t", "layer { name: 'a' }");
  EXPECT_EQ(
      error_of([&] { read_weights(path("s")); }),
      path("s") +
          " is a solver state (.solverstate), not a model (.caffemodel); give it to --snapshot");
  EXPECT_EQ(
      error_of([&] { read_solver_state(path("m")); }),
      path("m") +
          " is a model (.caffemodel), not a solver state (.solverstate); give it to --weights");
  EXPECT_EQ(error_of([&] { read_weights(path("b")); }),
            path("b") + " is a single blob, such as a mean file, not a model (.caffemodel)");
  EXPECT_NE(error_of([&] { read_weights(h5); })
                .find(why_no_hdf5().empty() ? "cannot open " + h5 + " as an HDF5 file: HDF5: "
                                            : h5 + ": this build has no HDF5"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] {
        read_weights(text);
      }).find("is a net in text form (.prototxt), not a model (.caffemodel); give it to --model"),
      std::string::npos);
  EXPECT_NE(error_of([&] { read_weights(put("e", "")); }).find("is an empty file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_weights(path("none")); }).find("cannot open"), std::string::npos);
  fs::resize_file(put("large", "x"), 3ull << 30);  // sparse
  EXPECT_NE(error_of([&] {
              read_weights(path("large"));
            }).find("holds 3221225472 bytes; protobuf reads less than 2 GiB"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { read_weights(folder_.string()); }),
            folder_.string() + " is a folder, and a regular file is needed");
}

TEST_F(ProtoFiles, EveryTruncationOfAModelOrAStateIsAnError) {
  NetParameter net = small_model();
  clear_origins(net);
  const std::string model = net.SerializeAsString(), state = small_state().SerializeAsString();
  // A net with a name and no layer is whole.
  const std::size_t name_only = 2 + net.name().size();
  for (std::size_t size = 0; size < model.size(); ++size) {
    if (size == name_only) continue;
    EXPECT_NE(error_of([&] { read_weights(put("cut", model.substr(0, size))); }), "")
        << size << " of " << model.size();
  }
  EXPECT_NE(error_of([&] {
              read_weights(put("cut", model.substr(0, model.size() - 3)));
            }).find("cut short?"),
            std::string::npos);
  for (const std::size_t size : {1u, 5u, 40u})
    EXPECT_NE(
        error_of([&] { read_solver_state(put("cut", state.substr(0, state.size() - size))); }), "")
        << size;
  EXPECT_NE(error_of([&] {
              read_weights(put("noise", std::string(300, '\xee')));
            }).find("is not a model"),
            std::string::npos);
}

TEST_F(ProtoFiles, DamagedModelsAreReadOrRefused) {
  NetParameter net = small_model();
  clear_origins(net);
  const std::string whole = net.SerializeAsString();
  Random random(13);
  for (int trial = 0; trial < 1000; ++trial) {
    std::string bytes = whole;
    for (int i = 0; i < 2; ++i)
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(128));
    const std::string words = error_of([&] { read_weights(put("damaged", bytes)); });
    EXPECT_TRUE(words.empty() || words.find("damaged") != std::string::npos) << words;
  }
}

TEST_F(ProtoFiles, BlobsThatDoNotAddUpAreDamage) {
  NetParameter net = small_model();
  net.mutable_layer(0)->mutable_blobs(0)->add_data(9);
  ASSERT_TRUE(write_binary(net, path("m")).ok());
  EXPECT_EQ(error_of([&] { read_weights(path("m")); }),
            path("m") +
                ": layer 'ip' (InnerProduct): blob 0: the shape 2 x 2 wants 4 values, but there "
                "are 5; the file is damaged");
  net = small_model();
  net.mutable_layer(0)->mutable_blobs(1)->mutable_shape()->set_dim(0, -2);
  ASSERT_TRUE(write_binary(net, path("m")).ok());
  EXPECT_NE(error_of([&] {
              read_weights(path("m"));
            }).find("blob 1: the shape -2 is negative or too large"),
            std::string::npos);
}

TEST_F(ProtoFiles, DoublesAreReadAsFloats) {
  NetParameter net = small_model();
  BlobProto& blob = *net.mutable_layer(0)->mutable_blobs(1);
  blob.clear_data();
  blob.add_double_data(0.5);
  blob.add_double_data(-1e-3);
  ASSERT_TRUE(write_binary(net, path("m")).ok());
  const BlobProto read = read_weights(path("m")).layer(0).blobs(1);
  ASSERT_EQ(read.data_size(), 2);
  EXPECT_EQ(read.data(0), 0.5f);
  EXPECT_EQ(read.data(1), -1e-3f);
  EXPECT_EQ(read.double_data_size(), 0);
}

// The value of `read_weights` for a blob of two values in NVIDIA's form.
BlobProto read_raw(const std::string& path, int type, const std::string& bytes) {
  NetParameter net = small_model();
  BlobProto& blob = *net.mutable_layer(0)->mutable_blobs(1);
  blob.clear_data();
  blob.mutable_unknown_fields()->AddVarint(10, static_cast<std::uint64_t>(type));
  blob.mutable_unknown_fields()->AddLengthDelimited(12, bytes);
  EXPECT_TRUE(write_binary(net, path).ok());
  return read_weights(path).layer(0).blobs(1);
}

TEST_F(ProtoFiles, RawDataOfNvidiaIsRead) {
  std::string halves, floats, doubles;
  put_le<std::uint16_t>(halves, 0x3c00);  // 1
  put_le<std::uint16_t>(halves, 0x8001);  // the smallest negative one, -2^-24
  for (const float v : {1.5f, -2.25f}) put_le(floats, std::bit_cast<std::uint32_t>(v));
  for (const double v : {0.1, -7.0}) put_le(doubles, std::bit_cast<std::uint64_t>(v));
  EXPECT_EQ(read_raw(path("m"), 2, halves).data(0), 1.0f);
  EXPECT_EQ(read_raw(path("m"), 2, halves).data(1), -std::ldexp(1.0f, -24));
  EXPECT_EQ(read_raw(path("m"), 1, floats).data(1), -2.25f);
  EXPECT_EQ(read_raw(path("m"), 0, doubles).data(0), 0.1f);
  EXPECT_NE(error_of([&] { read_raw(path("m"), 3, floats); }).find("whole numbers"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { read_raw(path("m"), 1, halves); }).find("wants 2 values, but there are 1"),
      std::string::npos);
}

TEST_F(ProtoFiles, ModelsOfPoseidonAreRecognised) {
  NetParameter net;
  V1LayerParameter& data = *net.add_layers();
  data.set_name("data");
  data.set_type(V1LayerParameter::DATA);
  // Sets field 9, which is shared_file_system there.
  data.mutable_data_param()->set_force_encoded_color(true);
  V1LayerParameter& images = *net.add_layers();
  images.set_type(V1LayerParameter::IMAGE_DATA);
  images.mutable_image_data_param()->set_is_color(false);  // field 11, likewise
  V1LayerParameter& ip = *net.add_layers();
  ip.set_name("ip");
  ip.set_type(V1LayerParameter::INNER_PRODUCT);
  BlobProto& blob = *ip.add_blobs();
  blob.set_num(1), blob.set_channels(1), blob.set_height(1), blob.set_width(2);
  blob.add_data(3), blob.add_data(4);
  ASSERT_TRUE(write_binary(net, path("old")).ok());
  EXPECT_TRUE(read_weights(path("old")).layer(0).data_param().force_encoded_color());
  blob.mutable_unknown_fields()->AddVarint(7, 1);
  blob.mutable_unknown_fields()->AddVarint(8, 12);
  ASSERT_TRUE(write_binary(net, path("poseidon")).ok());
  const NetParameter read = read_weights(path("poseidon"));
  EXPECT_FALSE(read.layer(0).data_param().force_encoded_color());
  EXPECT_TRUE(read.layer(0).data_param().shared_file_system());
  EXPECT_TRUE(read.layer(1).image_data_param().is_color());
  EXPECT_FALSE(read.layer(1).image_data_param().shared_file_system());
  EXPECT_EQ(blob_dims(read.layer(2).blobs(0)), (std::vector<std::int64_t>{1, 1, 1, 2}));
  EXPECT_EQ(read.layer(2).blobs(0).data(1), 4);
}

TEST_F(ProtoFiles, AModelOfCaffeComesOutAsItWas) {
  const auto shared = test::shared_folder();
  if (!shared) GTEST_SKIP() << "no shared folder";
  const std::string lenet = (*shared / "golden/lenet/init.caffemodel").string();
  const NetParameter net = read_weights(lenet);
  const auto conv = std::find_if(net.layer().begin(), net.layer().end(),
                                 [](const auto& layer) { return layer.name() == "conv2"; });
  ASSERT_NE(conv, net.layer().end());
  EXPECT_EQ(conv->type(), "Convolution");
  EXPECT_EQ(blob_dims(conv->blobs(0)), (std::vector<std::int64_t>{50, 20, 5, 5}));
  EXPECT_EQ(conv->blobs(0).data_size(), 25000);
  ASSERT_TRUE(write_binary(net, path("again")).ok());
  EXPECT_TRUE(or_throw(read_file(path("again"))) == or_throw(read_file(lenet)))
      << "not byte for byte";
}

}  // namespace
}  // namespace shoal::proto_files_test
