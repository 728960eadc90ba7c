#include "shoal/parallel/exchange/codec_choice.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iomanip>
#include <limits>
#include <map>
#include <sstream>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/base/text.h"
#include "shoal/net/net.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/codec.h"

namespace shoal::parallel {
namespace {

using table::CodecSpec;
using table::ContributionKind;
using Class = CodecParameter::Class;

constexpr const char* kAuto = "AUTO";

// A codec that AUTO may choose, and the first class that has it.
struct Candidate {
  const char* words;
  Class within;
  bool pushes, pulls;
};
constexpr Candidate kCandidates[] = {
    {"fp16", CodecParameter::HALF, true, false},
    {"bf16", CodecParameter::HALF, false, true},
    {"int8:feedback", CodecParameter::EIGHTH, true, true},
    {"topk:0.05:8", CodecParameter::SPARSE, true, true},
};

bool is_sum_of_changes(const table::Scheme& scheme) {
  return scheme.contribution() != ContributionKind::kWeights;
}

// Returns why pushes cannot be in this codec under the scheme; "" if they can.
std::string why_no_push(const CodecSpec& spec, const table::Scheme& scheme, const Recipe& recipe) {
  if (spec.feedback && !is_sum_of_changes(scheme))
    return str("scheme '", scheme.name(),
               "' pushes weights, and what is left out of weights is not made good by the next "
               "ones: choose fp16, bf16 or int8");
  if (spec.feedback && (scheme.spec().name == "dc_asgd" || scheme.spec().compensation > 0))
    return "delay compensation takes squares of gradients, which those with what was left out "
           "before are not: choose fp16, bf16 or int8";
  if (spec.momentum == 0) return "";
  if (recipe.rule.rule != optim::Rule::kSgd || recipe.rule.momentum != 0)
    return str(
        "momentum correction adds up the momentum at the worker: let the solver be SGD with "
        "momentum: 0, not ",
        recipe.rule.momentum);
  return scheme.contribution() == ContributionKind::kGradient
             ? ""
             : str("scheme '", scheme.name(), "' pushes no gradients, whose momentum is corrected");
}

// Returns why answers cannot be in this codec under the scheme; "" if they can.
std::string why_no_pull(const CodecSpec& spec, const table::Scheme& scheme) {
  if (spec.momentum != 0) return "a momentum is one of pushes";
  if (!spec.feedback) return "";
  if (scheme.lockstep && is_sum_of_changes(scheme)) return "";
  return str("under scheme '", scheme.name(),
             "' workers read versions of their own, and a codec with error feedback sends what "
             "changed since the last one: choose fp16, bf16 or int8");
}

class Choosing {
 public:
  Choosing(const SolverParameter& solver, const std::string& name, const table::Scheme& scheme,
           const Rates& rates)
      : said_(solver.codec()),
        name_(name),
        scheme_(scheme),
        rates_(rates),
        recipe_(read_recipe(solver, name)),
        begins_(solver.max_iter() / 10) {}

  LayerCodecs codecs_of(const std::string& layer, const std::string& type,
                        std::int64_t count) const {
    std::string push = said_.push(), pull = said_.pull();
    for (const CodecParameter::Override& one : said_.layer()) {
      if (one.name().empty() ? one.type() != type : one.name() != layer) continue;
      if (one.has_push()) push = one.push();
      if (one.has_pull()) pull = one.pull();
    }
    LayerCodecs codecs;
    codecs.push = spec_of(push, true, layer, count, codecs.push_why);
    codecs.pull = spec_of(pull, false, layer, count, codecs.pull_why);
    if (codecs.push.id == table::CodecId::kLowrank) {
      codecs.sum = std::exchange(codecs.push, {});
      if (codecs.sum.warm_up == 0) codecs.sum.warm_up = begins_;
      return codecs;
    }
    const CodecSpec bf16{.id = table::CodecId::kBf16};
    if (codecs.push == bf16 ||
        (push == kAuto && said_.within() >= CodecParameter::HALF && rates_.bandwidth > 0))
      codecs.sum = bf16;
    return codecs;
  }

