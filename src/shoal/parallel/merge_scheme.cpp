#include "shoal/parallel/merge_scheme.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <optional>

#include "shoal/base/error.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/compat/scheme_names.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

template <class... Args>
ConfigError usage(const Args&... args) {
  return ConfigError(Code::kUsage, args...);
}

// ---- a field by its name ----

template <class T>
T value_of(const SchemeFlag& flag, const char* what) {
  const std::optional<T> value = number_in<T>(flag.value);
  if (!value) throw usage("--", flag.name, "=", flag.value, ": it is ", what);
  return *value;
}

bool truth_of(const SchemeFlag& flag) {
  if (flag.value != "true" && flag.value != "false")
    throw usage("--", flag.name, "=", flag.value, ": it is true or false");
  return flag.value == "true";
}

void set_choice(const SchemeFlag& flag, const FieldDescriptor* field, Message& message) {
  const std::string& word = flag.value;
  std::vector<std::string> known;
  for (int i = 0; i < field->enum_type()->value_count(); ++i)
    known.push_back(in_lower_case(field->enum_type()->value(i)->name()));
  const auto found = std::ranges::find(known, in_lower_case(word));
  if (found == known.end()) throw usage("--", flag.name, "=", word, known_words(word, known));
  message.GetReflection()->SetEnum(
      &message, field, field->enum_type()->value(static_cast<int>(found - known.begin())));
}

void set_field(const SchemeFlag& flag, SchemeParameter& scheme) {
  Message* message = &scheme;
  std::string name = flag.field;
  if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
    message = message->GetReflection()->MutableMessage(
        message, message->GetDescriptor()->FindFieldByName(name.substr(0, dot)));
    name = name.substr(dot + 1);
  }
  const FieldDescriptor* const field = message->GetDescriptor()->FindFieldByName(name);
  const auto* const reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, value_of<std::int32_t>(flag, "a whole number"));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->SetFloat(message, field, value_of<float>(flag, "a number"));
    case FieldDescriptor::CPPTYPE_BOOL: return reflection->SetBool(message, field, truth_of(flag));
    case FieldDescriptor::CPPTYPE_ENUM: return set_choice(flag, field, *message);
    default: return reflection->SetString(message, field, flag.value);
  }
}

// ---- the type ----

struct Type {
  std::string name, from;
};  // "bsp", "--scheme=bsp"

// Each is one way to say it; two must say the same.
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

// The scheme of a field, where the type is not given: the first of these that is there.
std::string type_meant(const SchemeFlags& flags) {
  constexpr struct {
    const char* field;
    const char* type;
  } kOwners[] = {{"max_advance", "drift_barrier"},
                 {"weedout", "weed_out"},
                 {"max_version_lag", "weed_out"},
                 {"groups", "grouped"},
                 {"groups_file", "grouped"},
                 {"group_by", "grouped"},
                 {"backup", "sync_backup"},
                 {"moving_rate", "elastic"},
                 {"exchange_order", "elastic"},
                 {"epsilon", "esync"},
                 {"min_steps", "esync"},
                 {"max_steps", "esync"},
                 {"mode", "esync"},
                 {"compensation", "dc_asgd"}};
  const auto is_given = [&](const char* field) {
    return std::ranges::count(flags.fields, field, &SchemeFlag::field) > 0;
  };
  for (const auto& owner : kOwners)
    if (is_given(owner.field)) return owner.type;
  if (!flags.staleness.empty()) return "ssp";
  return is_given("local_steps") ? "local_steps" : "bsp";
}

// ---- the staleness ----

int staleness_number(const std::string& text) {
  const bool digits = !text.empty() && text.size() < 10 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits)
    throw usage("--staleness=", text, ": it is a number of clocks, 0 or more, or unbounded");
  return std::stoi(text);
}

void merge_staleness(const SchemeFlags& flags, const std::string& from, SchemeParameter& scheme) {
  const std::string& staleness = flags.staleness;
  const std::string type = scheme.type();
  if (staleness.empty()) {
    if (type == "ssp" && !scheme.has_staleness()) scheme.set_staleness(0);
    return;
  }
  const bool unbounded = staleness == "unbounded";
  int clocks = unbounded ? 0 : staleness_number(staleness);
  if (flags.kv_store == "dist_ssync") clocks = compat::clocks_of_mxnetg(clocks);
  if (type == "ssp" && unbounded)
    scheme.set_type("async"), scheme.clear_staleness();
  else if (type == "grouped" && unbounded)
    scheme.clear_staleness();
  else if (type == "ssp" || type == "grouped")
    scheme.set_staleness(clocks);
  else if (!((type == "async" && unbounded) || (type == "bsp" && staleness == "0")))
    throw usage(from, " and --staleness=", staleness,
                " exclude each other: a staleness is ssp's, and grouped's");
}

}  // namespace

void merge_scheme(const SchemeFlags& flags, SolverParameter& param) {
  const std::optional<Type> given = type_given(flags);
  const bool fields = !flags.fields.empty() || !flags.staleness.empty() || flags.gradient_only;
  if (!given && !fields) return;
  const std::string solvers =
      param.scheme_size() == 1 ? in_lower_case(param.scheme(0).type()) : "bsp";
  if (!given && param.scheme_size() > 1)
    throw usage("the solver has ", param.scheme_size(),
                " schemes, one after the other; say --scheme too, and all of them are replaced");
  // Another type begins anew. Without one, the solver's own stands, unless it is bsp, which has no
  // fields.
  const std::string type = given ? given->name : solvers == "bsp" ? type_meant(flags) : solvers;
  if (param.scheme_size() != 1 || type != solvers) {
    param.clear_scheme();
    param.add_scheme();
  }
  SchemeParameter& scheme = *param.mutable_scheme(0);
  scheme.set_type(type);
  merge_staleness(flags, given ? given->from : "scheme '" + type + "'", scheme);
  if (flags.gradient_only && type != "bsp") scheme.set_payload(SchemeParameter::GRADIENT);
  for (const SchemeFlag& flag : flags.fields) set_field(flag, scheme);
  // by these, whatever is sent
  const bool is_released = type == "drift_barrier" || type == "weed_out";
  if (is_released && scheme.has_moving_rate() && !scheme.has_payload())
    scheme.set_payload(SchemeParameter::WEIGHTS);
}

}  // namespace shoal::parallel
