#include "shoal/table/codec_spec.h"

#include <cmath>
#include <vector>

#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/table/codec.h"

namespace shoal::table {
namespace {

constexpr const char* kFeedback = "feedback";
constexpr const char* kStochastic = "stochastic";
constexpr const char* kMomentum = "momentum=";
constexpr const char* kWarmUp = "warm_up=";

struct Name {
  CodecId id;
  const char* name;
};
constexpr Name kNames[] = {
    {CodecId::kFloat32, "float32"},
#define CODEC(id, name, number) {CodecId::id, #name},
#include "shoal/table/codecs.def"
};

std::string all_names() {
  std::string names;
  for (const Name& one : kNames) names += str(names.empty() ? "" : ", ", one.name);
  return names;
}

template <class... Words>
Error wrong(std::string_view words, const Words&... why) {
  return {Code::kConfig, str("codec '", words, "': ", why...)};
}

// Reads one of the words behind the name. Returns why it means nothing, or "".
std::string read_word(const std::string& word, CodecSpec& spec, bool& has_amount) {
  if (word == kFeedback) return spec.feedback = true, "";
  if (word == kStochastic) return spec.stochastic = true, "";
  if (word.starts_with(kMomentum))
    if (const auto number = number_in<float>(word.substr(std::string(kMomentum).size())))
      return spec.momentum = *number, "";
  if (word.starts_with(kWarmUp))
    if (const auto number = number_in<std::int32_t>(word.substr(std::string(kWarmUp).size())))
      return spec.warm_up = *number, "";
  const std::optional<float> number = number_in<float>(word);
  if (!number)
    return str("'", word, "' is neither a number nor one of ", kFeedback, ", ", kStochastic, ", ",
               kMomentum, "M, ", kWarmUp, "CLOCKS");
  if (!has_amount) {
    has_amount = true;
    spec.amount = *number;
  } else {
    if (*number != 2 && *number != 8 && *number != 32)
      return str("its values have ", word, " bits; 2, 8 and 32 are allowed");
    spec.bits = static_cast<std::uint8_t>(*number);
  }
  return "";
}

}  // namespace

std::string name_of(CodecId id) {
  for (const Name& one : kNames)
    if (one.id == id) return one.name;
  return str("codec ", static_cast<int>(id));
}

Result<CodecSpec> parse_codec(std::string_view words) {
  const std::vector<std::string> parts = split(words, ':');
  CodecSpec spec;
  bool is_known = false;
  for (const Name& one : kNames)
    if (!parts.empty() && parts[0] == one.name) {
      is_known = true;
      spec.id = one.id;
    }
  if (!is_known) return wrong(words, "there is none of this name; there are ", all_names());
  bool has_amount = false;
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (const std::string why = read_word(parts[i], spec, has_amount); !why.empty())
      return wrong(words, why);
  if (const CodecKind* const kind = find_codec_kind(spec.id)) {
    if (!has_amount) spec.amount = kind->amount;
    if (kind->takes_bits && spec.bits == 0) spec.bits = 32;
    spec.feedback = spec.feedback || kind->needs_feedback;
  }
  if (const std::string why = validate(spec); !why.empty()) return wrong(words, why);
  return spec;
}

std::string words_of(const CodecSpec& spec) {
  const CodecKind* const kind = find_codec_kind(spec.id);
  std::string words = name_of(spec.id);
  if (spec.amount != 0) words += str(':', spec.amount);
  if (spec.bits != 0) words += str(':', int{spec.bits});
  if (spec.stochastic) words += str(':', kStochastic);
  if (spec.feedback && !(kind && kind->needs_feedback)) words += str(':', kFeedback);
  if (spec.momentum != 0) words += str(':', kMomentum, spec.momentum);
  if (spec.warm_up != 0) words += str(':', kWarmUp, spec.warm_up);
  return words;
}

std::string validate(const CodecSpec& spec) {
  if (spec.id == CodecId::kFloat32)
    return spec == CodecSpec{} ? "" : "float32 sends the numbers as they are, and is told nothing";
  const CodecKind* const kind = find_codec_kind(spec.id);
  if (kind == nullptr) return str("this build has no ", name_of(spec.id));
  if (kind->amount == 0 && spec.amount != 0)
    return str("it takes no amount, such as ", spec.amount);
  if (kind->amount != 0 && !(spec.amount > kind->least && spec.amount <= kind->most))
    return str("its amount is ", spec.amount, "; above ", kind->least, " up to ", kind->most,
               " is allowed");
  if (!kind->takes_bits && spec.bits != 0) return "it takes no bits of values; topk does";
  if (kind->takes_bits && spec.bits != 2 && spec.bits != 8 && spec.bits != 32)
    return str("its values have ", int{spec.bits}, " bits; 2, 8 and 32 are allowed");
  if (spec.stochastic && !kind->takes_stochastic) return "it does not round at random; int8 can";
  if (kind->needs_feedback && !spec.feedback) return "training needs its error feedback";
  if (!(spec.momentum >= 0 && spec.momentum < 1))
    return str("its momentum is ", spec.momentum, "; 0 up to below 1 is allowed");
  if (spec.momentum > 0 && !(kind->takes_bits && spec.feedback))
    return "a momentum is corrected where few numbers are sent: of topk";
  if (spec.warm_up < 0) return str("its warm-up takes ", spec.warm_up, " clocks; 0 or more can be");
  if (spec.warm_up > 0 && !kind->takes_bits && spec.id != CodecId::kLowrank)
    return "there is a warm-up of topk, whose share falls, and of lowrank, which begins then";
  if (spec.id == CodecId::kLowrank && spec.amount != std::round(spec.amount))
    return str("its rank is ", spec.amount, "; it must be a whole number");
  return "";
}

}  // namespace shoal::table
