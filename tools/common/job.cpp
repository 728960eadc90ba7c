#include "common/job.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

#include "common/addresses.h"
#include "common/codec_flag.h"
#include "shoal/base/address.h"
#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/base/log.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/data/partition.h"
#include "shoal/layers/layer.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/recipe.h"

namespace shoal {
namespace {

template <class... Args>
ConfigError usage(const Args&... args) {
  return ConfigError(Code::kUsage, args...);
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::optional<int> number_given(int value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

std::string own_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Returns the certificates of --tls_cert, --tls_key and --tls_ca; null: none are given.
std::shared_ptr<table::Certificates> read_certificates(const JobFlags& flags) {
  const auto& [certificate, key, authorities] = flags.certificates;
  if (certificate.empty() && key.empty() && authorities.empty()) return nullptr;
  if (certificate.empty() || key.empty() || authorities.empty())
    throw usage("--tls_cert, --tls_key and --tls_ca are given together or not at all; --",
                certificate.empty() ? "tls_cert"
                : key.empty()       ? "tls_key"
                                    : "tls_ca",
                " is missing");
  return or_throw(table::read_certificates(flags.certificates));
}

// Returns which connections of a job with this token are encrypted.
table::Encrypt encrypt_of(const JobFlags& flags, const std::string& token, bool leaves_machine) {
  using enum table::Encrypt;
  const std::map<std::string, table::Encrypt> known{
      {"auto", kAuto}, {"always", kAlways}, {"never", kNever}};
  const auto found = known.find(flags.encrypt);
  if (found == known.end())
    throw usage("--encrypt=", flags.encrypt, ": known are auto, always and never");
  if (found->second == kAuto && flags.insecure && token.empty()) return kNever;
  if (found->second != kNever && leaves_machine && token.size() < table::kShortestToken)
    throw usage(
        "connections with other machines are encrypted with a key that comes of the job's "
        "token, which has ",
        token.size(), " bytes: one of fewer than ", table::kShortestToken,
        " can be guessed from what is overheard. Use a longer token "
        "(scripts/launch.py draws one), or --encrypt=never in a closed network");
  return found->second;
}

}  // namespace

std::string token_in(const std::string& file, const char* flag) {
  std::string token = or_throw(read_file(file, Code::kUsage));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty()) throw usage("--", flag, "=", file, ": the file is empty");
  return token;
}

std::string read_token(const JobFlags& flags) {
  if (const char* variable = std::getenv("SHOAL_JOB_TOKEN"); variable && *variable != '\0')
    return variable;
  return flags.token_file.empty() ? "" : token_in(flags.token_file, "token_file");
}

std::string one_of(const char* name, const std::string& value, const char* other_name,
                   const std::string& other) {
  if (!value.empty() && !other.empty() && value != other)
    throw usage("--", name, "=", value, " and --", other_name, "=", other,
                " are two names of one flag; give one value");
  return value.empty() ? other : value;
}

parallel::Place find_place(const JobFlags& flags) {
  parallel::PlaceFlags place;
  place.client_id = number_given(flags.client_id);
  place.num_clients = number_given(flags.num_clients);
  place.master = flags.master;
  place.role = flags.role;
  place.port = std::max(0, flags.port);
  place.machinefile = flags.hostfile;
  if (!flags.hostfile.empty())
    place.machinefile_text = or_throw(read_list(flags.hostfile, Code::kUsage));
  const auto format = parallel::hostfile_format_named(flags.hostfile_format);
  if (!format)
    throw usage("--hostfile_format=", flags.hostfile_format,
                ": known are auto, poseidon, openmpi, horovod, deepspeed, mxnet, mpich");
  place.format = *format;
  return or_throw(parallel::find_place(place, environment()));
}

parallel::Place place_to_join(const JobFlags& flags) {
  const auto refuse = [&](bool given, const char* name) {
    if (given)
      throw usage("--join=", flags.join, " and --", name,
                  " exclude each other: a process that joins gets its place from the job");
  };
  refuse(flags.client_id >= 0, "client_id");
  refuse(flags.num_clients >= 0, "num_clients");
  refuse(!flags.hostfile.empty(), "hostfile");
  refuse(!flags.master.empty(), "master");
  parallel::PlaceFlags two{.client_id = 1,
                           .num_clients = 2,
                           .master = split(flags.join, ',').at(0),
                           .role = flags.role.empty() ? "worker" : flags.role};
  Result<parallel::Place> found = parallel::find_place(two, {});
  if (!found.ok()) throw usage("--join=", flags.join, " is not host:port of process 0");
  parallel::Place place = std::move(found).value();
  place.source = "--join";
  return place;
}

std::string data_part(const JobFlags& flags, const parallel::Place& place) {
  const std::string given = place.machines.empty()
                                ? flags.data_part
                                : place.machines[static_cast<std::size_t>(place.rank)].data;
  return given.empty() ? std::to_string(place.rank) : given;
}

std::vector<std::string> where_it_may_go_on(const parallel::Place& place) {
  std::vector<std::string> addresses;
  for (const parallel::Process& one : place.machines)
    if (one.id != place.rank) addresses.push_back(join_address(one.host, std::to_string(one.port)));
  if (place.machines.empty() && place.rank > 0) addresses.push_back(place.master);
  return addresses;
}

JobFlags flags_to_rejoin(JobFlags flags, const parallel::Place& place,
                         const table::ServiceOptions& options, std::uint16_t port,
                         const std::vector<std::string>& servers) {
  flags.join = join(servers, ",");
  flags.client_id = flags.num_clients = -1;
  flags.hostfile = flags.master = flags.interface = flags.port_range = "";
  flags.role = parallel::name_of(place.role);
  flags.host = options.bind;
  flags.port = port;
  flags.advertise = options.advertise;
  flags.data_part = data_part(flags, place);
  return flags;
}

int processes_here(const parallel::Place& place) {
  if (place.machines.empty()) return 1;
  const auto machine = [](const parallel::Process& one) { return parallel::machine_of(one.host); };
  const std::string own = machine(place.machines[static_cast<std::size_t>(place.rank)]);
  return static_cast<int>(std::ranges::count(place.machines, own, machine));
}

int place_here(const parallel::Place& place) {
  if (place.machines.empty()) return 0;
  const auto own = place.machines.begin() + place.rank;
  return static_cast<int>(std::count_if(
      place.machines.begin(), own, [machine = parallel::machine_of(own->host)](const auto& one) {
        return parallel::machine_of(one.host) == machine;
      }));
}

int replicas_of(const JobFlags& flags, std::size_t gpus) {
  if (flags.replicas < 0 || flags.num_table_threads < 0 || flags.num_table_threads == 1)
    throw usage("--replicas=", flags.replicas, ", --num_table_threads=", flags.num_table_threads,
                ": replicas must be 1 or more, and num_table_threads one more than those");
  if (flags.replicas > 0 && flags.num_table_threads > 0 &&
      flags.num_table_threads != flags.replicas + 1)
    throw usage("--replicas=", flags.replicas, " and --num_table_threads=", flags.num_table_threads,
                " exclude each other: num_table_threads is the number of replicas plus one");
  const int asked = flags.num_table_threads > 0 ? flags.num_table_threads - 1 : flags.replicas;
  if (gpus > 0 && asked > 0 && static_cast<std::size_t>(asked) != gpus)
    throw usage("--replicas=", asked, " on ", gpus,
                " GPUs: each GPU has one replica; leave the flag out");
  return gpus > 0 ? static_cast<int>(gpus) : std::max(1, asked);
}

namespace {

SolverParameter::ShareBy share_by_named(const char* flag, std::string word) {
  for (char& letter : word) letter = static_cast<char>(std::toupper(letter));
  SolverParameter::ShareBy by{};
  if (!SolverParameter::ShareBy_Parse(word, &by))
    throw usage("--", flag, "=", word, ": known are EQUAL, WEIGHT and SPEED");
  return by;
}

void merge_shares(const JobFlags& flags, SolverParameter& param) {
  if (!flags.share_by.empty()) param.set_share_by(share_by_named("share_by", flags.share_by));
  if (!flags.batch_by.empty()) param.set_batch_by(share_by_named("batch_by", flags.batch_by));
  if (flags.share_interval.empty()) return;
  const auto interval = number_in<std::int32_t>(flags.share_interval);
  if (!interval || *interval < 0)
    throw usage("--share_interval=", flags.share_interval,
                ": it must be a number of iterations, 0 or more");
  param.set_share_interval(*interval);
}

ExchangeParameter::Way way_named(const JobFlags& flags, std::string word) {
  for (char& letter : word) letter = static_cast<char>(std::toupper(letter));
  ExchangeParameter::Way way{};
  if (!ExchangeParameter::Way_Parse(word, &way))
    throw usage("--exchange=", flags.exchange, ": ", word,
                " is none of AUTO, TABLE, FACTORS, TREE, RING, HALVING_DOUBLING, DIRECT, MPI and "
                "NCCL");
  return way;
}

// "AUTO,fc8=TABLE,InnerProduct=FACTORS"
void merge_exchange(const JobFlags& flags, SolverParameter& param) {
  if (flags.exchange.empty() && flags.svb)
    param.mutable_exchange()->set_way(ExchangeParameter::FACTORS);
  const std::vector<std::string> types = layer_types();
  for (const std::string& word : split(flags.exchange, ',')) {
    ExchangeParameter& exchange = *param.mutable_exchange();
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      exchange.set_way(way_named(flags, word));
      continue;
    }
    ExchangeParameter::Override& one = *exchange.add_layer();
    const std::string layer = word.substr(0, equals);
    (std::ranges::count(types, layer) > 0 ? one.set_type(layer) : one.set_name(layer));
    one.set_way(way_named(flags, word.substr(equals + 1)));
  }
}

void merge_losses(const JobFlags& flags, SolverParameter& param) {
  OnLost::Action on_lost{};
  if (!flags.on_lost.empty() && !OnLost::Action_Parse(flags.on_lost, &on_lost))
    throw usage("--on_lost=", flags.on_lost, ": known are CONTINUE and STOP");
  if (!flags.on_lost.empty()) param.set_on_lost(on_lost);
  if (flags.min_workers > 0) param.set_min_workers(static_cast<std::uint32_t>(flags.min_workers));
  if (flags.copies > 0) param.set_copies(static_cast<std::uint32_t>(flags.copies));
}

// Sets what the solver says of losses, and the time after which a silent process is one.
void set_losses(const JobFlags& flags, const SolverParameter& param,
                table::ServiceOptions& options) {
  constexpr double kGoesOn = 5, kStops = 60;  // seconds
  options.losses = {param.on_lost() == OnLost::CONTINUE, param.min_workers()};
  const double seconds = flags.lost_after.value_or(options.losses.goes_on ? kGoesOn : kStops);
  options.stall_abort = table::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  if (options.losses.goes_on) options.reconnect = options.stall_abort;
}

}  // namespace

std::vector<double> worker_weights(const JobFlags& flags, const parallel::Place& place) {
  if (flags.data_sharding.empty()) return parallel::worker_weights(place.machines);
  constexpr std::uint64_t kFine = 1'000'000'000;
  const std::string text = or_throw(read_list(flags.data_sharding, Code::kUsage));
  const PartBounds bounds = or_throw(bounds_by_sharding(text, flags.data_sharding, kFine));
  std::vector<double> weights;
  for (std::size_t i = 1; i < bounds.size(); ++i)
    weights.push_back(static_cast<double>(bounds[i] - bounds[i - 1]));
  return weights;
}

void merge_flags(const JobFlags& flags, SolverParameter& param) {
  merge_shares(flags, param);
  merge_exchange(flags, param);
  merge_codec(flags.codec, param);
  if (!flags.batch_semantics.empty()) {
    SolverParameter::BatchSemantics value{};
    if (!SolverParameter::BatchSemantics_Parse(flags.batch_semantics, &value))
      throw usage("--batch_semantics=", flags.batch_semantics, ": known are PER_WORKER and GLOBAL");
    param.set_batch_semantics(value);
  }
  merge_losses(flags, param);
  parallel::merge_scheme(flags.scheme, param);
}

void merge_groups(const parallel::Place& place, SolverParameter& param) {
  for (SchemeParameter& scheme : *param.mutable_scheme()) {
    if (parallel::in_lower_case(scheme.type()) != "grouped" || scheme.has_groups() ||
        scheme.has_groups_file() || scheme.group_by() == SchemeParameter::SPEED)
      continue;
    const std::string groups = or_throw(parallel::groups_of(place.machines));
    if (!groups.empty()) scheme.set_groups(groups);
  }
}

void check_scheme_of_flags(const SolverParameter& param) {
  if (param.scheme_size() == 0) return;
  try {
    parallel::phases_of(param, "flags");
  } catch (const ConfigError& error) {
    throw usage(error.error().message);
  }
}

table::ServiceOptions service_options(const JobFlags& flags, const parallel::Place& place,
                                      const SolverParameter& solver) {
  table::ServiceOptions options;
  options.rank = static_cast<std::uint32_t>(place.rank);
  options.processes = static_cast<std::uint32_t>(place.processes);
  options.worker = place.role != parallel::Role::kServer;
  options.server = place.role != parallel::Role::kWorker;
  options.coordinator = place.master;
  options.host = own_name();
  options.token = read_token(flags);
  const Listening listening = where_to_listen(flags, place);
  options.bind = listening.address;
  options.port = listening.port;
  options.advertise = flags.advertise.empty() ? place.advertise : flags.advertise;
  options.threads = flags.io_threads;
  options.order = flags.trials.order;
  if (flags.local_transport != "AUTO" && flags.local_transport != "TCP")
    throw usage("--local_transport=", flags.local_transport, ": known are AUTO and TCP");
  options.local_transport =
      flags.local_transport == "TCP" ? table::LocalTransport::kTcp : table::LocalTransport::kAuto;
  options.throttle = flags.trials.throttle;
  options.start = std::chrono::seconds(flags.start_timeout);
  options.connect = std::chrono::seconds(flags.connect_timeout);
  options.stall_warn = std::chrono::seconds(flags.stall_warn);
  set_losses(flags, solver, options);
  const bool leaves_machine = !stays_on_this_machine(place, options.bind);
  if (options.token.empty() && !flags.insecure && leaves_machine)
    throw usage(
        "other machines can reach this job, and it has no token: any process that "
        "reaches a port could join. Set the variable SHOAL_JOB_TOKEN, or --token_file, to the same "
        "secret in all (scripts/launch.py does), or give --insecure");
  options.encrypt = encrypt_of(flags, options.token, leaves_machine);
  options.certificates = read_certificates(flags);
  if (const std::string wrong = table::validate(options); !wrong.empty()) throw usage(wrong);
  return options;
}

parallel::Place numbered_place(const JobFlags& flags, const SolverParameter& solver,
                               parallel::Place place, bool first,
                               std::shared_ptr<const SigningKey> key) {
  place.rank = first ? 0 : 1;
  if (first) return place;
  table::ServiceOptions options = service_options(flags, place, solver);
  options.ranks_by_order = true;
  options.key = std::move(key);
  LOG(INFO) << "Asking process 0 at " << place.master << " for a rank, within "
            << flags.start_timeout << " s; known from " << place.source;
  place.rank = static_cast<int>(or_throw(table::enroll(options)).rank);
  if (place.rank >= place.processes)
    throw ConfigError(Code::kPeer, "the job at ", place.master, " has all its ", place.processes,
                      " processes already: this one is one too many, or only some have ids "
                      "(DMLC_WORKER_ID, DMLC_SERVER_ID); give all an id, or none");
  return place;
}

}  // namespace shoal
