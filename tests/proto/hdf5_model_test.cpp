// Models and snapshots in HDF5 files: BVLC Caffe's are read, and ours are laid out alike.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shoal/base/file.h"
#include "shoal/base/sha256.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"
#include "shoal/tensor/context.h"
#include "support/hdf5_files.h"
#include "support/places.h"
#include "support/solver_rig.h"

namespace shoal::test::hdf5_model_test {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<float>;
constexpr SnapshotFormat kHdf5 = SnapshotFormat::kHdf5;

// Files that h5py made, in the way in which BVLC Caffe 1.0 makes them: a group for each layer, a
// shared param at its owner alone, ip2 in double precision.
std::string golden(const std::string& ending) {
  return (repository_root() / "tests/golden/hdf5/bvlc_iter_7").string() + ending;
}

// Numbers that rise by a quarter.
Numbers rising(std::size_t count, float start) {
  Numbers numbers;
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(start + 0.25f * static_cast<float>(i));
  return numbers;
}

// Two layers that share their weights if `shared`, and a third.
std::string twins(bool shared) {
  const std::string param = shared ? "param { name: 'w' }" : "";
  const auto ip = [&](const std::string& name, const std::string& bottom, int outputs,
                      const std::string& more) {
    return str("layer { name: '", name, "' type: 'InnerProduct' bottom: '", bottom, "' top: '",
               name, "' ", more, " inner_product_param { num_output: ", outputs, " } }\n");
  };
  return "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 1 "
         "dim: "
         "3 } } }\n" +
         ip("ip1", "data", 2, param) + ip("twin", "data", 2, param) + ip("ip2", "ip1", 1, "");
}

Numbers param_of(const Net& net, const std::string& name, std::size_t index) {
  for (const auto& layer : net.layers())
    if (layer->name() == name) {
      const auto host = layer->params()[index]->data.host();
      return {host.begin(), host.end()};
    }
  return {};
}

class Hdf5Model : public Hdf5Fixture {
 protected:
  Status write(const NetParameter& model, const std::string& path) const {
    AtomicFile file = or_throw(AtomicFile::create(path, Code::kSnapshot));
    if (Status status = write_hdf5(model, file); !status.ok()) return status;
    return file.commit();
  }
  static std::string why_no_weights(const std::string& path) {
    return message_of([&] { read_weights(path); });
  }
  static std::string why_no_state(const std::string& path) {
    return message_of([&] { read_solver_state(path); });
  }
};

TEST_F(Hdf5Model, OfBvlcFitsANetThatSharesParams) {
  Context context({.threads = 1});
  Net net(parse_net(twins(true), "x"), context);
  const NetParameter model = read_weights(golden(".caffemodel.h5"));
  EXPECT_EQ(net.copy_weights(model, "m"), std::vector<std::string>());
  EXPECT_EQ(param_of(net, "ip1", 0), rising(6, 1));
  EXPECT_EQ(param_of(net, "ip1", 1), rising(2, -1));
  EXPECT_EQ(param_of(net, "twin", 0), rising(6, 1));
  EXPECT_EQ(param_of(net, "twin", 1), rising(2, 5));
  EXPECT_EQ(param_of(net, "ip2", 0), rising(2, 0.125));
  EXPECT_EQ(param_of(net, "ip2", 1), rising(1, 9));
}

TEST_F(Hdf5Model, LacksAParamThatTheNetDoesNotShare) {
  Context context({.threads = 1});
  Net net(parse_net(twins(false), "x"), context);
  EXPECT_HAS(message_of([&] { net.copy_weights(read_weights(golden(".caffemodel.h5")), "m"); }),
             "layer 'twin' (InnerProduct): has 2 params, but layer 'twin' in m holds");
}

TEST_F(Hdf5Model, ComesBackWithNamesThatHaveSlashes) {
  Context context({.threads = 1, .seed = 3});
  std::string text = twins(true);
  text.replace(text.find("name: 'ip2'"), 11, "name: 'a/b/ip2'");
  Net net(parse_net(text, "x"), context);
  ASSERT_OK(write(net.to_proto(true), at("m.caffemodel.h5")));
  const Hdf5File file = open(at("m.caffemodel.h5"));
  EXPECT_TRUE(file.has("diff/a/b/ip2/1"));
  const NetParameter model = read_weights(at("m.caffemodel.h5"));
  ASSERT_EQ(model.layer_size(), 3);
  Context other({.threads = 1, .seed = 4});
  Net copy(parse_net(text, "x"), other);
  copy.copy_weights(model, "m");
  EXPECT_EQ(all_params(copy), all_params(net));
}

TEST_F(Hdf5Model, MistakesAreNamed) {
  EXPECT_HAS(why_no_weights(golden(".solverstate.h5")),
             "is an HDF5 file, but no model: it has no group 'data'; it is a solver state: give it "
             "to --snapshot");
  EXPECT_HAS(why_no_state(golden(".caffemodel.h5")),
             "is an HDF5 file, but no solver state: it has no dataset 'iter'; a model is given to "
             "--weights");
  EXPECT_HAS(why_no_weights(put("set", {{"data", {2, 1}, {1, 2}}, {"label", {2}, {1, 2}}})),
             "no model: its 'data' is an array, as in a file that HDF5Data reads");
  EXPECT_HAS(why_no_weights(put("flat", {{"data/0", {1}, {1}}})),
             "the dataset 'data/0' belongs to no layer");
  EXPECT_HAS(why_no_weights(put("named", {{"data/ip/weights", {1}, {1}}})),
             "the dataset 'data/ip/weights' should be named by its number, 0, 1, 2 ...");
  const std::string whole = get_file(golden(".caffemodel.h5"));
  put_file(at("cut"), whole.substr(0, whole.size() / 2));
  EXPECT_HAS(why_no_weights(at("cut")), "cut as an HDF5 file: HDF5: truncated file");
  EXPECT_HAS(message_of([&] { read_blob_proto(golden(".caffemodel.h5")); }),
             "is an HDF5 file, not a single blob");
}

TEST_F(Hdf5Model, SolverStateOfBvlc) {
  const SolverState state = read_solver_state(golden(".solverstate.h5"));
  EXPECT_EQ(state.iter(), 7);
  EXPECT_EQ(state.current_step(), 2);
  EXPECT_EQ(state.learned_net(), "/far/away/bvlc_iter_7.caffemodel.h5");
  ASSERT_EQ(state.history_size(), 5);
  const BlobProto& first = state.history(0);
  EXPECT_EQ(blob_dims(first), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(Numbers(first.data().begin(), first.data().end()), rising(6, 0));
  EXPECT_EQ(state.history(4).data(0), 40);
  const NamedArray iter{"iter", {1}, {3}};
  EXPECT_HAS(why_no_state(put("gap", {iter, {"history/1", {1}, {1}}})),
             "the dataset 'history/0' is missing, and 'history/1' is there");
  EXPECT_HAS(why_no_state(put("below", {{"iter", {1}, {-3}}})), "the dataset 'iter' is -3");
}

// ---- snapshots ----

class Hdf5Snapshot : public Hdf5Model {
 protected:
  void SetUp() override {
    Hdf5Model::SetUp();
    make_digits(at("data"));
  }
  std::unique_ptr<Solver> solver(const std::string& more = "snapshot_format: HDF5") {
    return std::make_unique<Solver>(small_solver(at("data"), at("s"), more), with_name("x"));
  }
  std::unique_ptr<Solver> trained(int iterations,
                                  const std::string& more = "snapshot_format: HDF5") {
    auto made = solver(more);
    or_throw(made->step(iterations));
    return made;
  }
  std::string stem(int iteration) const { return snapshot_stem(at("s"), iteration); }
};

TEST_F(Hdf5Snapshot, RestoresBitForBit) {
  const auto through = trained(7), before = trained(4);
  ASSERT_OK(before->snapshot());
  const std::string state = newest_snapshot(at("s"));
  EXPECT_EQ(state, stem(4) + ".solverstate.h5");
  const auto resumed = solver();
  resumed->restore(state);
  EXPECT_EQ(resumed->iteration(), 4);
  or_throw(resumed->step(3));
  EXPECT_EQ(all_params(resumed->net()), all_params(through->net()));
}

// Refused before there is anything to save.
TEST_F(Hdf5Snapshot, NeedsNamesThatCanBeGroups) {
  const auto made = [&](const std::string& conv, const std::string& ip) {
    SolverParameter param = small_solver(at("data"), at("s"), "snapshot_format: HDF5");
    for (LayerParameter& layer : *param.mutable_net_param()->mutable_layer()) {
      if (layer.name() == "conv") layer.set_name(conv);
      if (layer.name() == "ip") layer.set_name(ip);
    }
    return std::make_unique<Solver>(param, with_name("x"));
  };
  for (const char* name : {"", ".", "/ip", "ip/", "a//b", "a/./b"})
    EXPECT_HAS(
        message_of([&] { made("conv", name); }),
        str("layer '", name, "' (InnerProduct): an HDF5 model has a group for each layer ",
            "with params, but the name '", name, "' cannot name a group; give it another name, ",
            "or leave snapshot_format: HDF5 out"));
  for (const char* name : {"conv/0", "conv/17/b"})
    EXPECT_HAS(message_of([&] { made("conv", name); }),
               str("the name '", name, "' is the array ", name[5] == '0' ? "0" : "17",
                   " of layer 'conv'"));
  for (const char* name : {"conv/0b", "conv0", "conv/b/0", "..", "a.b"}) {
    const auto solver = made("conv", name);
    or_throw(solver->step(1));
    ASSERT_OK(solver->snapshot());
    made("conv", name)->restore(newest_snapshot(at("s")));
  }
}

TEST_F(Hdf5Snapshot, HoldsWhatABinaryOneHolds) {
  ASSERT_OK(trained(3)->snapshot());
  const NetParameter model = read_weights(stem(3) + ".caffemodel.h5");
  const SolverState state = read_solver_state(stem(3) + ".solverstate.h5");
  const std::string run = get_file(run_path(stem(3)));
  const auto manifest = nlohmann::json::parse(get_file(manifest_path(stem(3))));
  ASSERT_EQ(manifest["file"].size(), 3u);
  EXPECT_EQ(manifest["file"][0]["name"], "s_iter_3.caffemodel.h5");
  for (const auto& file : manifest["file"]) {
    const std::string content = get_file(at(file["name"].get<std::string>()));
    EXPECT_EQ(file["size"], content.size());
    Sha256 hash;
    hash.update(content);
    EXPECT_EQ(file["sha256"], hash.finish());
  }
  ASSERT_OK(trained(3, "")->snapshot());  // replaces the other
  EXPECT_FALSE(file_exists(stem(3) + ".caffemodel.h5"));
  EXPECT_FALSE(file_exists(stem(3) + ".solverstate.h5"));
  EXPECT_EQ(newest_snapshot(at("s")), stem(3) + ".solverstate");
  EXPECT_EQ(get_file(run_path(stem(3))), run);
  SolverState binary = read_solver_state(stem(3) + ".solverstate");
  EXPECT_EQ(binary.learned_net() + ".h5", state.learned_net());
  binary.set_learned_net(state.learned_net());
  EXPECT_EQ(binary.SerializeAsString(), state.SerializeAsString());
  const auto one = solver(), other = solver();
  one->net().copy_weights(model, "h");
  other->net().copy_weights(read_weights(stem(3) + ".caffemodel"), "b");
  EXPECT_EQ(all_params(one->net()), all_params(other->net()));
}

TEST_F(Hdf5Snapshot, DamageIsFoundAndAFailedWriteLeavesNothing) {
  const auto made = trained(2);
  ASSERT_OK(made->snapshot());
  or_throw(made->step(1));
  fs::create_directories(run_path(stem(3)) + "/full");
  const Status failed = made->snapshot();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kSnapshot);
  for (const std::string& name : entries(folder_)) {
    EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
    EXPECT_EQ(name.find("s_iter_3.caffe"), std::string::npos) << name;
  }
  EXPECT_EQ(newest_snapshot(at("s")), stem(2) + ".solverstate.h5");
  std::string model = get_file(stem(2) + ".caffemodel.h5");
  model[model.size() / 2] = static_cast<char>(model[model.size() / 2] ^ 1);
  put_file(stem(2) + ".caffemodel.h5", model);
  EXPECT_HAS(message_of([&] { newest_snapshot(at("s")); }), "caffemodel.h5 is not the file that");
  EXPECT_HAS(message_of([&] { solver()->restore(stem(2) + ".solverstate.h5"); }),
             "caffemodel.h5 is not the file that");
  EXPECT_HAS(message_of([&] { solver()->restore(stem(2)); }),
             "did you mean " + stem(2) + ".solverstate.h5?");
}

TEST_F(Hdf5Snapshot, OldOnesGoAndTheBestIsKept) {
  const auto made = solver(
      "snapshot_format: HDF5 snapshot: 2 snapshot_keep: 1 max_iter: 6 test_iter: 1 test_interval: "
      "2 snapshot_best: 'accuracy max'");
  or_throw(made->solve());
  std::vector<std::string> names = entries(folder_);
  std::erase_if(names, [](const std::string& name) { return name.starts_with("data"); });
  EXPECT_EQ(names, (std::vector<std::string>{"s_best.caffemodel.h5", "s_iter_6.caffemodel.h5",
                                             "s_iter_6.manifest", "s_iter_6.run",
                                             "s_iter_6.solverstate.h5", "s_latest"}));
  solver()->copy_weights(at("s_best.caffemodel.h5"));
}

TEST_F(Hdf5Snapshot, AFullDiskEndsWithNineAndLeavesNothing) {
  if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
  const std::string file =
      put_small_solver(folder_, "f", "max_iter: 1 snapshot: 1 snapshot_format: HDF5");
  constexpr std::uint64_t kLimit = 8000;  // bytes a file may have; stderr is one too
  const Ran ran = run_program({tools_dir() + "/train", "--solver=" + file}, kLimit);
  EXPECT_EQ(ran.code, 9) << ran.err;
  EXPECT_HAS(ran.err, "HDF5: file write failed: File too large");
  for (const std::string& name : entries(folder_))
    EXPECT_EQ(name.find("_iter_"), std::string::npos) << name;
}

// BVLC's snapshot has neither .run nor .manifest, and its model may be elsewhere.
TEST_F(Hdf5Snapshot, OfBvlcIsRestored) {
  const auto made = trained(5);
  ASSERT_OK(made->snapshot());
  fs::create_directories(at("moved"));
  for (const char* ending : {".caffemodel.h5", ".solverstate.h5"})
    fs::rename(stem(5) + ending, at("moved/s_iter_5") + ending);
  const auto resumed = solver();
  resumed->restore(at("moved/s_iter_5.solverstate.h5"));
  EXPECT_EQ(resumed->iteration(), 5);
  EXPECT_EQ(all_params(resumed->net()), all_params(made->net()));
}

// A net that reads HDF5 files goes on in them where it was.
TEST_F(Hdf5Snapshot, OfANetOverHdf5DataGoesOnBitForBit) {
  put("rows", {{"x", {7, 2}, rising(14, -2)}, {"y", {7, 1}, rising(7, 1)}});
  put_file(at("list"), at("rows"));
  const std::string net =
      "net_param { layer { name: 'd' type: 'HDF5Data' top: 'x' top: 'y' hdf5_data_param { source: "
      "'" +
      at("list") +
      "' batch_size: 3 shuffle: true } } layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: "
      "'ip' inner_product_param { num_output: 1 } } layer { name: 'loss' type: 'EuclideanLoss' "
      "bottom: 'ip' bottom: 'y' } } base_lr: 0.05 lr_policy: 'fixed' random_seed: 3 max_iter: 9 "
      "snapshot_after_train: false snapshot_format: HDF5 snapshot_prefix: '" +
      at("h") + "'";
  const auto make = [&] {
    return std::make_unique<Solver>(parse_solver(net, "h"), with_name("h"));
  };
  const auto through = make(), before = make(), resumed = make();
  or_throw(through->step(9));
  or_throw(before->step(4));
  ASSERT_OK(before->snapshot());
  resumed->restore(snapshot_stem(at("h"), 4) + ".solverstate.h5");
  or_throw(resumed->step(5));
  EXPECT_EQ(all_params(resumed->net()), all_params(through->net()));
}

}  // namespace
}  // namespace shoal::test::hdf5_model_test
