#include "shoal/compat/launchers.h"

#include <algorithm>
#include <cstdint>

#include "shoal/base/number.h"
#include "shoal/base/text.h"

namespace shoal::compat {
namespace {

using Names = std::vector<std::string>;

// The variables of a launcher. Throws ConfigError for what is wrong with them.
class Family {
 public:
  Family(const char* name, const Variables& environment) : name_(name), environment_(environment) {}

  // "" if it is not set.
  std::string text(const std::string& variable) const {
    const auto found = environment_.find(variable);
    return found == environment_.end() ? "" : found->second;
  }
  bool sets(const Names& variables) const {
    return std::ranges::any_of(
        variables, [&](const std::string& variable) { return !text(variable).empty(); });
  }
  // All of these, or it is an error that names what is there and what is not.
  void need(const Names& variables) const {
    Names there, missing;
    for (const std::string& variable : variables)
      (text(variable).empty() ? missing : there).push_back(variable);
    if (!missing.empty())
      fail(join(missing), missing.size() == 1 ? " is" : " are", " not set",
           there.empty()
               ? ""
               : str("; set ", missing.size() == 1 ? "it" : "them", ", or unset ", join(there)));
  }
  int number(const std::string& variable, int least, int most) const {
    const std::optional<int> value = number_in(text(variable), least, most);
    if (!value) fail(variable, " is '", text(variable), "', no number from ", least, " to ", most);
    return *value;
  }
  int size(const std::string& variable) const { return number(variable, 1, kMostProcesses); }
  int port(const std::string& variable) const { return number(variable, 1, kMostPort); }
  // Returns whether the variable is `server`; otherwise it is `worker`.
  bool serves(const std::string& variable, const char* worker, const char* server) const {
    const std::string role = text(variable);
    if (role != worker && role != server)
      fail(variable, " is '", role, "', neither ", worker, " nor ", server);
    return role == server;
  }
  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw ConfigError(Code::kUsage, name_, " started this process, but ", args...);
  }

 private:
  const char* name_;
  const Variables& environment_;
};

// A launcher that numbers its processes, by the names of its variables; "" for those it has not.
struct Numbering {
  const char *name, *rank, *size;
  const char *size_here, *host, *port;  // the processes of this machine; where process 0 is
  // Slurm can be what speaks PMI, and knows the machines then.
  enum { kElsewhere, kMayBe, kIs } slurm = kElsewhere;
};
constexpr Numbering kNumberings[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "", "MASTER_ADDR", "MASTER_PORT"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "",
     ""},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "", "", Numbering::kMayBe},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "", "", "", Numbering::kIs},
    {"Horovod", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE",
     "HOROVOD_GLOO_RENDEZVOUS_ADDR", ""}};

// "gnode10" of "gnode[10,20,25-27],login", which is what the variable says.
std::string first_host(const char* variable, const std::string& list) {
  const auto wrong = [&](const std::string& what) {
    return ConfigError(Code::kUsage, variable, ": host list '", list, "': ", what);
  };
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] == ']') throw wrong("']' without '['");
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t begin = at + 1, end = list.find_first_of(",-]", begin);
    at = list.find(']', at);
    if (at == std::string::npos) throw wrong("'[' without ']'");
    const std::string number = list.substr(begin, end - begin);
    if (!number_in(number, 0, 999'999'999)) throw wrong(str("'", number, "' is no number"));
    host += number;
  }
  if (host.empty()) throw wrong("a host without a name");
  return host;
}

