#include "common/foreign_flags.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/text.h"

namespace shoal {
namespace {

struct ForeignFlag {
  std::string_view name, system;
  bool has_value;
  // Takes its place: "" is nothing, and behind a "=" the value follows.
  std::string_view here;
  std::string_view why;
};

constexpr std::string_view kLauncher = "scripts/launch.py -n ";

constexpr ForeignFlag kForeign[] = {
    {"worker", "SpeeDO", true, kLauncher, "a launcher starts the workers"},
    {"redis", "SpeeDO", true, "", "process 0 coordinates the job, without Redis"},
    {"resume", "SpeeDO", false, "--snapshot=auto", "the newest snapshot is gone on from"},
    {"startIter", "SpeeDO", true, "", "a snapshot knows its iteration"},
    {"keyName", "SpeeDO", true, "", "snapshots are files, found by snapshot_prefix"},
    {"skip", "SpeeDO", true, "", "no update is left out by chance"},
    {"data_dir", "MXNet-G", true, "", "the net names its data, or --train_source=PATH does"},
    {"batch_size", "MXNet-G", true, "--batch=", "it is the net's batch_size"},
    {"num_epochs", "MXNet-G", true, "",
     "--max_iter=N counts iterations: epochs times records over batch size"},
    {"num_examples", "MXNet-G", true, "", "records are counted"},
    {"num_classes", "MXNet-G", true, "", "the net has them"},
    {"image_shape", "MXNet-G", true, "", "records have their size"},
    {"lr_factor", "MXNet-G", true, "", "it is gamma: --set='lr_policy: \"step\" gamma: F'"},
    {"lr_factor_epoch", "MXNet-G", true, "", "it is stepsize, in iterations"},
    {"lr_step_epochs", "MXNet-G", true, "", "they are stepvalues, in iterations"},
    {"gpus", "MXNet-G", true, "--gpu=", "the GPUs of this process"},
    {"network", "MXNet-G", true, "",
     "--solver names a solver, which names its net; models/ has some"},
    {"num_layers", "MXNet-G", true, "", "models/ has a net for each depth"},
    {"data_allocator", "MXNet-G", true, "",
     "partition_data --data_sharding=FILE cuts the data, and --share_by=WEIGHT divides it"},
    {"model_prefix", "MXNet-G", true, "", "it is the solver's snapshot_prefix"},
    {"load_epoch", "MXNet-G", true, "--snapshot=auto ", "the newest snapshot is gone on from"},
    {"kv_store_type", "MXNet-G", true, "--kv_store=", "it is --kv_store"},
    {"m", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"n", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"g", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"e", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"b", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"d", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"l", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"ll", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"s", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"ds", "ESync", true, "", "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
    {"dcasgd", "ESync", true, "",
     "examples/fashion_mnist/esync.py takes the flags of ESync's main.py"},
};

const ForeignFlag* find_foreign(std::string_view name) {
  const auto* const found = std::ranges::find(kForeign, name, &ForeignFlag::name);
  return found == std::end(kForeign) ? nullptr : found;
}

// A word of the command line, taken apart.
struct FlagWord {
  std::string name, value;
  bool has_value = false;
  explicit FlagWord(const std::string& word) {
    if (word.size() < 2 || word[0] != '-') return;
    const std::size_t begin = std::min(word.find_first_not_of('-'), word.size()),
                      equals = word.find('=');
    name = word.substr(begin, equals == std::string::npos ? equals : equals - begin);
    std::ranges::replace(name, '-', '_');
    has_value = equals != std::string::npos;
    if (has_value) value = word.substr(equals + 1);
  }
};

std::string for_shell(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  return "'" + word + "'";
}

// Returns the command in the words of this system.
std::string translated(const std::string& program, std::span<const std::string> args) {
  std::string launcher, words;
  for (std::size_t i = 0; i < args.size(); ++i) {
    FlagWord word(args[i]);
    const ForeignFlag* const foreign = find_foreign(word.name);
    if (!foreign) {
      words += " " + for_shell(args[i]);
      continue;
    }
    if (foreign->has_value && !word.has_value && i + 1 < args.size()) word.value = args[++i];
    if (foreign->here == kLauncher)
      launcher = str(kLauncher, word.value, " -- ");
    else if (foreign->here.ends_with('='))
      words += str(" ", foreign->here, for_shell(word.value));
    else if (!foreign->here.empty())
      words += str(" ", split(foreign->here, ' ')[0]);
  }
  return launcher + program + words;
}

}  // namespace

std::string foreign_flag(const std::string& name, const std::string& program,
                         std::span<const std::string> args) {
  const ForeignFlag* const foreign = find_foreign(name);
  if (!foreign) return "";
  std::string words = str("--", name, " is ", foreign->system, "'s; here ", foreign->why);
  if (foreign->system == "ESync") return words;
  std::vector<std::string> said = {name};
  for (const std::string& arg : args) {
    const ForeignFlag* const other = find_foreign(FlagWord(arg).name);
    if (!other || std::ranges::count(said, other->name) > 0) continue;
    said.emplace_back(other->name);
    words += str("\n--", other->name, ": ", other->why);
  }
  return str(words, "\nThe same here:\n  ", translated(program, args));
}

}  // namespace shoal
