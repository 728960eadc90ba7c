// Finds the parameters of fields.def in SchemeParameter.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {

struct SchemePlace {
  google::protobuf::Message* message;
  const google::protobuf::FieldDescriptor* field;
};

// Finds the field of a parameter: weighting { a } of "weighting_a", its function of "weighting".
inline SchemePlace place_of(const std::string& parameter, SchemeParameter& scheme) {
  const std::string weighting = "weighting";
  if (!parameter.starts_with(weighting))
    return {&scheme, scheme.GetDescriptor()->FindFieldByName(parameter)};
  const std::string name =
      parameter == weighting ? "function" : parameter.substr(weighting.size() + 1);
  return {scheme.mutable_weighting(), scheme.weighting().GetDescriptor()->FindFieldByName(name)};
}

}  // namespace shoal::parallel
