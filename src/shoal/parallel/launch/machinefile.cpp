// Reads a machinefile of any of the known formats into the processes of a job. Errors name the
// file, the line and what is wrong; several are reported together.
#include <arpa/inet.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

#include "shoal/base/address.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/compat/launchers.h"
#include "shoal/parallel/cluster.h"

namespace shoal::parallel {
namespace {

constexpr std::pair<HostfileFormat, const char*> kFormats[] = {
    {HostfileFormat::kAuto, "auto"},           {HostfileFormat::kPoseidon, "poseidon"},
    {HostfileFormat::kOpenMpi, "openmpi"},     {HostfileFormat::kHorovod, "horovod"},
    {HostfileFormat::kDeepSpeed, "deepspeed"}, {HostfileFormat::kMxnet, "mxnet"},
    {HostfileFormat::kMpich, "mpich"}};
constexpr std::size_t kMostErrors = 10;

using compat::kMostPort;
using compat::kMostProcesses;
using Words = std::vector<std::string>;

bool all_digits(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the value of a word of digits alone, from `least` to `most`.
std::optional<int> whole(std::string_view word, int least, int most) {
  return all_digits(word) ? number_in(word, least, most) : std::nullopt;
}

Words words_of(std::string_view line) {
  Words words;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool is_ipv6(std::string host) {
  host.resize(std::min(host.find('%'), host.size()));  // the zone of a link-local address
  in6_addr bytes{};
  return inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

// Parses one line. Its errors go to `errors`.
class Line {
 public:
  Line(Words words, int number, HostfileFormat format) : format_(format), words_(std::move(words)) {
    process.line = number;
    const bool has_id = words_.size() >= 3 && all_digits(words_[0]);
    if (format_ == HostfileFormat::kPoseidon && !has_id) {
      wrong("'", join(words_, " "), "' is not 'id address port', as every line of this format");
      return;
    }
    if (has_id) read_id();
    if (!has_id) read_address(words_[0]);
    for (std::size_t i = has_id ? 3 : 1; i < words_.size(); ++i) read_key(words_[i]);
    if (id && slots > 1)
      wrong("slots=", slots, " on a line with an id; a line with an id is one process");
    if (max_slots_ < slots) wrong("slots=", slots, " is more than max_slots=", max_slots_);
  }

  Process process;  // without id
  std::optional<int> id;
  int slots = 1;
  Words errors;

 private:
  template <class... Args>
  void wrong(const Args&... args) {
    errors.push_back(str(args...));
  }

  void read_id() {
    id = whole(words_[0], 0, kMostProcesses - 1);
    if (!id) wrong("id ", words_[0], " is not from 0 to ", kMostProcesses - 1);
    read_host(words_[1]);
    if (const auto port = whole(words_[2], 1, kMostPort))
      process.port = *port;
    else
      wrong("'", words_[2],
            "' is not a port from 1 to 65535; a line that begins with an id is 'id address port'");
  }

  // Reads a host, or what some mean by host:N.
  void read_address(const std::string& word) {
    const std::size_t colon = word.find(':');
    const bool one = colon != std::string::npos && word.find(':', colon + 1) == std::string::npos &&
                     !word.starts_with('[');
    if (!one) return read_host(word);
    const std::string host = word.substr(0, colon), number = word.substr(colon + 1);
    read_host(host);
    if (format_ == HostfileFormat::kMxnet) return read_key("ssh_port=" + number);
    if (format_ == HostfileFormat::kMpich || format_ == HostfileFormat::kHorovod)
      return read_key("slots=" + number);
    if (format_ == HostfileFormat::kAuto)
      wrong("'", word, "' is ambiguous: write '", host, " ssh_port=", number, "' or '", host,
            " slots=", number, "' (or 'port=' for the table service), or give --hostfile_format");
    else
      wrong("'", word, "' has a colon, which means nothing in this format");
  }

  void read_host(const std::string& word) {
    process.host = word;
    if (word.starts_with('[')) {
      process.host = word.substr(1, word.size() - (word.ends_with(']') ? 2 : 1));
      if (!word.ends_with(']') || !is_ipv6(process.host))
        wrong("'", word, "' is not an IPv6 address in brackets");
    } else if (is_ipv6(word)) {
      wrong("IPv6 address ", word, " without brackets; write [", word, "]");
    } else if (const std::size_t at = word.find('@'); at != std::string::npos) {
      wrong("'", word, "' has a user; write '", word.substr(at + 1), " user=", word.substr(0, at),
            "'");
    } else if (!is_name(word)) {
      wrong("'", word, "' is neither a host's name nor an address");
    } else if (word.find_first_not_of("0123456789.") == std::string::npos) {
      in_addr bytes{};
      if (inet_pton(AF_INET, word.c_str(), &bytes) != 1)
        wrong("'", word, "' is not an IPv4 address");
    }
  }
  static bool is_name(const std::string& word) {
    const auto good = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '-' || c == '_';
    };
    return !word.empty() && word.size() <= 253 && std::ranges::all_of(word, good) &&
           word[0] != '-' && word[0] != '.';
  }

  void read_key(const std::string& word) {
    static const Words kKeys = {"slots", "max_slots", "port",  "ssh_port", "user",      "gpus",
                                "group", "data",      "iface", "weight",   "bandwidth", "role"};
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals),
                      value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (equals == std::string::npos)
      return wrong("'", word, "' is not key=value",
                   all_digits(words_[0]) ? "; a line with an id is 'id address port'" : "");
    if (std::ranges::find(kKeys, key) == kKeys.end())
      return wrong("unknown key '", key, "'", known_words(key, kKeys));
    if (!keys_.insert(key).second || (key == "port" && id)) return wrong(key, " is given twice");
    if (value.empty()) return wrong(key, "= has no value");
    read_value(key, value);
  }

  void read_value(const std::string& key, const std::string& value) {
    if (key == "slots") return read_number(key, value, kMostProcesses, slots);
    if (key == "max_slots") return read_number(key, value, kMostProcesses, max_slots_);
    if (key == "port") return read_number(key, value, kMostPort, process.port);
    if (key == "ssh_port") return read_number(key, value, kMostPort, process.ssh_port);
    if (key == "user") process.user = value;
    if (key == "group") process.group = value;
    if (key == "data") process.data = value;
    if (key == "iface") process.interface = value;
    if (key == "gpus") read_gpus(value);
    if (key == "weight") read_positive(key, value, process.weight);
    if (key == "bandwidth") read_positive(key, value, process.bandwidth);
    if (key == "role") read_role(value);
  }

  void read_number(const std::string& key, const std::string& value, int most, int& number) {
    if (const auto read = whole(value, 1, most))
      number = *read;
    else
      wrong(key, "=", value, " is not from 1 to ", most);
  }

  void read_gpus(const std::string& value) {
    for (const std::string& part : split(value, ',')) {
      const auto gpu = whole(part, 0, 1023);
      if (!gpu || std::ranges::find(process.gpus, *gpu) != process.gpus.end())
        return wrong("gpus=", value, " is not a list of different numbers");
      process.gpus.push_back(*gpu);
    }
    if (process.gpus.empty()) wrong("gpus=", value, " is not a list of different numbers");
  }

  void read_positive(const std::string& key, const std::string& value, double& number) {
    number = number_in<double>(value).value_or(0);
    if (!std::isfinite(number) || number <= 0) wrong(key, "=", value, " is not a number above 0");
  }

  void read_role(const std::string& value) {
    if (const std::optional<Role> role = role_named(value))
      process.role = *role;
    else
      wrong("role=", value, " is not worker, server or both");
  }

  HostfileFormat format_;
  Words words_;
  std::set<std::string> keys_;
  int max_slots_ = kMostProcesses;
};

// Returns "line 3", "lines 2 and 5", "lines 1, 2 and 4".
std::string lines_text(const std::vector<int>& numbers) {
  std::string text = numbers.size() == 1 ? "line " : "lines ";
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text += str(i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  return text;
}

class Machinefile {
 public:
  Machinefile(std::string_view text, const std::string& name, HostfileFormat format)
      : name_(name), format_(format) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    std::istringstream in{std::string(text)};
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) read_line(line, number);
    if (errors_.empty() && lines_.empty()) errors_.push_back(name_ + ": names no machine");
    if (errors_.empty()) check_ids();
    if (errors_.empty()) make_processes();
    if (errors_.empty()) check_addresses();
  }

  Result<std::vector<Process>> result() && {
    if (errors_.empty()) return std::move(processes_);
    const std::size_t more = errors_.size() - std::min(errors_.size(), kMostErrors);
    errors_.resize(errors_.size() - more);
    return Error{Code::kUsage,
                 join(errors_, "\n") + (more > 0 ? str("\n... and ", more, " more") : "")};
  }

 private:
  void read_line(std::string_view text, int number) {
    text = text.substr(0, text.find('#'));
    if (text.ends_with('\r')) text.remove_suffix(1);
    Words words = words_of(text);
    if (words.empty()) return;
    lines_.emplace_back(std::move(words), number, format_);
    for (const std::string& error : lines_.back().errors)
      errors_.push_back(str(name_, ":", number, ": ", error));
  }

  void check_ids() {
    std::vector<int> with, without, beyond;
    std::map<int, std::vector<int>> lines;
    const int count = static_cast<int>(lines_.size());
    for (const Line& line : lines_) {
      (line.id ? with : without).push_back(line.process.line);
      if (line.id) lines[*line.id].push_back(line.process.line);
      if (line.id && *line.id >= count) beyond.push_back(line.process.line);
    }
    if (with.empty()) return;
    if (!without.empty())
      return wrong(lines_text(with), " begin", with.size() == 1 ? "s" : "", " with an id and ",
                   lines_text(without), without.size() == 1 ? " does" : " do",
                   " not; all must, or none");
    for (const auto& [id, numbers] : lines)
      if (numbers.size() > 1) wrong(lines_text(numbers), " have the same id ", id);
    Words missing;
    for (int id = 0; id < count; ++id)
      if (!lines.contains(id)) missing.push_back(str(id));
    if (!missing.empty())
      wrong("ids of ", count, " lines must be 0 to ", count - 1, ", and ", join(missing),
            missing.size() == 1 ? " is" : " are", " missing",
            beyond.empty() ? "" : "; ids that are too large: " + lines_text(beyond));
  }

  // Makes a process of each slot, on a port of its own. A host that is named again without a port
  // continues with the next port.
  void make_processes() {
    std::ranges::stable_sort(lines_, {}, [](const Line& line) { return line.id.value_or(0); });
    std::set<std::pair<std::string, int>> taken;
    for (const Line& line : lines_) {
      const bool given = line.process.port != 0;
      for (int slot = 0; slot < line.slots; ++slot) {
        Process process = line.process;
        process.id = static_cast<int>(processes_.size());
        const int gpus = static_cast<int>(process.gpus.size()), each = gpus / line.slots;
        if (gpus > 1 && gpus % line.slots != 0)
          return wrong(lines_text({process.line}), ": ", gpus, " gpus cannot be divided among ",
                       line.slots, " slots");
        if (const auto first = line.process.gpus.begin() + slot * each; gpus > 1)
          process.gpus.assign(first, first + each);
        process.port = (given ? line.process.port : kDefaultPort) + slot;
        const std::string host = machine_of(process.host);
        while (!given && taken.contains({host, process.port})) ++process.port;
        if (process.port > kMostPort)
          return wrong(lines_text({process.line}), " needs ports above 65535");
        taken.insert({host, process.port});
        processes_.push_back(std::move(process));
        if (processes_.size() > static_cast<std::size_t>(kMostProcesses))
          return wrong("more than ", kMostProcesses, " processes");
      }
    }
  }

  void check_addresses() {
    std::map<std::pair<std::string, int>, std::vector<int>> lines;
    std::map<std::string, std::vector<int>> hosts;
    for (const Process& process : processes_)
      lines[{machine_of(process.host), process.port}].push_back(process.line);
    for (const Line& line : lines_) hosts[line.process.host].push_back(line.process.line);
    for (const auto& [address, numbers] : lines)
      if (numbers.size() > 1)
        wrong(lines_text(numbers), " have the same address ",
              join_address(address.first, str(address.second)));
    if (format_ != HostfileFormat::kDeepSpeed) return;
    for (const auto& [host, numbers] : hosts)
      if (numbers.size() > 1)
        wrong(lines_text(numbers), " name ", host, " again, which this format does not allow");
  }

  template <class... Args>
  void wrong(const Args&... args) {
    errors_.push_back(str(name_, ": ", args...));
  }

  const std::string name_;
  const HostfileFormat format_;
  std::vector<Line> lines_;
  std::vector<Process> processes_;
  Words errors_;
};

}  // namespace

const char* name_of(Role role) {
  return role == Role::kBoth ? "both" : role == Role::kWorker ? "worker" : "server";
}

std::optional<Role> role_named(std::string_view name) {
  for (const Role role : {Role::kBoth, Role::kWorker, Role::kServer})
    if (name == name_of(role)) return role;
  return std::nullopt;
}

std::optional<HostfileFormat> hostfile_format_named(std::string_view name) {
  for (const auto& [format, known] : kFormats)
    if (name == known) return format;
  return std::nullopt;
}

Result<std::string> groups_of(const std::vector<Process>& machines) {
  std::vector<std::string> names, workers;
  std::vector<int> without;
  int worker = 0;
  for (const Process& process : machines) {
    if (process.role == Role::kServer) continue;
    const auto known = std::ranges::find(names, process.group);
    const auto at = static_cast<std::size_t>(known - names.begin());
    if (process.group.empty())
      without.push_back(process.line);
    else if (known != names.end())
      workers[at] += str(',', worker);
    else
      names.push_back(process.group), workers.push_back(str(worker));
    ++worker;
  }
  if (!names.empty() && !without.empty())
    return Error{Code::kUsage, str("the machinefile gives groups, but none for the workers of ",
                                   lines_text(without), "; give group= to all, or to none")};
  return join(workers, "|");
}

std::vector<double> server_bandwidths(const std::vector<Process>& machines) {
  std::vector<double> bandwidths;
  for (const Process& process : machines) {
    if (process.role == Role::kWorker) continue;
    if (process.bandwidth == 0) return {};
    bandwidths.push_back(process.bandwidth);
  }
  return bandwidths;
}

std::vector<double> worker_weights(const std::vector<Process>& machines) {
  std::vector<double> weights;
  for (const Process& process : machines)
    if (process.role != Role::kServer) weights.push_back(process.weight);
  const bool equal = std::ranges::adjacent_find(weights, std::not_equal_to()) == weights.end();
  return equal ? std::vector<double>() : weights;
}

std::string machine_of(const std::string& host) {
  return host == "localhost" || host == "::1" ? "127.0.0.1" : host;
}

Result<std::vector<Process>> parse_machinefile(std::string_view text, const std::string& name,
                                               HostfileFormat format) {
  return Machinefile(text, name, format).result();
}

}  // namespace shoal::parallel
