#include "common/solver_flags.h"

#include <string>
#include <vector>

#include "common/net_flags.h"
#include "shoal/proto/net.pb.h"

DEFINE_string(solver, "", "the solver, a prototxt");
DEFINE_string(set, "",
              "fields that count instead of the solver's: --set='base_lr: 0.1 max_iter: 200'");
DEFINE_string(model, "", "the net, a prototxt, instead of those that the solver names");

// Flags that stand for a field of the solver.
#define FIELDS(FLAG)                                            \
  FLAG(max_iter, max_iter, "max_iter, instead of the solver's") \
  FLAG(iterations, max_iter, "the same as --max_iter")          \
  FLAG(maxIter, max_iter, "SpeeDO's --max_iter")                \
  FLAG(lr, base_lr, "SpeeDO's: base_lr")                        \
  FLAG(momentum, momentum, "SpeeDO's: momentum")                \
  FLAG(weightDecay, weight_decay, "SpeeDO's: weight_decay")     \
  FLAG(test, test_interval, "SpeeDO's: test_interval; 0: no tests")
#define FLAG(name, field, what) DEFINE_string(name, "", what);
FIELDS(FLAG)
#undef FLAG

namespace shoal {
namespace {

// Puts the fields that `text` gives in the place of the solver's; `flag` is where it comes from.
void set_fields(const std::string& flag, const std::string& text, SolverParameter& solver) {
  if (text.empty()) return;
  const SolverParameter given = parse_solver(text, flag, SnapshotPrefix::kAsWritten);
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  given.GetReflection()->ListFields(given, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields)
    solver.GetReflection()->ClearField(&solver, field);
  solver.MergeFrom(given);
}

void clear_tests(SolverParameter& solver) {
  solver.clear_test_interval();
  solver.clear_test_iter();
  solver.clear_test_net();
  solver.clear_test_net_param();
  solver.clear_test_state();
}

void set_net(const std::string& file, SolverParameter& solver) {
  solver.clear_net_param();
  solver.clear_train_net();
  solver.clear_train_net_param();
  solver.clear_test_net();
  solver.clear_test_net_param();
  solver.set_net(file);
}

}  // namespace

SolverParameter solver_of_flags(SnapshotPrefix prefix) {
  SolverParameter param = read_solver(FLAGS_solver, prefix);
  set_fields("--set", FLAGS_set, param);
#define FLAG(name, field, what) \
  if (!FLAGS_##name.empty()) set_fields("--" #name, #field ": " + FLAGS_##name, param);
  FIELDS(FLAG)
#undef FLAG
  if (!FLAGS_test.empty() && param.test_interval() == 0) clear_tests(param);
  if (!FLAGS_model.empty()) set_net(FLAGS_model, param);
  NetState state;
  set_state_of_flags("", state);
  param.mutable_train_state()->MergeFrom(state);
  return param;
}

bool max_iter_is_given() {
  return !(FLAGS_max_iter.empty() && FLAGS_iterations.empty() && FLAGS_maxIter.empty());
}

}  // namespace shoal
