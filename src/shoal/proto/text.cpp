// Reads nets and solvers in text form.
#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/proto/text_reader.h"
#include "shoal/proto/upgrade.h"

namespace shoal {
namespace {

const google::protobuf::FieldDescriptor& net_field(int number) {
  return *NetParameter::descriptor()->FindFieldByNumber(number);
}

// Notes where each layer stands, then brings the net up to date.
void finish_net(NetParameter& net, const std::string& name, const TextPlaces& places) {
  for (int i = 0; i < net.layer_size(); ++i)
    net.mutable_layer(i)->set_origin(
        place_in(places, name, net_field(NetParameter::kLayerFieldNumber), i));
  NetSource source{name, {}, "", true};
  for (int i = 0; i < net.layers_size(); ++i)
    source.v1_origin.push_back(
        place_in(places, name, net_field(NetParameter::kLayersFieldNumber), i));
  if (net.input_size())
    source.input_origin = place_in(places, name, net_field(NetParameter::kInputFieldNumber), 0);
  upgrade_net(net, std::move(source));
}

void finish_inner_net(NetParameter* net, int number, int index, const std::string& name,
                      const TextPlaces& places) {
  const TextPlaces* inner =
      places.GetTreeForNested(SolverParameter::descriptor()->FindFieldByNumber(number), index);
  if (inner) finish_net(*net, name, *inner);
}

std::string read_text(const std::string& path, FileKind wanted) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw ConfigError(Code::kConfig, path, " is a folder");
  std::string text = or_throw(read_file(path));
  if (const std::string wide = wide_encoding(text); !wide.empty())
    throw ConfigError(Code::kConfig, path, " is ", wide, "; save it as UTF-8 (iconv -f ", wide,
                      " -t UTF-8 does)");
  const FileKind kind = kind_of(std::string_view(text).substr(0, 64 << 10));
  if (kind == FileKind::kEmpty) throw ConfigError(Code::kConfig, path, " is empty");
  const bool binary = kind == FileKind::kModel || kind == FileKind::kSolverState ||
                      kind == FileKind::kRunState || kind == FileKind::kBlob ||
                      kind == FileKind::kHdf5 || text.find('\0') != std::string::npos;
  const bool other =
      (kind == FileKind::kNetText || kind == FileKind::kSolverText) && kind != wanted;
  const char* hint = "";
  if (other && wanted == FileKind::kSolverText) hint = "; a solver names its net in its field net";
  if (other && wanted == FileKind::kNetText)
    hint = "; the net is the file that its field net names";
  if (binary || other)
    throw ConfigError(Code::kConfig, path, " is ", to_words(kind), ", not ", to_words(wanted),
                      hint);
  return text;
}

}  // namespace

NetParameter parse_net(const std::string& text, const std::string& name) {
  NetParameter net;
  TextPlaces places;
  parse_text(text, name, net, places);
  finish_net(net, name, places);
  return net;
}

NetParameter read_net(const std::string& path) {
  NetParameter net = parse_net(read_text(path, FileKind::kNetText), path);
  if (net.layer_size() == 0) throw ConfigError(Code::kConfig, path, ": the net has no layer");
  return net;
}

SolverParameter parse_solver(const std::string& text, const std::string& name,
                             SnapshotPrefix prefix) {
  SolverParameter solver;
  TextPlaces places;
  parse_text(text, name, solver, places);
  upgrade_solver_type(solver, name);
  if (prefix == SnapshotPrefix::kComplete) complete_snapshot_prefix(solver, name);
  if (solver.has_net_param())
    finish_inner_net(solver.mutable_net_param(), SolverParameter::kNetParamFieldNumber, -1, name,
                     places);
  if (solver.has_train_net_param())
    finish_inner_net(solver.mutable_train_net_param(), SolverParameter::kTrainNetParamFieldNumber,
                     -1, name, places);
  for (int i = 0; i < solver.test_net_param_size(); ++i)
    finish_inner_net(solver.mutable_test_net_param(i), SolverParameter::kTestNetParamFieldNumber, i,
                     name, places);
  return solver;
}

SolverParameter read_solver(const std::string& path, SnapshotPrefix prefix) {
  return parse_solver(read_text(path, FileKind::kSolverText), path, prefix);
}

}  // namespace shoal
