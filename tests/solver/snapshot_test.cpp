// Tests the files of a snapshot: whole or not at all, checked when read, found again, and files
// that other programs wrote.
#include "shoal/solver/snapshot.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "shoal/base/file.h"
#include "shoal/base/sha256.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/net_state.h"
#include "shoal/solver/solver.h"
#include "shoal/tensor/context.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::solver_snapshot_test {
namespace {

namespace fs = std::filesystem;
using test::all_params;
using test::get_file;
using test::put_file;
using test::with_name;

TEST(Sha256Test, StandardsExamples) {
  const auto digest = [](const std::string& text) {
    Sha256 hash;
    hash.update(text);
    return hash.finish();
  };
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesOfAnySizeGiveTheSame) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.push_back(static_cast<char>(i * 7));
  Sha256 whole;
  whole.update(text);
  const std::string wanted = whole.finish();
  for (std::size_t size = 1; size < 150; ++size) {
    Sha256 pieces;
    for (std::size_t at = 0; at < text.size(); at += size)
      pieces.update(std::string_view(text).substr(at, size));
    EXPECT_EQ(pieces.finish(), wanted) << size;
  }
}

class SnapshotTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::fresh_directory("snapshot");
    test::make_digits(folder_ + "/data");
    prefix_ = folder_ + "/s";
  }
  SolverParameter param(const std::string& more = "") {
    return test::small_solver(folder_ + "/data", prefix_, more);
  }
  std::unique_ptr<Solver> trained(int iterations, const std::string& more = "") {
    auto solver = std::make_unique<Solver>(param(more), with_name("x"));
    or_throw(solver->step(iterations));
    return solver;
  }
  std::string stem(int iteration) const { return snapshot_stem(prefix_, iteration); }
  std::string restore_error(const std::string& file, const std::string& more = "") {
    Solver solver(param(more), with_name("x"));
    try {
      solver.restore(file);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.error().code, Code::kConfig);
      return error.what();
    }
    return "nothing was thrown";
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names = test::entries(folder_);
    std::erase_if(names, [](const std::string& name) { return name.rfind("data", 0) == 0; });
    return names;
  }
  std::string folder_, prefix_;
};

TEST_F(SnapshotTest, FourFilesAndAPointerAreWritten) {
  auto solver = trained(2);
  ASSERT_OK(solver->snapshot());
  EXPECT_EQ(files(),
            (std::vector<std::string>{"s_iter_2.caffemodel", "s_iter_2.manifest", "s_iter_2.run",
                                      "s_iter_2.solverstate", "s_latest"}));
  EXPECT_EQ(get_file(latest_path(prefix_)), "s_iter_2\n");
  const auto manifest = nlohmann::json::parse(get_file(manifest_path(stem(2))));
  EXPECT_EQ(manifest["version"], 1);
  EXPECT_EQ(manifest["iteration"], 2);
  ASSERT_EQ(manifest["file"].size(), 3u);
  for (const auto& file : manifest["file"]) {
    const std::string content = get_file(folder_ + "/" + file["name"].get<std::string>());
    EXPECT_EQ(file["size"], content.size());
    Sha256 hash;
    hash.update(content);
    EXPECT_EQ(file["sha256"], hash.finish());
  }
  EXPECT_EQ(why_damaged(stem(2)), "");
  const SolverState state = read_solver_state(state_path(stem(2)));
  EXPECT_EQ(state.iter(), 2);
  EXPECT_EQ(state.learned_net(), model_path(stem(2)));
  const NetParameter model = read_weights(model_path(stem(2)));
  EXPECT_EQ(model.name(), "small");
  EXPECT_FALSE(model.layer(0).has_origin());
}

TEST_F(SnapshotTest, ModelsHoldGradientsIfAskedFor) {
  ASSERT_OK(trained(1, "snapshot_diff: true")->snapshot());
  const NetParameter model = read_weights(model_path(stem(1)));
  double sum = 0;
  int blobs = 0;
  for (const LayerParameter& layer : model.layer())
    for (const BlobProto& blob : layer.blobs()) {
      ++blobs;
      EXPECT_EQ(blob.diff_size(), blob.data_size());
      for (const float value : blob.diff()) sum += std::abs(value);
    }
  EXPECT_EQ(blobs, 7);
  EXPECT_GT(sum, 0);
}

