#include "shoal/parallel/launchers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>

#include "shoal/base/text.h"

namespace shoal::parallel {
namespace {

using Names = std::vector<std::string>;
using Found = Result<std::optional<Launched>>;

// The variables of one family. Whatever is wrong with them is kept, the first for good, and said by
// done().
class Family {
 public:
  Family(const char* name, const Variables& environment) : name_(name), environment_(environment) {}

  bool sets(const Names& variables) const {
    return std::ranges::any_of(
        variables, [&](const std::string& variable) { return find(environment_, variable); });
  }
  // All of these, or it is an error that names what is there and what is not.
  void need(const Names& variables) {
    Names there, missing;
    for (const std::string& variable : variables)
      (find(environment_, variable) ? there : missing).push_back(variable);
    if (!missing.empty())
      fail(str(join(missing), missing.size() == 1 ? " is" : " are", " not set"),
           there.empty() ? "" : str("; set it, or unset ", join(there)));
  }
  std::string text(const std::string& variable) const {
    const std::string* value = find(environment_, variable);
    return value ? *value : std::string();
  }
  int number(const std::string& variable, int least, int most) {
    const std::optional<int> value = number_of(text(variable), least, most);
    if (!value)
      fail(str(variable, " is '", text(variable), "'"),
           str(", no number from ", least, " to ", most));
    return value.value_or(least);
  }
  int size(const std::string& variable) { return number(variable, 1, kMostProcesses); }
  int port(const std::string& variable) { return number(variable, 1, kMostPort); }
  // The rank and the number of processes of `launched`, from two variables.
  void read(Launched& launched, const std::string& rank, const std::string& processes) {
    need({rank, processes});
    if (error_) return;
    launched.rank = number(rank, 0, kMostProcesses - 1);
    launched.processes = size(processes);
    launched.source =
        str(name_, " (", rank, ' ', launched.rank, " of ", processes, ' ', launched.processes, ")");
  }
  // A launcher that started all processes on this machine need not say where the first is.
  void local(Launched& launched, const std::string& local_size) const {
    if (text(local_size) == str(launched.processes)) launched.host = "127.0.0.1";
  }
  void fail(const std::string& what, const std::string& then) {
    if (!error_)
      error_ = Error{Code::kUsage, str(name_, " started this process, but ", what, then)};
  }
  Found done(const Launched& launched) const {
    if (error_) return *error_;
    return std::optional<Launched>(launched);
  }
  bool good() const { return !error_; }

