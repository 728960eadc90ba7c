#include "shoal/table/scheme/parameters.h"

#include <algorithm>

#include "shoal/base/number.h"

namespace shoal::table {
namespace {

// The meaning of a key, for people who give it to a scheme that has none.
constexpr struct {
  const char* key;
  const char* is;
} kKeys[] = {
    {"aggregation", "how much each worker counts in a mean of deltas: of local_steps and esync"},
    {"backup", "how many late gradients of a version do without: of sync_backup"},
    {"compensation",
     "the lambda of delay compensation: of gradients merged one by one, as dc_asgd, async and ssp "
     "do"},
    {"epsilon", "seconds to spare: of esync"},
    {"exchange_order", "when elastic averaging exchanges weights: of elastic"},
    {"factor",
     "what a gradient or delta of one worker alone is divided by; where the updates of all are "
     "one, their mean is taken"},
    {"global_momentum", "the momentum of means of deltas: of local_steps and esync"},
    {"global_nesterov", "whether that momentum looks ahead: of local_steps and esync"},
    {"global_rate", "the rate of a mean of deltas: of local_steps and esync"},
    {"groups", "which workers go in step: of grouped"},
    {"local_steps",
     "steps of a worker's own solver between two exchanges: of deltas and weights; a gradient is "
     "of one step"},
    {"max_advance", "the drift that brings all to a barrier: of drift_barrier"},
    {"max_version_lag", "how old a contribution may be: of weed_out without weedout"},
    {"max_steps", "most steps of a worker in a round: of esync"},
    {"min_steps", "least steps of a worker in a round: of esync"},
    {"mode", "who says how many steps a worker makes: of esync"},
    {"merge_every",
     "which of a worker's late tasks count all the same: of weed_out by completions"},
    {"momentum_policy",
     "what becomes of a worker's own momentum: of deltas and weights; with gradients the table has "
     "the only one"},
    {"moving_rate", "how hard elastic averaging pulls: of elastic, where workers send weights"},
    {"payload",
     "what workers send: of schemes whose updates come one by one; in others it goes without "
     "saying"},
    {"share_iterations",
     "whether who is fast does more of the job's iterations: of sync_backup, and of schemes "
     "without a bound whose updates come one by one"},
    {"staleness",
     "how far a worker may be ahead of the slowest: of ssp, and of grouped between groups"},
    {"weedout", "the window of late results: of weed_out"},
    {"weighting",
     "less weight for a stale update: of schemes whose updates come one by one; where those of all "
     "workers are one, none is stale"},
    {"weighting_a", "how steep a weighting is; inverse is 1/Y"},
    {"weighting_cap", "the most Y of a weighting"},
    {"weighting_definition", "Y of a weighting"},
    {"weighting_floor", "the least Y of a weighting"},
    {"weighting_on",
     "whether a weighting is of gradient or rate: in deltas and weights the rate is at work "
     "already"},
};

std::string described(const Range& range) {
  std::string words;
  if (std::isfinite(range.above)) words = str("above ", range.above);
  if (std::isfinite(range.least)) words = str(range.least, " or more");
  if (std::isfinite(range.most)) words += str(words.empty() ? "" : ", ", "at most ", range.most);
  return words;
}

}  // namespace

Parameters::Parameters(std::span<const std::string> words) : spec_{.name = words.front()} {
  for (const std::string& word : words.subspan(1)) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      if (!given_.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
        refuse(str(word.substr(0, equals), " is given twice"));
    } else if (&word == &words[1]) {
      bare_ = word;
    } else {
      refuse(str("'", word, "' is not of the form key=value"));
    }
  }
}

void Parameters::name_first(const std::string& key) {
  first_ = key;
  if (!bare_) return;
  if (!given_.emplace(key, *bare_).second) refuse(str(key, " is given twice"));
  bare_.reset();
}

bool Parameters::yes_or_no(const std::string& key) {
  constexpr Choice<bool> kAnswers[] = {{"false", false}, {"true", true}};
  return one_of(key, kAnswers, false);
}

