// A consistency scheme as a value: its name, and its parameters in types of their own. The list of
// the parameters is scheme/fields.def; docs/consistency.md explains them.
#pragma once

#include <string>
#include <string_view>

#include "shoal/base/error.h"
#include "shoal/table/types.h"

namespace shoal::table {

// In these enums the words of fields.def have the order of the values, as SchemeParameter's have.

// The fate of the momentum of a worker's own solver after an exchange. kAverage: histories are
// exchanged as the weights are.
enum class MomentumPolicy : std::uint8_t { kKeep, kReset, kAverage };
// The weight of a worker's contribution beside others'.
enum class Weighing : std::uint8_t { kUniform, kSamples, kSteps };
// kAfter: weights are exchanged behind the steps of a task; kBefore: before the first of them.
enum class ExchangeOrder : std::uint8_t { kAfter, kBefore };
// kAssigned: the coordinator says at the start of a round how many steps a worker makes; kPull: a
// worker asks after each step.
enum class StepsMode : std::uint8_t { kAssigned, kPull };
// The weight of an update with staleness Y: 1; 1/Y; 1/(1 + a (Y - 1)); exp(-a (Y - 1)); 1 up to
// Y = a, and beyond a drop.
enum class WeightFunction : std::uint8_t { kNone, kInverse, kPolynomial, kExponential, kCutoff };
// Y: by version, how many versions the row is past the one that was read, at least 1; by counter, 1
// more than the others' updates since the worker's, or its group's, own last. They differ by one
// once something was missed.
enum class StalenessBy : std::uint8_t { kCounter, kVersion };
// kGradient: the gradient, before the clip and without the decay; kRate: the rate, and so the decay
// too.
enum class Weighed : std::uint8_t { kGradient, kRate };

using Count = std::int64_t;                    // of steps, tasks, workers ...
using Groups = std::vector<std::vector<int>>;  // of workers
std::string text_of(const Groups& groups);     // "0,2|1,3"

class Scheme;

struct SchemeSpec {
  std::string name = "bsp";
// The parameters. One that is not given has the scheme's default value.
#define FIELD(name, Type, ...) std::optional<Type> name{};
#include "shoal/table/scheme/fields.def"
  // Returns its printed form, "grouped groups=0,2|1 staleness=3", which messages carry and only
  // parse_scheme reads.
  std::string words() const;
  // Checks it and makes the scheme. An error (kConfig) names what is wrong, or missing: groups that
  // are not found yet.
  Result<std::unique_ptr<Scheme>> make() const;
  bool operator==(const SchemeSpec&) const = default;
};

// Calls visit(name, value) with every parameter, in the order of words.
void for_each_parameter(auto& spec, const auto& visit) {
#define FIELD(name, ...) visit(#name, spec.name);
#include "shoal/table/scheme/fields.def"
}

// Sets the parameter from text. Returns why it cannot; "" if it did.
std::string set_parameter(SchemeSpec& spec, const std::string& name, std::string_view text);

// Parses a name, then "key=value" words, of which the first may leave out the key that schemes.def
// names: "bsp", "ssp 2", "async payload=delta local_steps=5". An error (kConfig) names the wrong
// word. Contradictions are left to SchemeSpec::make.
Result<SchemeSpec> parse_scheme(std::string_view words);

// A line of fields.def. `usual` and `values` are for people; "" as usual: a value must be given.
// `about` is the help and the values.
struct SchemeField {
  const char *name, *owners, *help;
  std::string usual, values, about = str(help, "; ", values);
};
const std::vector<SchemeField>& scheme_fields();
const SchemeField& scheme_field(const std::string& name);  // there is one
std::vector<std::string> scheme_names();
// Returns the scheme that given parameters imply when no name is given; bsp if they imply none.
std::string implied_scheme(const std::function<bool(const char* parameter)>& is_given);

}  // namespace shoal::table