std::optional<Launched> numbered_by(const Numbering& names, const Variables& environment) {
  const Family family(names.name, environment);
  // A batch script and an interactive shell of an allocation have Slurm's variables too, and are no
  // step that was started with srun.
  constexpr std::uint64_t kNoStep = 0xfffffff0;
  const bool in_step =
      number_in<std::uint64_t>(family.text("SLURM_STEP_ID")).value_or(kNoStep) < kNoStep;
  if (names.slurm == Numbering::kIs ? !in_step : !family.sets({names.rank, names.size})) return {};
  Names needed = {names.rank, names.size};
  if (*names.port) needed.insert(needed.end(), {names.host, names.port});
  family.need(needed);
  Launched launched{.rank = family.number(names.rank, 0, kMostProcesses - 1),
                    .processes = family.size(names.size),
                    .host = family.text(names.host)};
  launched.source = str(names.name, " (", names.rank, ' ', launched.rank, " of ", names.size, ' ',
                        launched.processes, ")");
  if (*names.port) launched.port = family.port(names.port);
  // torchrun's agent then listens on that port itself.
  if (*names.port && family.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
    launched.port += launched.port == kMostPort ? -1 : 1;
  // A launcher that started all processes on this machine need not say where the first is.
  if (launched.host.empty() && family.text(names.size_here) == str(launched.processes))
    launched.host = "127.0.0.1";
  if (launched.host.empty() && names.slurm != Numbering::kElsewhere && in_step)
    // A step may have some of its job's machines.
    for (const char* variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
      if (const std::string machines = family.text(variable);
          launched.host.empty() && !machines.empty())
        launched.host = first_host(variable, machines);
  return launched;
}

// Numbers processes that have ids: workers first, then servers. Its scheduler has no like here:
// process 0 does that beside its work, and is where the scheduler would be. ps-lite and its
// launchers give no ids, BytePS does.
std::optional<Launched> dmlc(const Variables& environment) {
  const Family family("DMLC", environment);
  if (!family.sets({"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"})) return {};
  family.need(
      {"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"});
  const int workers = family.size("DMLC_NUM_WORKER"),
            servers = family.number("DMLC_NUM_SERVER", 0, kMostProcesses - workers);
  Launched launched{.processes = workers + servers,
                    .host = family.text("DMLC_PS_ROOT_URI"),
                    .port = family.port("DMLC_PS_ROOT_PORT"),
                    .interface = family.text("DMLC_INTERFACE"),
                    .advertise = family.text("DMLC_NODE_HOST")};
  if (family.sets({"PS_VERBOSE"})) launched.verbosity = family.number("PS_VERBOSE", 0, 9);
  if (family.text("DMLC_ROLE") == "scheduler") {
    launched.source = "DMLC (DMLC_ROLE scheduler)";
    launched.scheduler = true;
    return launched;
  }
  const bool server = family.serves("DMLC_ROLE", "worker", "server");
  launched.role = server ? "server" : servers > 0 ? "worker" : "both";
  const std::string id = server ? "DMLC_SERVER_ID" : "DMLC_WORKER_ID";
  std::string who = str("a ", server ? "server" : "worker");
  if (family.sets({id})) {
    const int index = family.number(id, 0, std::max(0, (server ? servers : workers) - 1));
    launched.rank = (server ? workers : 0) + index;
    who = str(id, ' ', index);
  } else if (launched.processes > 1) {
    launched.rank = kRankByOrder;
  }
  launched.source =
      str("DMLC (", who, " of DMLC_NUM_WORKER ", workers, " and DMLC_NUM_SERVER ", servers, ")");
  return launched;
}

// Servers first, as it is their addresses that are known, then trainers.
std::optional<Launched> paddle(const Variables& environment) {
  const Family family("Paddle", environment);
  if (!family.sets(
          {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS", "PADDLE_TRAINING_ROLE", "PADDLE_PSERVER_IPS"}))
    return {};
  family.need(
      {"PADDLE_TRAINING_ROLE", "PADDLE_TRAINERS", "PADDLE_PSERVER_IPS", "PADDLE_PSERVER_PORT"});
  const bool server = family.serves("PADDLE_TRAINING_ROLE", "TRAINER", "PSERVER");
  const Names servers = split(family.text("PADDLE_PSERVER_IPS"), ',');
  const std::string id = server ? "POD_IP" : "PADDLE_TRAINER_ID", own = family.text(id);
  if (!server || servers.size() != 1) family.need({id});
  const int trainers = family.size("PADDLE_TRAINERS"), count = static_cast<int>(servers.size());
  int rank = 0;
  if (!server)
    rank = count + family.number(id, 0, trainers - 1);
  else if (count != 1)
    rank = static_cast<int>(std::ranges::find(servers, own) - servers.begin());
  if (server && rank == count) family.fail("POD_IP ", own, " is not one of PADDLE_PSERVER_IPS");
  return Launched{
      .source = str("Paddle (", family.text("PADDLE_TRAINING_ROLE"), ' ', own,
                    " of PADDLE_TRAINERS ", trainers, " and ", count, " PADDLE_PSERVER_IPS)"),
      .rank = rank,
      .processes = trainers + count,
      .host = servers.empty() ? "" : servers[0],
      .port = family.port("PADDLE_PSERVER_PORT"),
      .role = server ? "server" : "worker"};
}

}  // namespace

std::optional<Launched> launched_by(const Variables& environment) {
  for (const Numbering& names : kNumberings)
    if (auto launched = numbered_by(names, environment)) return launched;
  auto launched = dmlc(environment);
  return launched ? launched : paddle(environment);
}

void read_master(const Variables& environment, Launched& launched) {
  const Family family("", environment);
  const std::string host = family.text("MASTER_ADDR"), port = family.text("MASTER_PORT");
  if (host.empty()) return;
  launched.host = host;
  if (port.empty()) return;
  launched.port = number_in(port, 1, kMostPort).value_or(0);
  if (launched.port == 0)
    throw ConfigError(Code::kUsage, "MASTER_PORT is '", port, "', no port from 1 to ", kMostPort);
}

}  // namespace shoal::compat
