#include "common/watch_flags.h"

#include <gflags/gflags.h>

#include <cstdlib>

#include "common/tool.h"
#include "shoal/report/progress.h"
#include "shoal/table/table.h"

DEFINE_string(metrics, "",
              "write what each worker did in each iteration to DIR/metrics.<worker>.jsonl, and "
              "displays and tests to the first's");
DEFINE_int32(metrics_limit_mb, 512,
             "with --metrics: most MB that a worker's files may take; at half of it the file "
             "becomes metrics.<worker>.jsonl.1, in place of the one before; 0: no limit");
DEFINE_string(tensorboard, "",
              "write event files for TensorBoard to DIR, in a job to DIR/worker<k>");
DEFINE_int32(tensorboard_histograms, 0,
             "with --tensorboard: write how params and gradients are distributed every so many "
             "iterations; 0: never");
DEFINE_string(pace_json, "",
              "with esync: process 0 writes what ESync's state server shows to this file, anew "
              "after each round");
DEFINE_int32(
    status_port, -1,
    "show the run at http://127.0.0.1:PORT/ while it trains: a page, /status.json and "
    "/metrics for Prometheus. The k-th process of a job on a machine takes the k-th port from "
    "this on, or the next that is free; 0: any");
DEFINE_string(status_token_file, "",
              "a file with the token that lets other machines see the status page, if the variable "
              "SHOAL_STATUS_TOKEN does not hold it; not the job's token");
DEFINE_string(progress, "auto",
              "bar: one line at the bottom of the terminal instead of the lines of displays; log: "
              "these lines; auto: bar on a terminal");

namespace shoal {
namespace {

template <class... Words>
ConfigError usage(const Words&... words) {
  return ConfigError(Code::kUsage, words...);
}

std::string status_token(const JobFlags& flags) {
  std::string token;
  if (const char* variable = std::getenv("SHOAL_STATUS_TOKEN"))
    token = variable;
  else if (!FLAGS_status_token_file.empty())
    token = token_in(FLAGS_status_token_file, "status_token_file");
  else
    return "";
  if (token.size() < table::kShortestToken)
    throw usage("the status page's token has ", token.size(), " bytes, fewer than ",
                table::kShortestToken, ": it could be guessed");
  if (token == read_token(flags))
    throw usage(
        "the status page has the job's token: who may look could then take part. Give it "
        "one of its own");
  if (token.find_first_of(" \t\r\n;,\"\\&=?#%+") != std::string::npos)
    throw usage(
        "the status page's token has a character that an address or a cookie cannot hold: "
        "use letters and digits");
  return token;
}

}  // namespace

WatchOptions watch_of_flags(const JobFlags& flags) {
  if (FLAGS_metrics_limit_mb < 0 || FLAGS_metrics_limit_mb > 1 << 20)
    throw usage("--metrics_limit_mb=", FLAGS_metrics_limit_mb, " is not from 0 to ", 1 << 20);
  if (FLAGS_tensorboard_histograms < 0)
    throw usage("--tensorboard_histograms=", FLAGS_tensorboard_histograms,
                " is no number of iterations; it is 0 or more");
  if (FLAGS_tensorboard_histograms > 0 && FLAGS_tensorboard.empty())
    throw usage("--tensorboard_histograms=", FLAGS_tensorboard_histograms,
                " needs --tensorboard=DIR, where they are written");
  if (FLAGS_progress != "auto" && FLAGS_progress != "bar" && FLAGS_progress != "log")
    throw usage("--progress=", FLAGS_progress, ": known are auto, bar and log");
  if (FLAGS_status_port < -1 || FLAGS_status_port > 65535)
    throw usage("--status_port=", FLAGS_status_port, " is not from 0 to 65535");
  WatchOptions options{
      .metrics = FLAGS_metrics,
      .metrics_limit_mb = FLAGS_metrics_limit_mb,
      .tensorboard = FLAGS_tensorboard,
      .histograms_every = FLAGS_tensorboard_histograms,
      .pace_json = FLAGS_pace_json,
      .bar = FLAGS_progress == "bar" || (FLAGS_progress == "auto" && progress_shown())};
  if (FLAGS_status_port >= 0)
    options.status = StatusServerOptions{.port = static_cast<std::uint16_t>(FLAGS_status_port),
                                         .token = status_token(flags),
                                         .certificate = flags.certificates.certificate,
                                         .key = flags.certificates.key,
                                         .authorities = flags.certificates.authorities};
  return options;
}

}  // namespace shoal
