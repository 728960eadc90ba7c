#include "common/watch.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"

namespace shoal {
namespace {

std::size_t columns_of_terminal() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1u : 79;
}

}  // namespace

Watch::Watch(const WatchOptions& options, std::string role, std::int64_t max_iter)
    : options_(options), max_iter_(max_iter), board_(std::move(role), max_iter) {
  if (!options.status) return;
  Result<std::unique_ptr<StatusServer>> server = StatusServer::start(*options.status, board_);
  if (!server.ok())
    throw ConfigError(server.error().code, "--status_port: ", server.error().message);
  server_ = std::move(server).value();
  LOG(INFO) << "The run is shown at " << server_->url();
}

Watch::~Watch() { board_.end(); }

std::vector<MetricsSink*> Watch::sinks(bool chief) {
  std::vector<MetricsSink*> sinks;
  if (server_) sinks.push_back(&board_);
  if (options_.bar && chief) sinks.push_back(&bar_.emplace(max_iter_, columns_of_terminal()));
  return sinks;
}

void Watch::begin(const RunMetrics& run) { board_.begin(run); }

void Watch::see(const table::RosterBody& roster, const table::Table* table) {
  if (!server_) return;
  JobStatus job{.rank = rank_, .generation = roster.generation};
  for (const table::RosterBody::Process& one : roster.processes) {
    if (one.worker < 0 && one.server < 0) continue;  // has left
    job.processes.push_back({.rank = one.rank,
                             .host = one.host,
                             .worker = one.worker,
                             .server = one.server,
                             .alive = !table || !table->is_gone(one.rank)});
  }
  if (table) {
    const table::Traffic traffic = table->traffic();
    job.bytes_sent = traffic.bytes_sent;
    job.bytes_received = traffic.bytes_received;
  }
  board_.set_job(std::move(job));
}

void Watch::see_pace(const std::string& json) {
  if (server_) board_.set_pace(json);
  if (options_.pace_json.empty()) return;
  const std::string fresh = options_.pace_json + ".new";
  // Does not wait for the disk: the job would wait, too.
  if (std::ofstream(fresh, std::ios::binary) << json &&
      std::rename(fresh.c_str(), options_.pace_json.c_str()) == 0)
    return;
  if (!std::exchange(pace_failed_, true))
    LOG(WARNING) << "--pace_json: " << why_not_created(options_.pace_json, errno);
}

}  // namespace shoal
