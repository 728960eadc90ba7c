#include "common/solver_flags.h"

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/net_flags.h"
#include "common/solver_tests.h"
#include "shoal/base/error.h"
#include "shoal/base/number.h"
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
  FLAG(test, test_interval, "SpeeDO's: test_interval; 0: tests at the start and the end alone")
#define FLAG(name, field, what) DEFINE_string(name, "", what);
FIELDS(FLAG)
#undef FLAG

namespace shoal {
namespace {

using google::protobuf::FieldDescriptor;

// Puts the fields that --set gives in the place of the solver's.
void set_fields(SolverParameter& solver) {
  if (FLAGS_set.empty()) return;
  SolverParameter given;
  try {
    given = parse_solver(FLAGS_set, "--set", SnapshotPrefix::kAsWritten);
  } catch (const ConfigError& error) {
    throw ConfigError(Code::kUsage, error.what());
  }
  std::vector<const FieldDescriptor*> fields;
  given.GetReflection()->ListFields(given, &fields);
  for (const FieldDescriptor* field : fields) solver.GetReflection()->ClearField(&solver, field);
  solver.MergeFrom(given);
}

// Puts the number that a flag of its own gives in the place of a field's; "" gives none.
void set_field(const char* flag, const std::string& text, const char* name,
               SolverParameter& solver) {
  if (text.empty()) return;
  const FieldDescriptor* const field = SolverParameter::descriptor()->FindFieldByName(name);
  const bool whole = field->cpp_type() == FieldDescriptor::CPPTYPE_INT32;
  const auto number = number_in(text, 0.0, whole ? double{INT32_MAX} : double{FLT_MAX});
  if (!number || (whole && *number != std::trunc(*number)))
    throw ConfigError(Code::kUsage, "--", flag, "=", text, ": it is a ",
                      whole ? "whole number" : "number", ", 0 or more");
  if (whole)
    solver.GetReflection()->SetInt32(&solver, field, static_cast<std::int32_t>(*number));
  else
    solver.GetReflection()->SetFloat(&solver, field, static_cast<float>(*number));
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
  one_of("max_iter", FLAGS_max_iter, "iterations", FLAGS_iterations);
  one_of("max_iter", FLAGS_max_iter, "maxIter", FLAGS_maxIter);
  one_of("iterations", FLAGS_iterations, "maxIter", FLAGS_maxIter);
  set_fields(param);
#define FLAG(name, field, what) set_field(#name, FLAGS_##name, #field, param);
  FIELDS(FLAG)
#undef FLAG
  if (!FLAGS_test.empty() && param.test_interval() == 0) test_at_ends(param);
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
