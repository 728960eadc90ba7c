#include "shoal/simulate/cluster.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/proto/cluster.pb.h"
#include "shoal/proto/text_reader.h"

namespace shoal::simulate {
namespace {

constexpr double kMostSeconds = 1e6;            // of one thing
constexpr std::size_t kMostProcesses = 0xffff;  // that messages can name

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Cluster read(const ClusterParameter& param) {
    Cluster cluster;
    cluster.shared = param.sharing() == ClusterParameter::PER_PROCESS;
    cluster.overlap = param.overlap();
    if (param.has_coordinator_latency_ms())
      cluster.coordinator_latency =
          time_of(param.coordinator_latency_ms(), "coordinator_latency_ms");
    const auto add = [&](const auto& group, Process process, double ns, const char* field) {
      const CardParameter& card = group.has_card() ? group.card() : param.card();
      process.bandwidth = not_negative(card.bandwidth(), "bandwidth");
      if (process.bandwidth > 0 && process.bandwidth < 1)
        throw wrong("bandwidth is ", process.bandwidth,
                    "; it must be 1 byte a second or more, or 0 for no limit");
      process.latency = time_of(card.latency_ms(), "latency_ms");
      process.jitter = time_of(card.jitter_ms(), "jitter_ms");
      process.seconds_per_byte = not_negative(ns, field) / 1e9;
      if (group.count() > kMostProcesses - cluster.processes.size())
        throw wrong("count is ", group.count(), "; a cluster has at most ", kMostProcesses,
                    " processes");
      cluster.processes.insert(cluster.processes.end(), group.count(), process);
    };
    int number = 0;
    for (const WorkersParameter& workers : param.worker()) {
      group_ = str(", worker { } ", ++number);
      const bool server = workers.has_server() ? workers.server() : param.server_size() == 0;
      add(workers,
          {.server = server,
           .compute = compute_of(workers),
           .failure = failure_of(workers, server)},
          workers.server_ns_per_byte(), "server_ns_per_byte");
    }
    number = 0;
    for (const ServersParameter& servers : param.server()) {
      group_ = str(", server { } ", ++number);
      add(servers, {.worker = false, .server = true}, servers.ns_per_byte(), "ns_per_byte");
    }
    group_.clear();
    if (cluster.workers() == 0) throw wrong("there is no worker to train");
    if (cluster.servers() == 0) throw wrong("there is no server to hold the weights");
    return cluster;
  }

 private:
  template <class... Args>
  ConfigError wrong(const Args&... args) const {
    return ConfigError(Code::kConfig, name_, group_, ": ", args...);
  }

  double not_negative(double value, const char* field) const {
    if (!(value >= 0)) throw wrong(field, " is ", value, "; it must be 0 or more");
    return value;
  }
  double at_most(double seconds, const char* what) const {
    if (!(seconds <= kMostSeconds))
      throw wrong(what, " takes ", seconds, " s; at most ", kMostSeconds, " can be simulated");
    return seconds;
  }
  Instant time_of(double ms, const char* field) const {
    return to_instant(at_most(not_negative(ms, field) / 1e3, field));
  }

  Compute compute_of(const WorkersParameter& workers) const {
    const ComputeParameter& param = workers.compute();
    if (!(param.speed() > 0)) throw wrong("speed is ", param.speed(), "; it must be above 0");
    Compute compute;
    compute.distribution = param.distribution();
    compute.jitter = not_negative(param.jitter(), "jitter");
    const bool bounded = param.distribution() == ComputeParameter::UNIFORM ||
                         param.distribution() == ComputeParameter::EXPONENTIAL;
    if (bounded && compute.jitter > 1)
      throw wrong("jitter is ", compute.jitter, "; of this distribution it is at most 1");
    if (param.has_layers()) compute.layers = read_layers(param.layers());
    if (param.has_trace()) compute.trace = read_trace(param.trace(), param.speed());
    double seconds = 0;
    for (const Compute::Layer& layer : compute.layers) seconds += layer.forward + layer.backward;
    for (const double each : compute.trace)
      seconds += each * param.speed() / static_cast<double>(compute.trace.size());
    if (param.has_ms())
      seconds = not_negative(param.ms(), "ms") / 1e3;
    else if (seconds == 0)
      throw wrong("a worker's compute needs ms, layers or a trace");
    compute.mean = at_most(seconds / param.speed(), "an iteration of a worker");
    for (const SlowdownParameter& slow : workers.slowdown()) compute.slow.push_back(slow_of(slow));
    return compute;
  }

  Compute::Slow slow_of(const SlowdownParameter& param) const {
    if (!param.pause() && !(param.factor() > 0 && param.factor() <= kMostSeconds))
      throw wrong("a slowdown's factor is ", param.factor(), "; it must be above 0, and at most ",
                  kMostSeconds);
    Compute::Slow slow{to_instant(not_negative(param.from(), "from")), Instant::max(),
                       param.pause() ? 0 : param.factor()};
    if (param.has_to()) slow.to = to_instant(not_negative(param.to(), "to"));
    if (slow.to <= slow.from)
      throw wrong("a slowdown is from ", param.from(), " to ", param.to(), " s");
    if (param.pause() && !param.has_to()) throw wrong("a pause needs an end: to");
    return slow;
  }

