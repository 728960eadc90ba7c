#include "support/bad_input.h"

#include <cstdlib>
#include <ostream>

#include "shoal/data/image.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/data_files.h"

namespace shoal::test {
namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

NetParameter small_model() {
  NetParameter model = parse_net(
      "layer { name: 'ip' type: 'InnerProduct' blobs { shape { dim: 3 dim: 4 } } blobs { shape { "
      "dim: 3 } } }",
      "m");
  for (int i = 0; i < 12; ++i) model.mutable_layer(0)->mutable_blobs(0)->add_data(0.25f);
  for (int i = 0; i < 3; ++i) model.mutable_layer(0)->mutable_blobs(1)->add_data(0.5f);
  return model;
}

void make_good_files(const std::string& folder) {
  for (const auto& [backend, name] :
       {std::pair{"datumfile", "/set"}, {"lmdb", "/lmdb"}, {"leveldb", "/leveldb"}})
    or_throw(write_records(backend, folder + name, small_records(16)));
  for (const char* name : {"/a.png", "/b.png"})
    put_file(folder + name, or_throw(encode_image({{1, 2, 2}, {1, 2, 3, 4}}, "png")));
  put_file(folder + "/wide.png", or_throw(encode_image({{1, 2, 3}, {1, 2, 3, 4, 5, 6}}, "png")));
  put_file(folder + "/junk.png", "no picture");
  const NetParameter model = small_model();
  or_throw(write_binary(model, folder + "/model.caffemodel"));
  SolverState state;
  state.set_iter(4);
  state.set_learned_net(folder + "/model.caffemodel");
  for (const BlobProto& blob : model.layer(0).blobs()) *state.add_history() = blob;
  or_throw(write_binary(state, folder + "/state.solverstate"));
  put_file(folder + "/net.prototxt",
           "layer { name: 'in' type: 'Input' top: 'in' input_param { shape { dim: 1 } } }");
  put_file(folder + "/solver.prototxt",
           "net: '" + folder + "/net.prototxt' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1");
}

// Makes the files once; nothing changes them.
const std::string& good_files() {
  static const std::string folder = [] {
    const std::string made = fresh_directory("good");
    make_good_files(made);
    return made;
  }();
  return folder;
}

}  // namespace

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

void BadInput::SetUp() {
  if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
  folder_ = fresh_directory("bad");
  // Sets what the tools set before they start themselves again, which takes a while.
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
}

void BadInput::TearDown() { ::unsetenv("OMP_WAIT_POLICY"); }

std::string BadInput::there(std::string text) const {
  replace_all(text, "@", folder_);
  replace_all(text, "~", good_files());
  return text;
}

void BadInput::run(const Case& c) {
  for (const auto& [name, text] : c.files) put_file(folder_ + "/" + name, there(text));
  const Words before = entries(folder_);
  Words command;
  for (const std::string& word : c.command) command.push_back(there(word));
  command[0] = tools_dir() + "/" + command[0];
  const Ran ran = run_program(command);
  EXPECT_EQ(ran.code, c.code) << ran.err;
  for (const std::string& words : c.words) EXPECT_HAS(ran.err, there(words));
  for (const char* trace : {"*** Check", "internal error", "terminate called"})
    EXPECT_EQ(ran.err.find(trace), std::string::npos) << ran.err;
  if (c.code != 0) {
    EXPECT_EQ(entries(folder_), before);
  }
}

}  // namespace shoal::test
