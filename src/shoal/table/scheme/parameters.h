// The parameters of a spec as its scheme reads them: each by its own name, of its own type. A value
// that cannot be, one that must be given and is not, and parameters that the scheme has not become
// one error, which SchemeSpec::make gives out. So what is asked always has an answer, if only for
// an object that is thrown away.
#pragma once

#include "shoal/table/scheme.h"
#include "shoal/table/scheme/allowed.h"

namespace shoal::table {

class Parameters {
 public:
  explicit Parameters(const SchemeSpec& given) : given_(given), spec_{.name = given.name} {}

// The value of a parameter, or else `otherwise`; without, it must be given. What differs from
// `otherwise` goes into spec().
#define FIELD(name, Type, usual, others, allowed, ...)               \
  Type name(std::optional<Type> otherwise = usual) {                 \
    return take(#name, given_.name, spec_.name, otherwise, allowed); \
  }
#include "shoal/table/scheme/fields.def"

  // Whatever else is wrong. The first complaint is the one that is heard.
  void refuse(const std::string& why) {
    if (wrong_.empty()) wrong_ = why;
  }
  const SchemeSpec& given() const { return given_; }
  // Returns the given spec without what goes without saying.
  const SchemeSpec& spec() const { return spec_; }
  const std::vector<std::string>& asked() const { return asked_; }
  // The first thing wrong, "" if nothing is: to be asked after the scheme asked all it has.
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