 private:
  const char* name_;
  const Variables& environment_;
  std::optional<Error> error_;
};

Found torchrun(const Variables& environment) {
  Family family("torchrun", environment);
  if (!family.sets({"RANK", "WORLD_SIZE"})) return std::optional<Launched>();
  Launched launched;
  family.need({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  family.read(launched, "RANK", "WORLD_SIZE");
  if (family.good()) launched.port = family.port("MASTER_PORT");
  launched.host = family.text("MASTER_ADDR");
  // Its agent listens on that port itself then.
  if (family.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
    launched.port = launched.port == kMostPort ? kMostPort - 1 : launched.port + 1;
  return family.done(launched);
}

// Open MPI, PMI and Horovod: a rank, a size, and at most a host.
Found plain(const char* name, const Variables& environment, const std::string& rank,
            const std::string& size, const std::string& local_size, const std::string& host) {
  Family family(name, environment);
  if (!family.sets({rank, size})) return std::optional<Launched>();
  Launched launched;
  family.read(launched, rank, size);
  launched.host = host.empty() ? "" : family.text(host);
  if (launched.host.empty()) family.local(launched, local_size);
  return family.done(launched);
}

// A batch script and an interactive shell of an allocation have Slurm's variables too, and are no
// step that was started with srun.
bool in_step(const Variables& environment) {
  const std::string* step = find(environment, "SLURM_STEP_ID");
  if (!step) return false;
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(step->data(), step->data() + step->size(), id);
  return error == std::errc() && end == step->data() + step->size() && id < 0xfffffff0;
}

// The first machine of the step, which has rank 0; "" outside of one.
Result<std::string> first_of_step(const Variables& environment) {
  const std::string* list = find(environment, "SLURM_JOB_NODELIST");
  if (!list || !in_step(environment)) return std::string();
  const Result<std::vector<std::string>> hosts = expand_host_list(*list);
  if (!hosts.ok()) return Error{Code::kUsage, "SLURM_JOB_NODELIST: " + hosts.error().message};
  return hosts.value().front();
}

Found slurm(const Variables& environment) {
  Family family("Slurm", environment);
  if (!in_step(environment)) return std::optional<Launched>();
  Launched launched;
  family.read(launched, "SLURM_PROCID", "SLURM_NTASKS");
  Result<std::string> host = first_of_step(environment);
  if (!host.ok()) return host.error();
  launched.host = std::move(host).value();
  return family.done(launched);
}

// Workers first, then servers. Its scheduler has no like here: worker 0 does that beside its work,
// and is where the scheduler would be.
Found dmlc(const Variables& environment) {
  Family family("DMLC", environment);
  if (!family.sets({"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"}))
    return std::optional<Launched>();
  Launched launched;
  family.need(
      {"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"});
  const std::string role = family.text("DMLC_ROLE");
  const bool server = role == "server";
  if (role == "scheduler")
    family.fail("DMLC_ROLE is scheduler",
                ", and no such process is needed: worker 0 coordinates, at DMLC_PS_ROOT_URI");
  else if (role != "worker" && !server)
    family.fail(str("DMLC_ROLE is '", role, "'"), ", neither worker nor server");
  const std::string id = server ? "DMLC_SERVER_ID" : "DMLC_WORKER_ID";
  family.need({id});
  if (!family.good()) return family.done(launched);
  const int workers = family.size("DMLC_NUM_WORKER"),
            servers = family.number("DMLC_NUM_SERVER", 0, kMostProcesses - workers);
  launched.processes = workers + servers;
  launched.rank =
      (server ? workers : 0) + family.number(id, 0, std::max(0, (server ? servers : workers) - 1));
  launched.role = server ? Role::kServer : servers > 0 ? Role::kWorker : Role::kBoth;
  launched.host = family.text("DMLC_PS_ROOT_URI");
  launched.port = family.port("DMLC_PS_ROOT_PORT");
  launched.source = str("DMLC (", id, ' ', family.text(id), " of DMLC_NUM_WORKER ", workers,
                        " and DMLC_NUM_SERVER ", servers, ")");
  return family.done(launched);
}

// Servers first, as it is their addresses that are known, then trainers.
Found paddle(const Variables& environment) {
  Family family("Paddle", environment);
  if (!family.sets(
          {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS", "PADDLE_TRAINING_ROLE", "PADDLE_PSERVER_IPS"}))
    return std::optional<Launched>();
  Launched launched;
  family.need(
      {"PADDLE_TRAINING_ROLE", "PADDLE_TRAINERS", "PADDLE_PSERVER_IPS", "PADDLE_PSERVER_PORT"});
  const std::string role = family.text("PADDLE_TRAINING_ROLE");
  if (role != "TRAINER" && role != "PSERVER")
    family.fail(str("PADDLE_TRAINING_ROLE is '", role, "'"), ", neither TRAINER nor PSERVER");
  const Names servers = split(family.text("PADDLE_PSERVER_IPS"), ',');
  const bool server = role == "PSERVER";
  const std::string id = server ? "POD_IP" : "PADDLE_TRAINER_ID";
  if (!server || servers.size() != 1) family.need({id});
  if (!family.good()) return family.done(launched);
  const int trainers = family.size("PADDLE_TRAINERS"), count = static_cast<int>(servers.size());
  launched.processes = trainers + count;
  if (!server) {
    launched.rank = count + family.number(id, 0, trainers - 1);
  } else if (count > 1) {
    launched.rank = static_cast<int>(std::ranges::find(servers, family.text(id)) - servers.begin());
    if (launched.rank == count)
      family.fail(str("POD_IP ", family.text(id)), " is not one of PADDLE_PSERVER_IPS");
  }
  launched.role = server ? Role::kServer : Role::kWorker;
  launched.host = servers.empty() ? "" : servers[0];
  launched.port = family.port("PADDLE_PSERVER_PORT");
  launched.source = str("Paddle (", role, ' ', family.text(id), " of PADDLE_TRAINERS ", trainers,
                        " and ", count, " PADDLE_PSERVER_IPS)");
  return family.done(launched);
}

}  // namespace

const std::string* find(const Variables& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<int> number_of(const std::string& word, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || number < least || number > most)
    return std::nullopt;
  return number;
}

Found launched_by(const Variables& environment) {
  const auto openmpi = [](const Variables& v) {
    return plain("Open MPI", v, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                 "OMPI_COMM_WORLD_LOCAL_SIZE", "");
  };
  const auto pmi = [](const Variables& v) -> Found {
    Found found = plain("PMI", v, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "");
    if (!found.ok() || !found.value() || !found.value()->host.empty()) return found;
    Result<std::string> host = first_of_step(v);  // Slurm can be what speaks PMI
    if (!host.ok()) return host.error();
    found.value()->host = std::move(host).value();
    return found;
  };
  const auto horovod = [](const Variables& v) {
    return plain("Horovod", v, "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE",
                 "HOROVOD_GLOO_RENDEZVOUS_ADDR");
  };
  for (Found (*const family)(const Variables&) : std::initializer_list<Found (*)(const Variables&)>{
           torchrun, openmpi, pmi, slurm, horovod, dmlc, paddle}) {
    Found found = family(environment);
    if (!found.ok() || found.value()) return found;
  }
  return std::optional<Launched>();
}

}  // namespace shoal::parallel
