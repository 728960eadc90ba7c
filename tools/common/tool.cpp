#include "common/tool.h"

#include <gflags/gflags.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "common/foreign_flags.h"
#include "common/help.h"
#include "common/machine.h"
#include "common/python_layers.h"
#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/version.h"
#include "shoal/ops/cpu_kernels.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

constexpr std::string_view kPrefix = "SHOAL_";  // of variables that stand for flags

struct CommandLine {
  std::vector<std::string> words;
  std::vector<std::string> set;  // names of flags that were given
  std::optional<Help> help;
  bool version = false;
};

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::optional<gflags::CommandLineFlagInfo> find_flag(const std::string& name) {
  gflags::CommandLineFlagInfo info;
  if (!gflags::GetCommandLineFlagInfo(name.c_str(), &info)) return std::nullopt;
  return info;
}

[[noreturn]] void unknown_flag(const std::string& name, std::span<const std::string> args) {
  if (const std::string words = foreign_flag(name, program_invocation_name, args);
      find_flag("solver") && !words.empty())
    throw ConfigError(Code::kUsage, words);
  if (find_flag("set") && SolverParameter::descriptor()->FindFieldByName(name))
    throw ConfigError(Code::kUsage, "unknown flag --", name, "; a field of the solver is given as ",
                      "--set='", name, ": ...'");
  std::vector<std::string> known = {"help", "version", "v"};
  for (const auto& flag : own_flags()) known.push_back(flag.name);
  const std::string near = nearest(name, known);
  throw ConfigError(Code::kUsage, "unknown flag --", name,
                    near.empty() ? "" : "; did you mean --" + near + "?");
}

void set_flag(const gflags::CommandLineFlagInfo& flag, const std::string& value,
              const std::string& given_as) {
  if (!gflags::SetCommandLineOption(flag.name.c_str(), value.c_str()).empty()) return;
  throw ConfigError(Code::kUsage, given_as, ": '", value, "' is not a value of this flag (",
                    flag.type, ")");
}

// Returns the flag meant by --noNAME or --no_NAME, if NAME is a bool.
std::optional<gflags::CommandLineFlagInfo> negated_flag(const std::string& name) {
  if (name.rfind("no", 0) != 0) return std::nullopt;
  auto flag = find_flag(name.substr(2));
  if (!flag && name.rfind("no_", 0) == 0) flag = find_flag(name.substr(3));
  if (!flag || flag->type != "bool") return std::nullopt;
  return flag;
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) &&
         word[1] != '.';
}

// Reads args[at], and the word after it if the flag needs that one for its value. Returns how many
// words were used.
std::size_t read_flag(std::span<const std::string> args, std::size_t at, CommandLine& line) {
  const std::string& word = args[at];
  const auto start = word.find_first_not_of('-');
  const auto equals = word.find('=');
  std::string name =
      start == std::string::npos
          ? word
          : word.substr(start, equals == std::string::npos ? equals : equals - start);
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "version") return line.version = true, 1;
  if (name == "help" || name == "h") {
    line.help = help_named(equals == std::string::npos ? "" : word.substr(equals + 1));
    return 1;
  }
  const auto flag = find_flag(name);
  if (!flag) {
    const auto negated = negated_flag(name);
    if (!negated || equals != std::string::npos) unknown_flag(name, args);
    set_flag(*negated, "false", word);
    line.set.push_back(negated->name);
    return 1;
  }
  line.set.push_back(flag->name);
  if (equals != std::string::npos) return set_flag(*flag, word.substr(equals + 1), word), 1;
  if (flag->type == "bool") return set_flag(*flag, "true", word), 1;
  if (at + 1 == args.size())
    throw ConfigError(Code::kUsage, word, " needs a value (", flag->type, ")");
  return set_flag(*flag, args[at + 1], word), 2;
}

CommandLine read_command_line(std::span<const std::string> args) {
  CommandLine line;
  for (std::size_t at = 0; at < args.size();) {
    if (args[at] == "--") {
      line.words.insert(line.words.end(), args.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                        args.end());
      break;
    }
    if (is_flag(args[at]))
      at += read_flag(args, at, line);
    else
      line.words.push_back(args[at++]);
  }
  return line;
}

std::string variable_of(const std::string& flag) {
  std::string variable = str(kPrefix, flag);
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return variable;
}

void read_environment(const std::vector<std::string>& already_set) {
  for (const auto& flag : own_flags()) {
    if (std::find(already_set.begin(), already_set.end(), flag.name) != already_set.end()) continue;
    const std::string variable = variable_of(flag.name);
    if (const char* value = std::getenv(variable.c_str())) set_flag(flag, value, variable);
  }
}

