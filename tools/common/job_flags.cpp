#include "common/job_flags.h"

#include <arpa/inet.h>
#include <gflags/gflags.h>

#include <algorithm>

#include "common/scheme_flags.h"
#include "common/tool.h"
#include "common/trial_flags.h"
#include "shoal/base/number.h"

DEFINE_string(hostfile, "",
              "the machinefile: the processes of the job, one a line, \"id address port\" or "
              "\"address key=value ...\"");
DEFINE_string(machinefile, "", "the same as --hostfile");
DEFINE_string(hostfile_format, "auto",
              "what \"host:N\" means in the machinefile: auto, poseidon, openmpi, horovod, "
              "deepspeed, mxnet or mpich");
DEFINE_int32(client_id, -1,
             "which process of the job this is, from 0; default: as the launcher's variables say");
DEFINE_int32(num_clients, -1,
             "how many processes the job has; default: those of the machinefile, or as the "
             "launcher's variables say");
DEFINE_string(
    master, "",
    "host:port of process 0; default: the machinefile's, or as the launcher's variables say");
DEFINE_string(role, "", "worker, server or both; default: the machinefile's, or both");
DEFINE_string(host, "", "the address to listen on; default: the machinefile's");
DEFINE_string(advertise, "",
              "host or host:port where others reach this process; default: where it listens");
DEFINE_string(interface, "", "listen on the address of this network interface");
DEFINE_int32(port, -1,
             "the port to listen on, 0: a free one; default: the machinefile's, or 29600 of "
             "process 0 and a free one of others");
DEFINE_string(port_range, "", "\"29600-29699\": listen on the first free port of these");
DEFINE_int32(replicas, 0,
             "nets that one process trains with, each with a part of the data; default 1");
DEFINE_int32(num_table_threads, 0, "Poseidon's flag: the number of --replicas, plus one");
DEFINE_string(batch_semantics, "",
              "PER_WORKER or GLOBAL: whose batch batch_size is; default: the solver's");
DEFINE_string(share_by, "",
              "EQUAL, WEIGHT (of the machinefile or --data_sharding) or SPEED (as measured): how "
              "workers divide a source that all share; in lockstep the batch too");
DEFINE_string(batch_by, "",
              "EQUAL, WEIGHT or SPEED: how workers divide a batch of all; default: as --share_by "
              "under schemes in lockstep, else EQUAL");
DEFINE_string(share_interval, "",
              "with --share_by=SPEED: iterations between measurements of the speeds; 0: measure "
              "once; default: an epoch");
DEFINE_string(exchange, "",
              "how gradients travel between workers: AUTO, TABLE, FACTORS, TREE, RING, "
              "HALVING_DOUBLING, DIRECT, MPI or NCCL; then exceptions by a layer's name or type: "
              "\"AUTO,fc8=TABLE\". docs/choosing-an-exchange.md");
DEFINE_string(codec, "",
              "in which codecs numbers travel to servers and back: \"push=topk:0.01:8,pull=bf16\", "
              "with exceptions, \"fc8.push=float32\"; or AUTO:half, AUTO:eighth, AUTO:sparse. "
              "docs/slow-links.md");
DEFINE_bool(svb, false, "Poseidon's flag: the same as --exchange=FACTORS");
DEFINE_string(data_sharding, "",
              "a file with the workers' shares of the data, a line \"begin end\" each, in "
              "fractions, as MXNet-G has them");
DEFINE_int32(start_timeout, 300, "seconds within which all processes must have joined");
DEFINE_int32(connect_timeout, 10, "seconds for an attempt to connect");
DEFINE_int32(stall_warn, 10, "seconds of silence after which the log names a process");
DEFINE_double(lost_after, 5,
              "seconds of silence after which a process counts as lost; the limits of other waits "
              "for it follow from this");
DEFINE_int32(stall_abort, 0, "an older name of --lost_after");
DEFINE_string(on_lost, "",
              "CONTINUE or STOP: whether the others go on without a process that is lost; default: "
              "the solver's");
DEFINE_int32(min_workers, 0,
             "a job that lost processes stops, to be continued, if fewer workers than this are "
             "left; default: the solver's");
DEFINE_int32(copies, 0,
             "number of servers that keep each param, 1 or 2; default: the solver's, or 2 in jobs "
             "of four processes or more");
DEFINE_int32(io_threads, 1, "threads that send and receive");
DEFINE_string(
    local_transport, "AUTO",
    "AUTO: processes of one machine exchange rows through shared memory, where possible; or TCP");
DEFINE_string(join, "",
              "host:port of a server of a job that trains, or several with commas, which are "
              "tried in turn: joins it, as a worker unless --role "
              "says otherwise");
DEFINE_string(data_part, "",
              "with --join, where the data is in parts: the suffix of the part to read, "
              "<source>_<suffix>; default: the rank that the job gives");
DEFINE_string(encrypt, "auto",
              "auto: connections between machines are encrypted, by TLS with a key that comes of "
              "the token, and those within a machine are not; always: all are; never: none is. The "
              "same on all processes");
DEFINE_bool(
    insecure, false,
    "allow a job of several machines without a token: any process that reaches a port can join, "
    "and nothing is encrypted");
