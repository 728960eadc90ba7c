#include "common/help.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "shoal/base/error.h"
#include "shoal/base/text.h"

namespace shoal {
namespace {

// A tool with more flags than these shows with --help those of kUsualFlags alone.
constexpr std::size_t kFew = 30;
constexpr std::string_view kUsualFlags[] = {
    "batch",      "client_id",    "exchange", "explain_exchange", "gpu",         "hostfile",
    "join",       "local_steps",  "max_iter", "metrics",          "model",       "net_outputs",
    "precision",  "replicas",     "role",     "scheme",           "set",         "share_by",
    "snapshot",   "solver",       "stage",    "staleness",        "test_source", "threads",
    "token_file", "train_source", "weights"};

// The groups of flags, by the file that defines them.
constexpr std::pair<std::string_view, const char*> kGroups[] = {
    {"", "Flags"},
    {"solver_flags", "Solver"},
    {"data_flags", "Data"},
    {"net_flags", "Net"},
    {"device_flags", "Device"},
    {"kernel_flags", "Kernels of the CPU"},
    {"watch_flags", "Watching a run"},
    {"job_flags", "Jobs of several processes"},
    {"scheme_flags", "Scheme"},
    {"trial_flags", "Trials on one machine"}};

// Descriptions of flags with another system's name or another flag's meaning begin so.
constexpr std::string_view kOthers[] = {"Poseidon's", "SpeeDO's", "ESync's", "MXNet-G's",
                                        "the same as --"};

bool is_compat(const gflags::CommandLineFlagInfo& flag) {
  return std::ranges::any_of(kOthers,
                             [&](auto words) { return flag.description.starts_with(words); });
}

bool is_usual(const gflags::CommandLineFlagInfo& flag) {
  return std::ranges::find(kUsualFlags, flag.name) != std::end(kUsualFlags);
}

const char* group_of(const gflags::CommandLineFlagInfo& flag) {
  const char* title = kGroups[0].second;
  for (const auto& [file, group] : kGroups)
    if (flag.filename.find(str('/', file, '.')) != std::string::npos) title = group;
  return title;
}

void print_group(const char* group, const std::vector<gflags::CommandLineFlagInfo>& flags) {
  bool first = true;
  for (const auto& flag : flags) {
    if (group_of(flag) != group) continue;
    if (std::exchange(first, false)) std::printf("\n%s:\n", group);
    const std::string value =
        flag.type == "string" ? "\"" + flag.default_value + "\"" : flag.default_value;
    std::printf("  --%s  %s (%s, default %s)\n", flag.name.c_str(), flag.description.c_str(),
                flag.type.c_str(), value.c_str());
  }
}

}  // namespace

Help help_named(const std::string& value) {
  if (value.empty()) return Help::kUsual;
  if (value == "all") return Help::kAll;
  if (value == "compat") return Help::kCompat;
  throw ConfigError(Code::kUsage, "--help=", value,
                    ": known are --help, --help=all and "
                    "--help=compat");
}

std::vector<gflags::CommandLineFlagInfo> own_flags() {
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  std::erase_if(all, [](const auto& flag) { return flag.filename.rfind("tools/", 0) != 0; });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

void print_help(const char* usage, Help help) {
  auto flags = own_flags();
  const auto compat = std::erase_if(
      flags, [&](const auto& flag) { return is_compat(flag) != (help == Help::kCompat); });
  const std::size_t rest = flags.size();
  if (help == Help::kUsual && flags.size() > kFew) std::erase_if(flags, std::not_fn(is_usual));
  std::printf("%s\n", usage);
  for (const auto& [file, group] : kGroups) print_group(group, flags);
  std::printf("\n  --v=N  how much detail the log holds; --help, --version\n");
  if (rest > flags.size()) std::printf("  --help=all  %zu more flags\n", rest - flags.size());
  if (help != Help::kCompat && compat > 0)
    std::printf("  --help=compat  %zu flags of other systems\n", compat);
  if (!flags.empty()) std::printf("Each flag may also be given as a variable, SHOAL_<FLAG>.\n");
}

}  // namespace shoal
