#include "common/hybrid_flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <map>

#include "common/scheme_flags.h"
#include "shoal/base/text.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"

DEFINE_string(hybrid, "",
              "SpeeDO's list of phases, to the end of the line: --hybrid =maxIter 100 =sync == "
              "=maxIter 200 =weedout 3");

namespace shoal {
namespace {

// SpeeDO's options that are fields of a phase.
const std::map<std::string, std::string> kPhaseFields = {
    {"maxIter", "iterations"}, {"test", "test_interval"},       {"lr", "base_lr"},
    {"momentum", "momentum"},  {"weightDecay", "weight_decay"}, {"batch", "batch_size"}};

class PhaseReader {
 public:
  PhaseReader(int number, const parallel::SchemeFlags& outer) : number_(number), flags_(outer) {}

  SchemeParameter read(const std::vector<std::string>& words) {
    if (words.empty()) throw wrong("it is empty; == must stand between two phases");
    for (at_ = 0; at_ < words.size();) read_option(words);
    return scheme();
  }

 private:
  template <class... Args>
  ConfigError wrong(const Args&... args) const {
    return ConfigError(Code::kUsage, "--hybrid: phase ", number_, ": ", args...);
  }

  void read_option(const std::vector<std::string>& words) {
    const std::string& word = words[at_++];
    if (!word.starts_with('='))
      throw wrong("'", word, "' is no option; an option begins with =, as =maxIter");
    const std::string name = word.substr(word.find_first_not_of('='));
    if (name == "sync" || name == "gradientOnly") {
      (name == "sync" ? flags_.sync : flags_.gradient_only) = true;
      return;
    }
    const auto own = kPhaseFields.find(name);
    const std::string field = own == kPhaseFields.end() ? scheme_field_of(name) : own->second;
    if (field.empty()) throw wrong("there is no option =", name);
    if (at_ == words.size() || words[at_].starts_with('=')) throw wrong("=", name, " has no value");
    const std::string& value = words[at_++];
    if (own != kPhaseFields.end())
      fields_ += str(field, ": ", value, ' ');
    else
      set({name, field, value});
  }

  void set(const parallel::SchemeFlag& flag) {
    std::erase_if(flags_.fields, [&](const auto& other) { return other.field == flag.field; });
    flags_.fields.push_back(flag);
  }

  SchemeParameter scheme() {
    SolverParameter solver;
    parallel::merge_scheme(flags_, solver);
    const bool none = solver.scheme_size() == 0 || solver.scheme(0).type() == "bsp";
    SchemeParameter made = solver.scheme_size() > 0 ? solver.scheme(0) : SchemeParameter();
    if (none && !flags_.sync) {
      made.set_type("async");
      if (!flags_.gradient_only && !made.has_payload()) made.set_payload(SchemeParameter::DELTA);
    }
    const SolverParameter fields = parse_solver(
        "scheme { " + fields_ + "}", str("--hybrid: phase ", number_), SnapshotPrefix::kAsWritten);
    made.MergeFrom(fields.scheme(0));
    if (made.iterations() < 1) throw wrong("it has no =maxIter, which gives its length");
    return made;
  }

  const int number_;
  parallel::SchemeFlags flags_;
  std::string fields_;
  std::size_t at_ = 0;
};

}  // namespace

void merge_hybrid(const std::vector<std::string>& words, const parallel::SchemeFlags& outer,
                  bool total, SolverParameter& param) {
  param.clear_scheme();
  if (!total) param.clear_max_iter();
  for (auto begin = words.begin();;) {
    const auto end = std::find_if(begin, words.end(), [](const std::string& word) {
      return word.find_first_not_of('=') == std::string::npos;
    });
    *param.add_scheme() = PhaseReader(param.scheme_size() + 1, outer).read({begin, end});
    if (end == words.end()) return;
    begin = std::next(end);
  }
}

}  // namespace shoal