  std::optional<Failure> failure_of(const WorkersParameter& workers, bool server) const {
    if (!workers.has_failure()) return std::nullopt;
    const FailureParameter& param = workers.failure();
    if (server)
      throw wrong(
          "failure { } of a worker with a server in its process: a simulated server has no "
          "second copy, and its rows would be lost; give the servers processes of their "
          "own: server { }");
    if (!param.has_mtbf() && param.at().empty())
      throw wrong("a failure needs mtbf, the mean time between failures, or at");
    if (param.has_mtbf() && !(param.mtbf() > 0))
      throw wrong("mtbf is ", param.mtbf(), "; it must be above 0");
    Failure failure{.mtbf = at_most(param.mtbf(), "mtbf"),
                    .at = {},
                    .repair = {},
                    .unnoticed = to_instant(
                        at_most(not_negative(param.unnoticed(), "unnoticed"), "unnoticed"))};
    for (const double at : param.at()) failure.at.push_back(at_most(not_negative(at, "at"), "at"));
    if (param.has_repair())
      failure.repair = at_most(not_negative(param.repair(), "repair"), "repair");
    return failure;
  }

  std::string text_of(const std::string& path) const {
    Result<std::string> text = read_file(path);
    if (!text.ok()) throw wrong(text.error().message);
    return std::move(text).value();
  }

  std::vector<double> read_trace(const std::string& path, double speed) const {
    std::vector<double> seconds;
    std::istringstream text(text_of(path));
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      ++number;
      for (const std::string& word : split(line, '\n')) {  // none in an empty line
        if (word[0] == '#') continue;
        const std::optional<double> ms = number_in<double>(word);
        if (!ms || !(*ms >= 0))
          throw ConfigError(Code::kConfig, path, ":", number, ": '", word,
                            "' is no number of milliseconds");
        seconds.push_back(*ms / 1e3 / speed);
      }
    }
    if (seconds.empty()) throw ConfigError(Code::kConfig, path, ": the trace has no line");
    return seconds;
  }

  // Reads lines of `time`: "... conv1\tforward: 1.5 ms." and the same with backward.
  std::vector<Compute::Layer> read_layers(const std::string& path) const {
    std::vector<Compute::Layer> layers;
    for (const std::string& line : split(text_of(path), '\n')) {
      for (const auto& [words, time] : {std::pair("\tforward: ", &Compute::Layer::forward),
                                        std::pair("\tbackward: ", &Compute::Layer::backward)}) {
        const std::size_t at = line.find(words);
        if (at == std::string::npos) continue;
        const std::size_t begin = line.find_last_of(" ]", at) + 1;  // 0 if there is none
        const std::string layer = line.substr(begin, at - begin);
        if (layers.empty() || layers.back().name != layer) layers.push_back({layer});
        layers.back().*time = std::strtod(line.c_str() + at + std::strlen(words), nullptr) / 1e3;
      }
    }
    if (layers.empty())
      throw ConfigError(
          Code::kConfig, path,
          ": no line has a layer's time; the file must hold what `time` prints on stderr");
    return layers;
  }

  const std::string& name_;
  std::string group_;  // that is being read: ", worker { } 2"
};

}  // namespace

Instant to_instant(double seconds) {
  constexpr double kMost = 1e9;  // the integer has room for nine of these
  return Instant(static_cast<std::int64_t>(std::clamp(seconds, -kMost, kMost) * 1e9 + 0.5));
}

int Cluster::count(bool Process::*role) const {
  return static_cast<int>(std::ranges::count(processes, true, role));
}

table::Servers Cluster::known_servers() const {
  std::vector<table::ServerSpeed> speeds;
  for (const Process& process : processes) {
    if (!process.server) continue;
    const int others = workers() - (process.worker ? 1 : 0);
    speeds.push_back({.bandwidth = process.bandwidth * (shared ? 1 : std::max(1, others)),
                      .busy = process.seconds_per_byte,
                      .has_worker = shared && process.worker});
  }
  return {std::move(speeds), workers()};
}

double Compute::draw(std::size_t n, Random& random) const {
  if (!trace.empty()) return trace[n % trace.size()];
  switch (distribution) {
    case ComputeParameter::CONSTANT: return mean;
    case ComputeParameter::UNIFORM:
      return mean * (1 - jitter + 2 * jitter * static_cast<double>(random.unit()));
    case ComputeParameter::NORMAL:
      return std::max(0.1 * mean, mean * (1 + jitter * static_cast<double>(random.gaussian(0, 1))));
    case ComputeParameter::LOGNORMAL: {
      const double variance = std::log(1 + jitter * jitter);
      return mean * std::exp(std::sqrt(variance) * static_cast<double>(random.gaussian(0, 1)) -
                             variance / 2);
    }
    case ComputeParameter::EXPONENTIAL:
      return mean * (1 - jitter - jitter * std::log(1 - static_cast<double>(random.unit())));
  }
  return mean;
}

// Goes from one change of the factor to the next.
Instant Compute::done(Instant now, double seconds) const {
  while (true) {
    double factor = 1;
    Instant until = Instant::max();
    for (const Slow& each : slow) {
      if (each.from <= now && now < each.to) {
        factor *= each.factor;
        until = std::min(until, each.to);
      } else if (now < each.from) {
        until = std::min(until, each.from);
      }
    }
    if (factor > 0) {
      const Instant end = now + to_instant(seconds * factor);
      if (end <= until) return end;
      seconds -= to_seconds(until - now) / factor;
    }
    now = until;
  }
}

Cluster parse_cluster(const std::string& text, const std::string& name) {
  ClusterParameter param;
  TextPlaces places;
  parse_text(text, name, param, places);
  return Reader(name).read(param);
}

Cluster read_cluster(const std::string& path) {
  return parse_cluster(or_throw(read_file(path)), path);
}

}  // namespace shoal::simulate