 private:
  CodecSpec spec_of(const std::string& words, bool pushes, const std::string& layer,
                    std::int64_t count, std::string& why) const {
    if (words == kAuto) return fastest(pushes, count, why);
    if (words.empty()) return {};
    const Result<CodecSpec> spec = table::parse_codec(words);
    if (!spec.ok()) throw ConfigError(Code::kConfig, name_, ": ", spec.error().message);
    const std::string none =
        pushes ? why_no_push(spec.value(), scheme_, recipe_) : why_no_pull(spec.value(), scheme_);
    if (!none.empty())
      throw ConfigError(Code::kConfig, name_, ": codec: layer '", layer, "' cannot be ",
                        pushes ? "pushed" : "read", " in '", words, "': ", none);
    why = "as the solver says";
    return spec.value();
  }

  CodecSpec fastest(bool pushes, std::int64_t count, std::string& why) const {
    constexpr double kClearly = 0.99;
    CodecSpec best;
    why = rates_.bandwidth > 0 ? "least time" : "the link's rate is unknown";
    if (rates_.bandwidth <= 0) return best;
    double least = kClearly * sizeof(float) / rates_.bandwidth;
    const auto specs = candidate_codecs();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const Candidate& one = kCandidates[i];
      if (one.within > said_.within() || !(pushes ? one.pushes : one.pulls)) continue;
      const std::string none =
          pushes ? why_no_push(specs[i], scheme_, recipe_) : why_no_pull(specs[i], scheme_);
      const double takes = i < rates_.codecs.size() ? rates_.codecs[i] : 0;
      const double seconds = bytes_a_number(specs[i], count) / rates_.bandwidth + takes;
      if (!none.empty() || seconds >= least) continue;
      least = seconds;
      best = specs[i];
    }
    return best;
  }

  const CodecParameter& said_;
  const std::string& name_;
  const table::Scheme& scheme_;
  const Rates& rates_;
  const Recipe recipe_;
  const std::int32_t begins_;  // lowrank, unless the solver says when
};

void check_names(const Net& net, const CodecParameter& said, const std::string& name) {
  for (const CodecParameter::Override& one : said.layer()) {
    if (one.name().empty() == one.type().empty())
      throw ConfigError(Code::kConfig, name,
                        ": codec: each layer { } needs a name or a type, not both");
    const auto matches = [&](const auto& layer) {
      return one.name().empty() ? layer->type() == one.type() : layer->name() == one.name();
    };
    if (std::ranges::none_of(net.layers(), matches))
      throw ConfigError(
          Code::kConfig, name, ": codec: the net has no layer ",
          one.name().empty() ? "of type '" + one.type() + "'" : "'" + one.name() + "'");
  }
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::span<const CodecSpec> candidate_codecs() {
  static const std::vector<CodecSpec> specs = [] {
    std::vector<CodecSpec> all;
    for (const Candidate& one : kCandidates) all.push_back(or_throw(table::parse_codec(one.words)));
    return all;
  }();
  return specs;
}

std::vector<double> measure_codecs() {
  constexpr std::size_t kNumbers = 1 << 18;
  constexpr int kTurns = 3;
  std::vector<float> numbers(kNumbers);
  Random random(1, 0);
  for (float& number : numbers) number = random.uniform(-1, 1);
  std::vector<double> seconds;
  for (const CodecSpec& spec : candidate_codecs()) {
    const auto codec = table::make_codec(spec);
    std::vector<float> state(codec->state_length(kNumbers));
    double least = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < kTurns; ++turn)
      least = std::min(least, seconds_of([&] {
                         const table::Payload payload =
                             codec->encode({.data = numbers}, {.state = state});
                         (void)codec->decode(payload, kNumbers);
                       }));
    seconds.push_back(least / kNumbers);
  }
  return seconds;
}

bool needs_codec_rates(const SolverParameter& solver) {
  const CodecParameter& said = solver.codec();
  return said.push() == kAuto || said.pull() == kAuto ||
         std::ranges::any_of(said.layer(), [](const CodecParameter::Override& one) {
           return one.push() == kAuto || one.pull() == kAuto;
         });
}

std::vector<LayerCodecs> choose_codecs(const Net& net, const SolverParameter& solver,
                                       const std::string& name, const table::Scheme& scheme,
                                       std::int64_t workers, const Rates& rates) {
  std::vector<LayerCodecs> codecs(net.layers().size());
  check_names(net, solver.codec(), name);
  if (!solver.has_codec() || workers < 2) return codecs;
  const Choosing choosing(solver, name, scheme, rates);
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    const Layer& layer = *net.layers()[i];
    std::int64_t count = 0;
    for (const std::size_t p : learning_of(net, static_cast<int>(i)))
      count = std::max<std::int64_t>(count, net.params()[p].blob->data.count());
    if (count > 0) codecs[i] = choosing.codecs_of(layer.name(), layer.type(), count);
  }
  return codecs;
}

