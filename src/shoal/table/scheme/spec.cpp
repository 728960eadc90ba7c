// Schemes as words and as objects, and the list of their parameters.
#include "shoal/table/scheme_spec.h"

#include "shoal/table/scheme/make.h"

namespace shoal::table {
namespace {

constexpr struct Kind {
  const char* name;
  const char* first;  // the parameter whose key words leave out where it is their first
  std::unique_ptr<Scheme> (*make)(Parameters&);
} kKinds[] = {
#define SCHEME(name, first) {#name, #first, make_##name},
#include "shoal/table/scheme/schemes.def"
#undef SCHEME
};

const Kind* find_kind(const std::string& scheme) {
  const Kind* const kind = std::ranges::find(kKinds, scheme, &Kind::name);
  return kind == std::end(kKinds) ? nullptr : kind;
}

std::string no_kind(const std::string& scheme) {
  return str("no scheme is named '", scheme, "'", known_words(scheme, scheme_names()));
}

std::string first_of(const std::string& scheme) {
  const Kind* const kind = find_kind(scheme);
  return kind ? kind->first : "";
}

// Calls visit(name, value, allowed).
void for_each(auto& spec, const auto& visit) {
#define FIELD(name, Type, usual, others, allowed, ...) visit(#name, spec.name, allowed);
#include "shoal/table/scheme/fields.def"
}

template <class T>
std::string usual_of(const std::optional<T>& usual, const char* others, const Allowed& allowed) {
  const bool is_one = usual && why_not("", *usual, allowed).empty();
  const std::string text = is_one ? text_of(*usual, allowed) : "";
  return text + (text.empty() || *others == '\0' ? "" : "; ") + others;
}

// Reads "0,2|1,3": groups of different workers, none empty.
Result<Groups> groups_in(std::string_view text) {
  Groups groups;
  std::vector<int> all;
  const auto wrong = [&](const auto&... what) {
    return Error{Code::kConfig,
                 str("groups is ", text, ": ", what...,
                     "; it must be as \"0,2|1,3\", workers by number, each in one group")};
  };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(",|", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::optional<int> worker = number_in<int>(word);
    if (!worker || *worker < 0) return wrong("'", word, "' is no worker");
    if (std::ranges::count(all, *worker) > 0) return wrong("worker ", word, " is given twice");
    if (begin == 0 || text[begin - 1] == '|') groups.emplace_back();
    all.push_back(*worker);
    groups.back().push_back(*worker);
    begin = end + 1;
  }
  return groups;
}

template <class T>
std::string read_value(const char* name, std::string_view text, const Allowed& allowed,
                       std::optional<T>& value) {
  if constexpr (std::is_same_v<T, Groups>) {
    const Result<Groups> groups = groups_in(text);
    if (!groups.ok()) return groups.error().message;
    value = groups.value();
  } else if constexpr (!kIsNumber<T>) {
    const std::vector<std::string> known = split(allowed.words, ',');
    const auto found = std::ranges::find(known, text);
    if (found == known.end()) return str(name, " is '", text, "'", known_words(text, known));
    value = static_cast<T>(found - known.begin());
  } else {
    value = allowed.clocks && text == "unbounded" ? kUnbounded : number_in<T>(text);
    if (!value) return not_allowed<T>(name, text, allowed);
  }
  return "";
}

std::string has_no(const SchemeSpec& spec, const std::string& key, const std::string& why,
                   const std::vector<std::string>& has) {
  return str(spec.name, " has no '", key, "'", why,
             has.empty() ? "; it has no parameters" : "; it has " + join(has));
}

}  // namespace

std::string text_of(const Groups& groups) {
  std::string text;
  for (const std::vector<int>& group : groups)
    for (std::size_t i = 0; i < group.size(); ++i)
      text += str(i > 0 ? "," : text.empty() ? "" : "|", group[i]);
  return text;
}

std::string set_parameter(SchemeSpec& spec, const std::string& key, std::string_view text) {
  bool known = false;
  std::string wrong;
  for_each(spec, [&](const char* name, auto& value, const Allowed& allowed) {
    if (key != name) return;
    known = true;
    wrong = value ? key + " is given twice" : read_value(name, text, allowed, value);
  });
  if (known) return wrong;
  const Kind* const kind = find_kind(spec.name);
  if (!kind) return no_kind(spec.name);
  Parameters parameters(spec);
  kind->make(parameters);
  return has_no(spec, key, did_you_mean(key, parameters.asked()), parameters.asked());
}

std::string SchemeSpec::words() const {
  const std::string first = " " + first_of(name) + "=";
  std::string words;
  for_each(*this, [&](const char* key, const auto& value, const Allowed& allowed) {
    if (value) words += str(' ', key, '=', text_of(*value, allowed));
  });
  if (first.size() > 2 && words.starts_with(first)) words.erase(1, first.size() - 1);
  return name + words;
}

std::string Parameters::wrong() const {
  std::string wrong;
  for_each_parameter(given_, [&](const std::string& name, const auto& value) {
    if (!value || !wrong.empty() || std::ranges::count(asked_, name) > 0) return;
    wrong = has_no(given_, name, str(", ", scheme_field(name).help), asked_);
  });
  return wrong.empty() ? wrong_ : wrong;
}

Result<std::unique_ptr<Scheme>> SchemeSpec::make() const {
  const Kind* const kind = find_kind(name);
  Parameters parameters(*this);
  std::unique_ptr<Scheme> made = kind ? kind->make(parameters) : nullptr;
  const std::string wrong = kind ? parameters.wrong() : no_kind(name);
  if (!wrong.empty()) return Error{Code::kConfig, str("scheme '", words(), "': ", wrong)};
  return made;
}

Result<SchemeSpec> parse_scheme(std::string_view text) {
  const std::vector<std::string> words = split(text, ' ');
  const auto wrong = [&](const auto&... what) {
    return Error{Code::kConfig, str("scheme '", join(words, " "), "': ", what...)};
  };
  if (words.empty()) return wrong("it has no name; known: ", join(scheme_names()));
  SchemeSpec spec{.name = words.front()};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const bool bare = equals == std::string::npos;
    const std::string key = bare && i == 1 ? first_of(spec.name) : words[i].substr(0, equals);
    if (bare && (i > 1 || key.empty()))
      return wrong("'", words[i], "' is not of the form key=value");
    const std::string why = set_parameter(spec, key, words[i].substr(bare ? 0 : equals + 1));
    if (!why.empty()) return wrong(why);
  }
  return spec;
}

const std::vector<SchemeField>& scheme_fields() {
  static const std::vector<SchemeField> fields = {
#define FIELD(name, Type, usual, others, allowed, owners, help) \
  {#name, owners, help, usual_of<Type>(usual, others, allowed), described<Type>(allowed)},
#define SEARCH(name, usual, values, owners, help) {#name, owners, help, usual, values},
#include "shoal/table/scheme/fields.def"
  };
  return fields;
}

const SchemeField& scheme_field(const std::string& name) {
  return *std::ranges::find(scheme_fields(), name, &SchemeField::name);
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::string implied_scheme(const std::function<bool(const char*)>& is_given) {
  for (const char mark : {'!', '?'})
    for (const SchemeField& field : scheme_fields())
      for (std::string owner : split(field.owners, ' '))
        if (owner.back() == mark && is_given(field.name)) return owner.erase(owner.size() - 1);
  return "bsp";
}

}  // namespace shoal::table