TEST_F(SnapshotTest, AFailedWriteLeavesWhatWasThere) {
  auto solver = trained(2);
  ASSERT_OK(solver->snapshot());
  or_throw(solver->step(1));
  // The last of the names is taken by a folder that is not empty, so that its file cannot be put
  // there.
  fs::create_directories(run_path(stem(3)) + "/full");
  const Status failed = solver->snapshot();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kSnapshot);
  EXPECT_FALSE(file_exists(model_path(stem(3))));
  EXPECT_FALSE(file_exists(state_path(stem(3))));
  EXPECT_FALSE(file_exists(manifest_path(stem(3))));
  EXPECT_EQ(why_damaged(stem(2)), "");
  EXPECT_EQ(newest_snapshot(prefix_), state_path(stem(2)));
  for (const std::string& name : files()) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
  fs::remove_all(run_path(stem(3)));
  ASSERT_OK(solver->snapshot());
  EXPECT_EQ(newest_snapshot(prefix_), state_path(stem(3)));
}

TEST_F(SnapshotTest, TheNewestAreKept) {
  Solver solver(param("snapshot: 2 snapshot_keep: 2 max_iter: 10"), with_name("x"));
  or_throw(solver.solve());
  for (const int n : {2, 4, 6})
    EXPECT_EQ(why_incomplete(stem(n)), manifest_path(stem(n)) + " is missing");
  EXPECT_EQ(files().size(), 2u * 4 + 1);
  for (const int n : {8, 10}) EXPECT_EQ(why_damaged(stem(n)), "");
  // Takes the old ones over in a run that goes on.
  Solver more(param("snapshot: 2 snapshot_keep: 2 max_iter: 12"), with_name("x"));
  more.restore(state_path(stem(10)));
  or_throw(more.solve());
  EXPECT_FALSE(file_exists(model_path(stem(8))));
  for (const int n : {10, 12}) EXPECT_EQ(why_damaged(stem(n)), "");
}

// Layers without params may have one name, as in Caffe: each keeps its own place.
TEST_F(SnapshotTest, LayersOfOneNameGoOnEachFromItsPlace) {
  std::string text = "name: 'twins'";
  for (const char* part :
       {"top: 'a' data_param { batch_size: 3 ", "top: 'b' data_param { batch_size: 5 "})
    text += str(" layer { name: 'data' type: 'Data' ", part, "source: '", folder_,
                "/data' backend: DATUMFILE } }");
  NetParameter param = parse_net(text, "twins.prototxt");
  Context ctx({.seed = 3});
  Net ran(param, ctx), restored(param, ctx);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(ran.forward().ok());
  NetRunState state;
  put_state(ran, state);
  take_state(restored, state, "x.run");
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(restored.layers()[i]->save_state(), ran.layers()[i]->save_state()) << i;
  EXPECT_NE(ran.layers()[0]->save_state(), ran.layers()[1]->save_state());
}

TEST_F(SnapshotTest, TheBestModelIsKeptAndItsScoreOutlivesTheRun) {
  const std::string more =
      "test_iter: 8 test_interval: 1 snapshot_best: 'loss min' base_lr: 0.5 max_iter: 4 "
      "snapshot_after_train: true";
  Solver solver(param(more), with_name("x"));
  double best = 1e9;
  std::vector<float> params;
  for (int i = 0; i < 4; ++i) {
    const auto scores = or_throw(solver.test(0));
    if (scores[1].mean < best) best = scores[1].mean, params = all_params(solver.net());
    or_throw(solver.step(1));
  }
  ASSERT_OK(solver.snapshot());
  Solver tested(param("test_iter: 8 test_interval: 1"), with_name("x"));
  tested.copy_weights(best_path(prefix_));
  EXPECT_EQ(all_params(tested.net()), params);
  EXPECT_FLOAT_EQ(static_cast<float>(read_run_state(run_path(stem(4))).best_value()),
                  static_cast<float>(best));
}