double bytes_a_number(const CodecSpec& spec, std::int64_t count) {
  if (spec.id == table::CodecId::kFloat32) return sizeof(float);
  const auto numbers =
      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 1, table::kMaxRowFloats));
  return static_cast<double>(table::make_codec(spec)->bound(numbers)) /
         static_cast<double>(numbers);
}

CodecBytes bytes_of(const Net& net, int layer, const LayerCodecs& codecs, std::int64_t least) {
  CodecBytes bytes;
  for (const std::size_t p : learning_of(net, layer)) {
    const std::int64_t count = net.params()[p].blob->data.count();
    const bool coded = count >= least;
    const auto numbers = static_cast<double>(count);
    bytes.numbers += count;
    bytes.push += numbers * bytes_a_number(coded ? codecs.push : CodecSpec(), count);
    bytes.pull += numbers * bytes_a_number(coded ? codecs.pull : CodecSpec(), count);
    const int copies = codecs.push.momentum > 0 ? 2 : 1;
    if (coded && codecs.push.feedback) bytes.kept += numbers * copies * sizeof(float);
    if (codecs.sum.id == table::CodecId::kLowrank) bytes.kept += 2 * numbers * sizeof(float);
  }
  return bytes;
}

void check_sum_codec(const LayerCodecs& codecs, Way way, const std::string& layer,
                     const std::string& name) {
  if (codecs.sum.id == table::CodecId::kLowrank && (!is_collective(way) || is_of_library(way)))
    throw ConfigError(Code::kConfig, name, ": codec: layer '", layer, "' goes by ", name_of(way),
                      ", and lowrank takes whole matrices and two rounds of sums: let it go by "
                      "TREE, RING, HALVING_DOUBLING or DIRECT");
  if (way == Way::kTable || is_of_library(way)) return;
  if (codecs.push == table::CodecSpec() || codecs.sum != table::CodecSpec()) return;
  throw ConfigError(
      Code::kConfig, name, ": codec: layer '", layer, "' goes by ", name_of(way),
      ", where workers hand on what they get, and '", words_of(codecs.push),
      "' of what was decoded is not the same again: choose bf16, or let it go by TABLE");
}

std::optional<table::LowRankShape> low_rank_shape(const Blob& param, const CodecSpec& spec) {
  constexpr std::size_t kLeastRate = 2;
  const auto count = static_cast<std::size_t>(param.data.count());
  if (param.shape().axes() < 2 || count == 0) return std::nullopt;
  const auto rows = static_cast<std::size_t>(param.shape()[0]);
  const table::LowRankShape shape{rows, count / rows, static_cast<std::size_t>(spec.amount)};
  const std::size_t rank = std::min({shape.rank, shape.rows, shape.columns});
  return kLeastRate * rank * (shape.rows + shape.columns) <= count ? std::optional(shape)
                                                                   : std::nullopt;
}

