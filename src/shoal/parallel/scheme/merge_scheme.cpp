#include "shoal/parallel/merge_scheme.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <optional>

#include "shoal/base/error.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/compat/scheme_names.h"
#include "shoal/parallel/scheme/scheme_fields.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {
namespace {

using google::protobuf::FieldDescriptor;

template <class... Args>
ConfigError usage(const Args&... args) {
  return ConfigError(Code::kUsage, args...);
}

// ---- a field by its name ----

template <class T>
T number_of(const SchemeFlag& flag) {
  const std::optional<T> value = number_in<T>(flag.value);
  if (!value)
    throw usage("--", flag.name, "=", flag.value, ": it must be ",
                table::scheme_field(flag.field).values);
  return *value;
}

// Returns the index of the flag's word among those of the parameter.
int choice_of(const SchemeFlag& flag) {
  const std::vector<std::string> known = split(table::scheme_field(flag.field).values, ',');
  const auto found = std::ranges::find(known, in_lower_case(flag.value));
  if (found == known.end())
    throw usage("--", flag.name, "=", flag.value, known_words(flag.value, known));
  return static_cast<int>(found - known.begin());
}

void set_field(const SchemeFlag& flag, SchemeParameter& scheme) {
  const auto [message, field] = place_of(flag.field, scheme);
  const auto* const reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, number_of<std::int32_t>(flag));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->SetFloat(message, field, number_of<float>(flag));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, choice_of(flag) == 1);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, choice_of(flag));
    default: return reflection->SetString(message, field, flag.value);
  }
}

// ---- the type ----

struct Type {
  std::string name, from;
};  // "bsp", "--scheme=bsp"

// Returns the type given. Each flag is one way to give it; two must agree.
std::optional<Type> type_given(const SchemeFlags& flags) {
  std::vector<Type> said;
  if (!flags.scheme.empty())
    said.push_back({in_lower_case(flags.scheme), "--scheme=" + flags.scheme});
  for (const auto& [flag, value] : {std::pair("--consistency_model", flags.consistency_model),
                                    std::pair("--kv-store", flags.kv_store)})
    if (!value.empty())
      said.push_back({or_throw(compat::scheme_meant(flag, value)), str(flag, '=', value)});
  if (flags.sync) said.push_back({flags.gradient_only ? "bsp" : "local_steps", "--sync"});
  for (std::size_t i = 1; i < said.size(); ++i)
    if (said[i].name != said[0].name)
      throw usage(said[0].from, " and ", said[i].from, " exclude each other");
  return said.empty() ? std::nullopt : std::optional(said[0]);
}

// ---- the staleness ----

constexpr int kMostClocks = 999'999'999;

// Merges a staleness, which may be unbounded. The field cannot express that.
void merge_staleness(const SchemeFlags& flags, const SchemeFlag& flag, const std::string& from,
                     SchemeParameter& scheme) {
  const std::string type = scheme.type();
  const bool unbounded = flag.value == "unbounded";
  int clocks = unbounded ? 0 : number_in<int>(flag.value, 0, kMostClocks).value_or(-1);
  if (clocks < 0)
    throw usage("--", flag.name, "=", flag.value,
                ": it must be a number of clocks, 0 or more, or unbounded");
  if (flags.kv_store == "dist_ssync") clocks = compat::clocks_of_mxnetg(clocks);
  if (type == "ssp" && unbounded)
    scheme.set_type("async"), scheme.clear_staleness();
  else if (type == "grouped" && unbounded)
    scheme.clear_staleness();
  else if (type == "ssp" || type == "grouped")
    scheme.set_staleness(clocks);
  else if (!((type == "async" && unbounded) || (type == "bsp" && flag.value == "0")))
    throw usage(from, " and --", flag.name, "=", flag.value,
                " exclude each other: only ssp and grouped have a staleness");
}

// Gives fields the defaults of the system whose spelling of a flag was used: SpeeDO's --train is 1
// and its factor 1, as MXNet-G's is.
void set_foreign_defaults(const SchemeFlags& flags, SchemeParameter& scheme) {
  const bool moves = std::ranges::count(flags.fields, "movingRate", &SchemeFlag::name) > 0;
  const bool syncs = flags.sync && !flags.gradient_only;
  if (moves || (syncs && scheme.type() == "local_steps")) scheme.set_local_steps(1);
  const bool by_mxnet = flags.kv_store == "dist_async" || flags.kv_store == "dist_ssync";
  const std::vector<std::string> owners = split(table::scheme_field("factor").owners, ' ');
  const bool by_speedo = flags.gradient_only && std::ranges::count(owners, scheme.type()) > 0;
  if (by_mxnet || by_speedo) scheme.set_factor(1);
  if (by_mxnet) scheme.mutable_weighting()->set_function(SchemeParameter::Weighting::INVERSE);
}

}  // namespace

void merge_scheme(const SchemeFlags& flags, SolverParameter& param) {
  const std::optional<Type> given = type_given(flags);
  if (!given && flags.fields.empty() && !flags.gradient_only) return;
  const std::string solvers =
      param.scheme_size() == 1 ? in_lower_case(param.scheme(0).type()) : "bsp";
  if (!given && param.scheme_size() > 1)
    throw usage("the solver has ", param.scheme_size(),
                " schemes, one after the other; give --scheme too, to replace them all");
  // Another type begins with its defaults. Without one, the solver's own stands, unless it is bsp,
  // which has no fields.
  const auto is_given = [&](const char* parameter) {
    return std::ranges::count(flags.fields, parameter, &SchemeFlag::field) > 0;
  };
  const std::string type = given              ? given->name
                           : solvers != "bsp" ? solvers
                                              : table::implied_scheme(is_given);
  if (param.scheme_size() != 1 || type != solvers) {
    param.clear_scheme();
    param.add_scheme();
  }
  SchemeParameter& scheme = *param.mutable_scheme(0);
  scheme.set_type(type);
  if (type == "ssp" && !scheme.has_staleness()) scheme.set_staleness(0);
  if (flags.gradient_only && type != "bsp") scheme.set_payload(SchemeParameter::GRADIENT);
  set_foreign_defaults(flags, scheme);
  for (const SchemeFlag& flag : flags.fields)
    if (flag.field == "staleness")
      merge_staleness(flags, flag, given ? given->from : "scheme '" + type + "'", scheme);
    else
      set_field(flag, scheme);
  // These schemes allow a moving rate with weights alone, so the rate implies them.
  const bool is_released = type == "drift_barrier" || type == "weed_out";
  if (is_released && scheme.has_moving_rate() && !scheme.has_payload())
    scheme.set_payload(SchemeParameter::WEIGHTS);
}

}  // namespace shoal::parallel