TEST_F(SnapshotTest, AutoTakesTheNewestCompleteOne) {
  EXPECT_EQ(newest_snapshot(prefix_), "");
  auto solver = trained(9);
  for (int n = 9; n <= 11; ++n) {
    ASSERT_OK(solver->snapshot());
    or_throw(solver->step(1));
  }
  EXPECT_EQ(newest_snapshot(prefix_), state_path(stem(11))) << "11 comes after 9";
  fs::resize_file(model_path(stem(11)), 10);
  EXPECT_HAS(why_incomplete(stem(11)), "s_iter_11.caffemodel has 10 bytes and should have ");
  EXPECT_EQ(newest_snapshot(prefix_), state_path(stem(10)));
  fs::remove(manifest_path(stem(10)));
  EXPECT_EQ(newest_snapshot(prefix_), state_path(stem(9)));
  // Another run under the same prefix has a newest that is not the one with the highest number.
  ASSERT_OK(trained(3)->snapshot());
  EXPECT_EQ(newest_snapshot(prefix_), state_path(stem(3)));
  fs::remove(latest_path(prefix_));
  EXPECT_EQ(newest_snapshot(prefix_), state_path(stem(9)));
}

TEST_F(SnapshotTest, AutoRefusesToStartOverWhereNoneIsWhole) {
  const auto words = [&] {
    try {
      return newest_snapshot(prefix_);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.error().code, Code::kConfig);
      return std::string(error.what());
    }
  };
  auto solver = trained(2);
  ASSERT_OK(solver->snapshot());
  or_throw(solver->step(2));
  ASSERT_OK(solver->snapshot());
  fs::resize_file(model_path(stem(2)), 10);
  fs::remove(run_path(stem(4)));
  const std::string both = words();
  EXPECT_HAS(both, "no snapshot under " + prefix_ + " is whole");
  EXPECT_HAS(both, stem(2) + ": " + model_path(stem(2)) + " has 10 bytes and should have ");
  EXPECT_HAS(both, stem(4) + ": " + run_path(stem(4)) + ": No such file");
  ASSERT_OK(remove_snapshot(stem(4)));
  // As a writer leaves it that is killed while it gives the first snapshot its names.
  fs::rename(manifest_path(stem(2)), manifest_path(stem(2)) + ".tmp.aBc123");
  EXPECT_EQ(words(), "");
  fs::remove(manifest_path(stem(2)) + ".tmp.aBc123");
  EXPECT_HAS(words(), manifest_path(stem(2)) + " is missing");
}

TEST_F(SnapshotTest, ADamagedOneIsSetAsideBeforeAnotherHasItsName) {
  ASSERT_OK(trained(2)->snapshot());
  const std::string model = model_path(stem(2)), good = get_file(model);
  std::string bad = good;
  bad[bad.size() / 2] ^= 1;
  put_file(model, bad);
  for (int i = 0; i < 2; ++i) {  // the second replaces one that is whole
    ASSERT_OK(trained(2)->snapshot());
    EXPECT_EQ(get_file(model), good);
    EXPECT_EQ(why_damaged(stem(2)), "");
    EXPECT_EQ(get_file(model + ".damaged"), bad);
    EXPECT_TRUE(file_exists(manifest_path(stem(2)) + ".damaged"));
  }
}

TEST_F(SnapshotTest, DamageIsNamedBeforeAnythingIsRead) {
  ASSERT_OK(trained(2)->snapshot());
  std::string content = get_file(run_path(stem(2)));
  content[content.size() / 2] ^= 1;
  put_file(run_path(stem(2)), content);
  EXPECT_EQ(why_incomplete(stem(2)), "");
  EXPECT_HAS(restore_error(state_path(stem(2))), "s_iter_2.run is not the file that " +
                                                     manifest_path(stem(2)) +
                                                     " lists: its SHA-256 differs");
  fs::remove(run_path(stem(2)));
  EXPECT_HAS(restore_error(state_path(stem(2))), "s_iter_2.run: No such file");
  put_file(manifest_path(stem(2)), "{ \"version\": 1, ");
  EXPECT_HAS(restore_error(state_path(stem(2))), "s_iter_2.manifest is not the JSON of a manifest");
  put_file(manifest_path(stem(2)), "{ \"version\": 2 }");
  EXPECT_HAS(restore_error(state_path(stem(2))),
             "s_iter_2.manifest is of version 2, and this program knows version 1");
}