double sum_bytes_of(const Net& net, int layer, const LayerCodecs& codecs) {
  if (codecs.sum.id == table::CodecId::kBf16) return 2;
  double all = 0, sent = 0;
  for (const std::size_t p : learning_of(net, layer)) {
    const Blob& blob = *net.params()[p].blob;
    const auto count = static_cast<double>(blob.data.count());
    const auto shape =
        codecs.sum.id == table::CodecId::kLowrank ? low_rank_shape(blob, codecs.sum) : std::nullopt;
    all += count;
    sent += shape ? static_cast<double>(shape->rank * (shape->rows + shape->columns)) : count;
  }
  return all > 0 ? sizeof(float) * sent / all : sizeof(float);
}

double seconds_a_number(const LayerCodecs& codecs, const Rates& rates) {
  double seconds = 0;
  for (const CodecSpec* const spec : {&codecs.push, &codecs.pull}) {
    const auto known = std::ranges::find(candidate_codecs(), spec->id, &CodecSpec::id);
    const auto at = static_cast<std::size_t>(known - candidate_codecs().begin());
    if (at < rates.codecs.size()) seconds += rates.codecs[at];
  }
  return seconds;
}

std::int64_t least_coded(const SolverParameter& solver) {
  const CodecParameter& said = solver.codec();
  const auto corrects = [](const std::string& words) {
    return words.find("momentum=") != std::string::npos;
  };
  return corrects(said.push()) ? 0 : said.min_count();
}

std::string summary_of(const Net& net, const std::vector<LayerCodecs>& codecs,
                       const SolverParameter& solver) {
  std::map<std::string, std::vector<std::string>> layers;  // by codecs
  CodecBytes all;
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    const CodecBytes sizes = bytes_of(net, static_cast<int>(i), codecs[i], least_coded(solver));
    if (sizes.numbers == 0) continue;
    all.numbers += sizes.numbers;
    all.push += sizes.push;
    all.pull += sizes.pull;
    all.kept += sizes.kept;
    if (codecs[i].sum.id == table::CodecId::kLowrank)
      layers[str("summed in ", words_of(codecs[i].sum))].push_back(net.layers()[i]->name());
    if (codecs[i].is_float32()) continue;
    layers[str("pushed in ", words_of(codecs[i].push), " and read in ", words_of(codecs[i].pull))]
        .push_back(net.layers()[i]->name());
  }
  if (layers.empty()) return "";
  std::vector<std::string> words;
  for (const auto& [how, names] : layers) words.push_back(str(join(names), ' ', how));
  const double plain = static_cast<double>(all.numbers) * sizeof(float);
  std::ostringstream out;
  out << join(words, "; ") << ". In float32 a push and its answer have " << std::setprecision(4)
      << 2 * plain / 1e6 << " MB, with these " << (all.push + all.pull) / 1e6
      << " MB at most: " << std::setprecision(3) << plain / all.push << " times less up, "
      << plain / all.pull << " down, " << 2 * plain / (all.push + all.pull)
      << " both ways. What pushes leave out takes " << all.kept / 1e6 << " MB in each worker";
  return out.str();
}

std::string table_of(const Net& net, const std::vector<LayerCodecs>& codecs,
                     const SolverParameter& solver) {
  std::ostringstream out;
  out << "codecs, and bytes at most of a push and of its answer:\n"
      << std::left << std::setw(22) << "layer" << std::setw(28) << "pushed in" << std::setw(12)
      << "bytes" << std::setw(28) << "read in" << std::setw(12) << "bytes"
      << "float32\n";
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    const CodecBytes sizes = bytes_of(net, static_cast<int>(i), codecs[i], least_coded(solver));
    if (sizes.numbers == 0) continue;
    const auto cell = [](const CodecSpec& spec, const std::string& why) {
      return words_of(spec) + (why.empty() ? "" : " (" + why + ")");
    };
    out << std::setw(22) << net.layers()[i]->name() << std::setw(28)
        << cell(codecs[i].push, codecs[i].push_why) << std::setw(12)
        << static_cast<std::int64_t>(sizes.push) << std::setw(28)
        << cell(codecs[i].pull, codecs[i].pull_why) << std::setw(12)
        << static_cast<std::int64_t>(sizes.pull) << sizes.numbers * 4 << "\n";
  }
  return out.str();
}

}  // namespace shoal::parallel