// Variables of this kind that are no flags, or not of every tool.
constexpr const char* kNoFlags[] = {"CPU_KERNELS", "DATA_DIR",    "JOBS",
                                    "JOB_TOKEN",   "PLOT_PYTHON", "SHARED"};

// Names each variable that looks like a misspelt one of these or of the flags.
void warn_of_misspelt_variables() {
  std::vector<std::string> known(std::begin(kNoFlags), std::end(kNoFlags));
  for (const auto& flag : own_flags())
    known.push_back(variable_of(flag.name).substr(kPrefix.size()));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kPrefix)) continue;
    const std::string_view name = text.substr(kPrefix.size(), text.find('=') - kPrefix.size());
    const std::string near = nearest(name, known);
    if (!near.empty() && near != name)
      LOG(WARNING) << "the variable " << kPrefix << name
                   << " belongs to no flag of this tool; did you mean " << kPrefix << near << '?';
  }
}

// Returns the kernels that --cpu_kernels names, if the tool has this flag (device_flags).
ops::CpuKernels kernels_of_flags() {
  const auto flag = find_flag("cpu_kernels");
  return flag ? ops::cpu_kernels_named(flag->current_value) : ops::CpuKernels::kAuto;
}

// glog's flag, or its variable GLOG_log_dir, names a folder for files of the log, which goes to the
// standard error all the same.
void log_to_files() {
  if (FLAGS_log_dir.empty()) return;
  if (!std::filesystem::is_directory(FLAGS_log_dir))
    throw ConfigError(Code::kUsage, "--log_dir=", FLAGS_log_dir,
                      ": there is no such folder (the variable GLOG_log_dir names it too)");
  FLAGS_logtostderr = false;
  FLAGS_alsologtostderr = true;
}

// protobuf says by itself, and without a place, that a string is no UTF-8; the reader of the file
// has said it with the line.
void say_once(google::protobuf::LogLevel level, const char*, int, const std::string& message) {
  if (message.find("invalid UTF-8") != std::string::npos) return;
  if (level >= google::protobuf::LOGLEVEL_ERROR)
    LOG(ERROR) << message;
  else
    LOG(WARNING) << message;
}

void print_version() {
  std::printf("shoal %s\nCPU kernels: %s\n", kVersion, ops::describe_cpu_kernels().c_str());
}

}  // namespace

int run_tool(int argc, char** argv, const char* usage,
             int (*body)(const std::vector<std::string>& words)) {
  const std::string name = argc > 0 ? base_name(argv[0]) : "tool";
  ::prctl(PR_SET_NAME, name.c_str());  // in ps and top; the program was started as /proc/self/exe
  // A file that outgrows the process's limit is an error of its write, not the process's end.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
    const CommandLine line = read_command_line(args);
    if (line.help) return print_help(usage, *line.help), 0;
    start_log(argv[0]);
    google::protobuf::SetLogHandler(say_once);
    read_environment(line.set);
    log_to_files();
    prepare_libraries(argv, kernels_of_flags());
    if (line.version) return print_version(), 0;
    warn_of_misspelt_variables();
    bring_python_layers();
    return body(line.words);
  } catch (const ConfigError& error) {
    std::fflush(stdout);
    if (error.error().code != Code::kUsage) {
      LOG(ERROR) << error.what();
    } else {
      std::fprintf(stderr, "%s\n", error.what());
      std::fprintf(stderr, "Try '%s --help'.\n", name.c_str());
    }
    return static_cast<int>(error.error().code);
  } catch (const std::bad_alloc&) {
    std::fflush(stdout);
    std::fprintf(
        stderr,
        "%s: out of memory; a smaller batch_size, smaller images or a smaller net may fit\n",
        name.c_str());
    return static_cast<int>(Code::kConfig);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: internal error: %s\n", name.c_str(), error.what());
    return static_cast<int>(Code::kInternal);
  }
}

std::vector<std::string> read_flags(std::span<const std::string> args) {
  const CommandLine line = read_command_line(args);
  if (line.help || line.version)
    throw ConfigError(Code::kUsage, "--help and --version are the tools' own");
  read_environment(line.set);
  return line.words;
}

std::vector<std::string> given_of(std::span<const std::string_view> files) {
  std::vector<std::string> names;
  for (const auto& flag : own_flags())
    for (const std::string_view file : files)
      if (flag.current_value != flag.default_value &&
          flag.filename.find(str('/', file, '.')) != std::string::npos)
        names.push_back(flag.name);
  return names;
}

bool given(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

}  // namespace shoal
