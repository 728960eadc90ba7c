#include "shoal/parallel/scheme_words.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/compat/mxnetg.h"
#include "shoal/parallel/scheme/scheme_fields.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/recipe.h"

namespace shoal::parallel {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::size_t kMostPhases = 100'000;
// Returns the value as a prototxt has it, in lower case: a float with the digits that were written.
std::string value_of(const Message& message, const FieldDescriptor* field) {
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
    return message.GetReflection()->GetString(message, field);
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, field, -1, &text);
  return in_lower_case(text);
}

template <class... Args>
ConfigError wrong(const std::string& name, const Args&... words) {
  return ConfigError(Code::kConfig, name, ": ", words...);
}

template <class T, class... Args>
T or_wrong(Result<T> result, const std::string& name, const Args&... words) {
  if (!result.ok()) throw wrong(name, words..., result.error().message);
  return std::move(result).value();
}

std::string groups_of_file(const SchemeParameter& scheme, const std::string& name) {
  if (scheme.has_groups())
    throw wrong(name, "scheme: both groups and groups_file are given; leave one out");
  const std::string text = or_wrong(read_list(scheme.groups_file(), Code::kConfig), name);
  return or_wrong(compat::read_groups(text), name, "groups_file ", scheme.groups_file(), ": ");
}

// Repeats the list until `total` iterations are reached.
std::vector<Phase> cycle(const std::vector<Phase>& list, std::int64_t total,
                         const std::string& name) {
  std::vector<Phase> phases;
  std::int64_t end = 0;
  for (std::size_t i = 0; end < total; i = (i + 1) % list.size()) {
    Phase next = list[i];
    end = std::min(total, end + next.end - (i > 0 ? list[i - 1].end : 0));
    next.end = phases.empty() ? 0 : phases.back().end;
    if (phases.empty() || phases.back() != next) phases.push_back(std::move(next));
    phases.back().end = end;
    if (phases.size() > kMostPhases)
      throw wrong(name, "the schemes make more than ", kMostPhases,
                  " phases to max_iter; give them more iterations each");
  }
  return phases;
}

}  // namespace

std::string in_lower_case(std::string word) {
  for (char& letter : word)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return word;
}

namespace {

// Returns the search that a scheme asks for, if there is one.
std::optional<GroupSearch> search_of(const SchemeParameter& scheme, const std::string& name) {
  const bool by_speed = scheme.group_by() == SchemeParameter::SPEED;
  const auto read = [&](const char* parameter, int least, auto& to) {
    const FieldDescriptor* const field = SchemeParameter::descriptor()->FindFieldByName(parameter);
    if (!scheme.GetReflection()->HasField(scheme, field)) return;
    if (!by_speed)
      throw wrong(name, "scheme: ", parameter, " needs group_by: SPEED, which is not given");
    const int number = scheme.GetReflection()->GetInt32(scheme, field);
    if (number < least)
      throw wrong(name, "scheme: ", parameter, " is ", number, "; it must be ", least, " or more");
    to = number;
  };
  GroupSearch search;
  read("min_group_size", 1, search.smallest);
  read("profile_iterations", 1, search.profile);
  read("regroup_interval", 0, search.interval);
  if (!by_speed) return std::nullopt;
  if (in_lower_case(scheme.type()) != "grouped")
    throw wrong(name, "scheme: group_by needs type grouped, but the type is ", scheme.type());
  if (scheme.has_groups() || scheme.has_groups_file())
    throw wrong(name, "scheme: group_by: SPEED finds the groups, and ",
                scheme.has_groups() ? "groups" : "groups_file", " says them; leave one out");
  return search;
}

// Adds a phase of its own for each search.
std::vector<Phase> with_profiles(const std::vector<Phase>& list, const std::string& name) {
  std::vector<Phase> phases;
  std::int64_t begin = 0;
  for (const Phase& phase : list) {
    const std::int64_t iterations = phase.end - std::exchange(begin, phase.end);
    if (phase.search && iterations > 0) {
      if (iterations <= phase.search->profile)
        throw wrong(name, "scheme: ", iterations,
                    " iterations leave none to train in groups, since profile_iterations is ",
                    phase.search->profile);
      phases.push_back(profile_of(phase, phase.end - iterations + phase.search->profile));
    }
    phases.push_back(phase);
  }
  return phases;
}

}  // namespace