TEST_F(SnapshotTest, FilesOfAnotherKindOrOfAnotherNetAreNamed) {
  ASSERT_OK(trained(2)->snapshot());
  EXPECT_HAS(restore_error(model_path(stem(2))),
             "is a model (.caffemodel), not a solver state (.solverstate); give it to --weights");
  EXPECT_HAS(restore_error(folder_ + "/nothing.solverstate"),
             "cannot open " + folder_ + "/nothing.solverstate");
  put_file(folder_ + "/empty.solverstate", "");
  EXPECT_HAS(restore_error(folder_ + "/empty.solverstate"), "empty");
  put_file(folder_ + "/cut.solverstate", get_file(state_path(stem(2))).substr(0, 40));
  EXPECT_HAS(restore_error(folder_ + "/cut.solverstate"), "cut.solverstate");
  EXPECT_HAS(restore_error(state_path(stem(2)), "type: 'Adam'"),
             "is from a solver of type SGD, and this one is of type Adam, whose histories mean "
             "something else");
}

TEST_F(SnapshotTest, AnotherShapeOfHistoryIsNamed) {
  ASSERT_OK(trained(2)->snapshot());
  SolverState state = read_solver_state(state_path(stem(2)));
  state.clear_learned_net();
  state.mutable_history(0)->mutable_data()->RemoveLast();
  state.mutable_history(0)->mutable_shape()->clear_dim();
  state.mutable_history(0)->mutable_shape()->add_dim(11);
  ASSERT_OK(write_binary(state, folder_ + "/other.solverstate"));
  EXPECT_HAS(
      restore_error(folder_ + "/other.solverstate"),
      "the history of param 0 of layer 'conv' has shape 11 (11), and the param 3 1 2 2 (12)");
}

// BVLC Caffe writes a model and a state, the model's path as it was then.
TEST_F(SnapshotTest, StatesWithoutOurFilesRestoreWhatTheyHold) {
  auto solver = trained(4, "lr_policy: 'multistep' gamma: 0.5 stepvalue: 1 stepvalue: 3");
  ASSERT_OK(solver->snapshot());
  fs::create_directories(folder_ + "/moved");
  SolverState state = read_solver_state(state_path(stem(4)));
  EXPECT_EQ(state.current_step(), 2);
  state.set_learned_net("/far/away/s_iter_4.caffemodel");
  ASSERT_OK(write_binary(state, folder_ + "/moved/s_iter_4.solverstate"));
  EXPECT_HAS(restore_error(folder_ + "/moved/s_iter_4.solverstate"),
             "its model does not exist, neither /far/away/s_iter_4.caffemodel nor " + folder_ +
                 "/moved/s_iter_4.caffemodel");
  fs::copy_file(model_path(stem(4)), folder_ + "/moved/s_iter_4.caffemodel");
  Solver again(param("lr_policy: 'multistep' gamma: 0.5 stepvalue: 1 stepvalue: 3"),
               with_name("x"));
  again.restore(folder_ + "/moved/s_iter_4.solverstate");
  EXPECT_EQ(again.iteration(), 4);
  EXPECT_EQ(all_params(again.net()), all_params(solver->net()));
  or_throw(again.step(1));
  EXPECT_FLOAT_EQ(again.rate(), 0.0125f);
}

TEST_F(SnapshotTest, AMovedFolderRestoresAsItIs) {
  auto solver = trained(3);
  ASSERT_OK(solver->snapshot());
  or_throw(solver->step(2));
  fs::create_directories(folder_ + "/moved");
  for (const std::string& name : files())
    if (name.rfind("s_iter_3", 0) == 0)
      fs::rename(folder_ + "/" + name, folder_ + "/moved/" + name);
  Solver again(param(), with_name("x"));
  again.restore(folder_ + "/moved/s_iter_3.solverstate");
  or_throw(again.step(2));
  EXPECT_EQ(all_params(again.net()), all_params(solver->net()));
}

}  // namespace
}  // namespace shoal::solver_snapshot_test