void Parameters::refuse(const std::string& why) {
  if (wrong_.empty()) wrong_ = why;
}

std::optional<std::string> Parameters::take(const std::string& key, bool required) {
  known_.push_back(key);
  const auto found = given_.find(key);
  if (found != given_.end()) return found->second;
  if (required) refuse(str(spec_.name, " needs ", key, "=..."));
  return std::nullopt;
}

void Parameters::write(const std::string& key, const std::string& value) {
  const bool bare = key == first_ && spec_.parameters.empty();
  spec_.parameters.push_back(bare ? value : str(key, '=', value));
}

// The value of a key; `usual` of one that must be given, and is not, or is no `what`.
template <class T>
T Parameters::value_of(const std::string& key, std::optional<T> otherwise, T usual,
                       const auto& is_good, const auto& what) {
  const std::optional<std::string> text = take(key, !otherwise);
  if (!text) return otherwise.value_or(usual);
  const std::optional<T> value = number_in<T>(*text);
  if (!value || !is_good(*value))
    refuse(str(key, " is ", *text, "; it must be ", what()));
  else if (value != otherwise)
    write(key, shortest(*value));
  return value.value_or(usual);
}

double Parameters::number(const std::string& key, const Range& range,
                          std::optional<double> otherwise) {
  const auto good = [&](double value) {
    return std::isfinite(value) && value > range.above && value >= range.least &&
           value <= range.most;
  };
  return value_of<double>(key, otherwise, 1, good, [&] { return "a number, " + described(range); });
}

std::int64_t Parameters::whole(const std::string& key, std::int64_t least, std::int64_t most,
                               std::optional<std::int64_t> otherwise) {
  const auto good = [&](std::int64_t value) { return value >= least && value <= most; };
  return value_of<std::int64_t>(key, otherwise, least, good,
                                [&] { return str("a whole number, ", least, " to ", most); });
}

Clock Parameters::clocks(const std::string& key, std::optional<Clock> otherwise) {
  if (has(key) && given_.at(key) == "unbounded") {
    take(key, true);
    if (otherwise != kUnbounded) write(key, "unbounded");
    return kUnbounded;
  }
  return value_of<Clock>(
      key, otherwise, 0, [](Clock value) { return value >= 0; },
      [] { return "a whole number of clocks, 0 or more, or \"unbounded\""; });
}

void Parameters::groups(const std::string& key) {
  const std::optional<std::string> text = take(key, true);
  std::vector<int> all;
  const auto wrong = [&](const std::string& what) {
    refuse(str(key, " is ", *text, ": ", what,
               "; it must be as \"0,2|1,3\", workers by number, each in one group"));
  };
  for (std::size_t begin = 0; text && begin <= text->size();) {
    const std::size_t end = std::min(text->find_first_of(",|", begin), text->size());
    const std::string word = text->substr(begin, end - begin);
    const std::optional<int> worker = number_in<int>(word);
    if (!worker || *worker < 0) wrong(str("'", word, "' is no worker"));
    if (std::ranges::count(all, worker.value_or(-1)) > 0)
      wrong(str("worker ", word, " is there twice"));
    if (begin == 0 || (*text)[begin - 1] == '|') spec_.groups.emplace_back();
    all.push_back(worker.value_or(-1));
    spec_.groups.back().push_back(all.back());
    begin = end + 1;
  }
}

std::string Parameters::wrong() const {
  if (bare_) return str("'", *bare_, "' is not of the form key=value");
  for (const auto& [key, value] : given_) {
    if (std::ranges::count(known_, key) > 0) continue;
    std::string is;
    for (const auto& entry : kKeys)
      if (key == entry.key) is = str(", ", entry.is);
    return str(spec_.name, " has no '", key, "'", is, is.empty() ? did_you_mean(key, known_) : "",
               known_.empty() ? "; it has no parameters" : str("; it has ", join(known_)));
  }
  return wrong_;
}

}  // namespace shoal::table
