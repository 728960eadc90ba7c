// Upgrades old nets: V0 layers, V1 layers, data layers with their own transform fields, `input`
// fields, BatchNorm's three rates. Source of the rules: the behaviour of BVLC Caffe 1.0 on reading
// a net; V0 and V1 are layer forms of 2013 and 2014.
#pragma once

#include <string>
#include <vector>

namespace shoal {

class NetParameter;
class SolverParameter;

// Says where a net comes from.
struct NetSource {
  std::string name;                    // the file, in logs and errors
  std::vector<std::string> v1_origin;  // "file:line" of each `layers` item, or empty
  std::string input_origin;            // and of the first `input`
  bool is_text = true;                 // a model may lack what a net to build must have
};

// Brings `net` up to date in place: afterwards only `layer` items are left. One log line for each
// kind of change. Throws ConfigError for `layer` beside `layers`, unknown V0 types, and padding in
// front of what takes none.
void upgrade_net(NetParameter& net, NetSource source);

// A solver's solver_type becomes type. Throws ConfigError if both are set.
void upgrade_solver_type(SolverParameter& solver, const std::string& name);
// An empty snapshot_prefix becomes the path `name` without its ending; a folder gets the file's
// name appended.
void complete_snapshot_prefix(SolverParameter& solver, const std::string& name);

// The first of the steps, in upgrade_v0.cpp: afterwards no item of `layers` wraps a V0 layer.
// source.v1_origin is kept in step.
void upgrade_v0(NetParameter& net, NetSource& source);
// Upgrades, in upgrade_v1.cpp, transform fields of V1 data layers, then `layers` to `layer`,
// origins filled in from the source.
void upgrade_v1(NetParameter& net, const NetSource& source);

}  // namespace shoal