table::SchemeSpec spec_of(const SchemeParameter& scheme, const std::string& name) {
  const bool search = search_of(scheme, name).has_value();
  SchemeParameter own = scheme;
  if (own.has_groups_file()) own.set_groups(groups_of_file(own, name));
  table::SchemeSpec spec{.name = in_lower_case(scheme.type())};
  table::for_each_parameter(spec, [&](const char* parameter, const auto&) {
    const auto [message, field] = place_of(parameter, own);
    if (!message->GetReflection()->HasField(*message, field)) return;
    const std::string why = table::set_parameter(spec, parameter, value_of(*message, field));
    if (!why.empty()) throw wrong(name, "scheme: ", why);
  });
  if (search) spec.groups = table::Groups{{0}};  // so that the rest can be checked
  spec = or_wrong(spec.make(), name, "")->spec();
  if (search) spec.groups.reset();
  return spec;
}

namespace {

// Returns the fields of a phase that the solver has too, by the same names.
std::string own_of(const SchemeParameter& scheme) {
  SchemeParameter own;
  std::vector<const FieldDescriptor*> fields;
  scheme.GetReflection()->ListFields(scheme, &fields);
  for (const FieldDescriptor* field : fields)
    if (field->name() != "type" && SolverParameter::descriptor()->FindFieldByName(field->name()))
      copy_field(scheme, *field, own, *field);
  return own.ShortDebugString();
}

}  // namespace

std::vector<Phase> phases_of(const SolverParameter& param, const std::string& name) {
  std::vector<Phase> list;
  std::int64_t total = param.max_iter(), sum = 0;
  const int count = std::max(1, param.scheme_size());
  for (int i = 0; i < count; ++i) {
    const SchemeParameter& scheme =
        param.scheme_size() > 0 ? param.scheme(i) : SchemeParameter::default_instance();
    const std::string where = count > 1 ? str(name, ": scheme ", i + 1, " of ", count) : name;
    table::SchemeSpec spec = spec_of(scheme, where);
    std::int64_t length = scheme.iterations();
    if (length < 0) throw wrong(where, "iterations is ", length, "; a phase has 1 or more");
    if (length == 0 && i + 1 < count)
      throw wrong(where, "iterations is not given; of several schemes, each but the last needs it");
    if (length == 0 && count > 1 && !param.has_max_iter())
      throw wrong(where,
                  "iterations is not given, and the solver has no max_iter to end the last scheme");
    if (length == 0) length = std::max<std::int64_t>(1, total - sum);
    if (length > std::numeric_limits<std::int32_t>::max())
      throw wrong(where, "iterations is ", length, "; at most ",
                  std::numeric_limits<std::int32_t>::max(), " are allowed");
    sum += length;
    list.push_back({sum, std::move(spec)});
    list.back().search = search_of(scheme, where);
    list.back().own = own_of(scheme);
    list.back().batch_size = scheme.batch_size();
  }
  if (!param.has_max_iter()) total = sum;
  if (count == 1) {
    list[0].end = std::max<std::int64_t>(0, total);
    return with_profiles(list, name);
  }
  return with_profiles(cycle(list, total, name), name);
}

Phase profile_of(const Phase& phase, std::int64_t end) {
  Phase profile = phase;
  profile.scheme = {.name = kProfile};
  profile.search.reset();
  profile.end = std::min(phase.end, end);
  return profile;
}

bool has_search(const std::vector<Phase>& phases) {
  return std::ranges::any_of(phases, [](const Phase& phase) { return phase.search.has_value(); });
}

SolverParameter with_phase(SolverParameter param, const Phase& phase) {
  SolverParameter own;
  CHECK(google::protobuf::TextFormat::MergeFromString(phase.own, &own)) << phase.own;
  param.MergeFrom(own);
  if (own.has_test_interval() && own.test_interval() == 0) {  // a phase without tests
    param.clear_test_iter();
    param.clear_test_net_param();
    param.clear_test_state();
  }
  if (phase.batch_size > 0) set_batch_size(*param.mutable_train_net_param(), phase.batch_size);
  return param;
}

}  // namespace shoal::parallel
