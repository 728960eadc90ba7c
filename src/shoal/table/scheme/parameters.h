// Reads the parameters of a spec for its scheme: each by its own name, of its own type. Impossible
// values, missing ones, and parameters that the scheme does not have become one error, which
// SchemeSpec::make returns. So each call has a result, if only for an object that is thrown away.
#pragma once

#include "shoal/table/scheme.h"
#include "shoal/table/scheme/allowed.h"

namespace shoal::table {

class Parameters {
 public:
  explicit Parameters(const SchemeSpec& given) : given_(given), spec_{.name = given.name} {}

// Returns the value of a parameter, or else `otherwise`; without, it must be given. Values other
// than `otherwise` go into spec().
#define FIELD(name, Type, usual, others, allowed, ...)               \
  Type name(std::optional<Type> otherwise = usual) {                 \
    return take(#name, given_.name, spec_.name, otherwise, allowed); \
  }
#include "shoal/table/scheme/fields.def"

  // Reports another error. The first one is returned.
  void refuse(const std::string& why) {
    if (wrong_.empty()) wrong_ = why;
  }
  const SchemeSpec& given() const { return given_; }
  // Returns the given spec without values equal to their defaults.
  const SchemeSpec& spec() const { return spec_; }
  const std::vector<std::string>& asked() const { return asked_; }
  // Returns the first error, "" if there is none: to be called after the scheme has read all its
  // parameters.
  std::string wrong() const;

 private:
  template <class T>
  T take(const char* name, const std::optional<T>& given, std::optional<T>& said,
         const std::optional<T>& otherwise, const Allowed& allowed) {
    asked_.emplace_back(name);
    if (!given && !otherwise) refuse(str(given_.name, " needs ", name, "=..."));
    if (given) refuse(why_not(name, *given, allowed));
    if (given != otherwise) said = given;
    return given.value_or(otherwise.value_or(T()));
  }

  const SchemeSpec& given_;
  std::vector<std::string> asked_;
  SchemeSpec spec_;
  std::string wrong_;
};

}  // namespace shoal::table