DEFINE_string(token_file, "",
              "a file with the job's token, if the variable SHOAL_JOB_TOKEN does not hold it");
DEFINE_string(
    tls_cert, "",
    "with --tls_key and --tls_ca: a PEM file with the certificate that this process shows "
    "on encrypted connections, beside its proof of the token; on all processes or on "
    "none. The files are read again when they change");
DEFINE_string(tls_key, "", "a PEM file with the private key of --tls_cert, without a passphrase");
DEFINE_string(tls_ca, "",
              "a PEM file with the CAs whose certificates this process accepts, whatever the names "
              "in these");

namespace shoal {
namespace {

template <class T>
void check_range(const char* flag, T value, T least, T most) {
  if (!(value >= least && value <= most))
    throw ConfigError(Code::kUsage, "--", flag, "=", value, " is not from ", least, " to ", most);
}

void check_ranges() {
  constexpr int kMostProcesses = 1 << 20, kMostSeconds = 1 << 20, kMostThreads = 256;
  check_range("client_id", FLAGS_client_id, -1, kMostProcesses);
  check_range("num_clients", FLAGS_num_clients, -1, kMostProcesses);
  check_range("port", FLAGS_port, -1, 65535);
  check_range("replicas", FLAGS_replicas, 0, kMostThreads);
  check_range("num_table_threads", FLAGS_num_table_threads, 0, kMostThreads + 1);
  check_range("io_threads", FLAGS_io_threads, 1, kMostThreads);
  check_range("start_timeout", FLAGS_start_timeout, 1, kMostSeconds);
  check_range("connect_timeout", FLAGS_connect_timeout, 1, kMostSeconds);
  check_range("stall_warn", FLAGS_stall_warn, 1, kMostSeconds);
  check_range("stall_abort", FLAGS_stall_abort, 0, kMostSeconds);
  check_range("lost_after", FLAGS_lost_after, 0.1, double{kMostSeconds});
  check_range("min_workers", FLAGS_min_workers, 0, kMostProcesses);
  check_range("copies", FLAGS_copies, 0, 2);
}

// Throws unless it is a host, with a port or without; an IPv6 address with a port in brackets.
void check_advertise() {
  const std::string& given = FLAGS_advertise;
  if (given.empty() || (given.starts_with('[') && given.find(']') != std::string::npos)) return;
  const auto colons = std::ranges::count(given, ':');
  const std::size_t colon = given.rfind(':');
  if (colons == 0 || (colons == 1 && colon > 0 && number_in(given.substr(colon + 1), 1, 65535)))
    return;
  in6_addr address{};
  if (::inet_pton(AF_INET6, given.c_str(), &address) == 1) return;
  throw ConfigError(Code::kUsage, "--advertise=", given,
                    " is neither a host nor host:port (an IPv6 address with a port stands in "
                    "brackets)");
}

}  // namespace

JobFlags job_flags() {
  check_ranges();
  check_advertise();
  JobFlags flags;
  flags.hostfile = one_of("hostfile", FLAGS_hostfile, "machinefile", FLAGS_machinefile);
  flags.hostfile_format = FLAGS_hostfile_format;
  flags.client_id = FLAGS_client_id;
  flags.num_clients = FLAGS_num_clients;
  flags.master = FLAGS_master;
  flags.role = FLAGS_role;
  flags.host = FLAGS_host;
  flags.advertise = FLAGS_advertise;
  flags.interface = FLAGS_interface;
  flags.port = FLAGS_port;
  flags.port_range = FLAGS_port_range;
  flags.scheme = scheme_flags();
  flags.replicas = FLAGS_replicas;
  flags.num_table_threads = FLAGS_num_table_threads;
  flags.batch_semantics = FLAGS_batch_semantics;
  flags.exchange = FLAGS_exchange;
  flags.codec = FLAGS_codec;
  flags.svb = FLAGS_svb;
  flags.share_by = FLAGS_share_by;
  flags.batch_by = FLAGS_batch_by;
  flags.share_interval = FLAGS_share_interval;
  flags.data_sharding = FLAGS_data_sharding;
  flags.start_timeout = FLAGS_start_timeout;
  flags.connect_timeout = FLAGS_connect_timeout;
  flags.stall_warn = FLAGS_stall_warn;
  if (FLAGS_stall_abort > 0) flags.lost_after = FLAGS_stall_abort;
  if (given("lost_after")) flags.lost_after = FLAGS_lost_after;
  flags.on_lost = FLAGS_on_lost;
  flags.min_workers = FLAGS_min_workers;
  flags.copies = FLAGS_copies;
  flags.io_threads = FLAGS_io_threads;
  flags.local_transport = FLAGS_local_transport;
  flags.encrypt = FLAGS_encrypt;
  flags.trials = trial_flags();
  flags.token_file = FLAGS_token_file;
  flags.certificates = {FLAGS_tls_cert, FLAGS_tls_key, FLAGS_tls_ca};
  flags.insecure = FLAGS_insecure;
  flags.join = FLAGS_join;
  flags.data_part = FLAGS_data_part;
  return flags;
}

}  // namespace shoal
