#include "shoal/compat/launchers.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "shoal/base/number.h"
#include "shoal/base/text.h"

namespace shoal::compat {
namespace {

using Names = std::vector<std::string>;
using Found = Result<std::optional<Launched>>;

// The value, or null if it is not set or empty.
const std::string* find(const Variables& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

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
    const std::optional<int> value = number_in(text(variable), least, most);
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

constexpr std::size_t kMostHosts = 65536;

Error wrong(std::string_view list, const std::string& what) {
  return {Code::kUsage, str("host list '", list, "': ", what)};
}

// "10", "001-003" of a bracket: the numbers, as wide as the first is written. False if it is
// neither.
bool expand_range(const std::string& range, std::vector<std::string>& out) {
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash),
                    last = dash == std::string::npos ? first : range.substr(dash + 1);
  const auto low = number_in(first, 0, 999'999'999), high = number_in(last, 0, 999'999'999);
  if (!low || !high || *high < *low || static_cast<std::size_t>(*high - *low) >= kMostHosts)
    return false;
  for (int number = *low; number <= *high; ++number) {
    const std::string digits = str(number);
    out.push_back(std::string(first.size() - std::min(first.size(), digits.size()), '0') + digits);
  }
  return true;
}

// Every beginning with every number of the bracket that opens at `at`; moves `at` behind it.
Result<std::vector<std::string>> expand_bracket(std::string_view list, std::size_t& at,
                                                const std::vector<std::string>& beginnings) {
  const std::size_t end = list.find(']', at);
  if (end == std::string_view::npos) return wrong(list, "'[' without ']'");
  std::vector<std::string> numbers, hosts;
  for (std::size_t from = at + 1; from <= end;) {
    const std::size_t comma = std::min(list.find(',', from), end);
    const std::string range(list.substr(from, comma - from));
    if (!expand_range(range, numbers))
      return wrong(list, str("'", range, "' is no number and no rising range of numbers"));
    from = comma + 1;
  }
  if (beginnings.size() * numbers.size() > kMostHosts)
    return wrong(list, str("more than ", kMostHosts, " hosts"));
  for (const std::string& beginning : beginnings)
    for (const std::string& number : numbers) hosts.push_back(beginning + number);
  at = end + 1;
  return hosts;
}

// A batch script and an interactive shell of an allocation have Slurm's variables too, and are no
// step that was started with srun.
bool in_step(const Variables& environment) {
  const std::string* step = find(environment, "SLURM_STEP_ID");
  if (!step) return false;
  return number_in<std::uint64_t>(*step).value_or(0xfffffff0) < 0xfffffff0;
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
  launched.role = server ? "server" : servers > 0 ? "worker" : "both";
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
  launched.role = server ? "server" : "worker";
  launched.host = servers.empty() ? "" : servers[0];
  launched.port = family.port("PADDLE_PSERVER_PORT");
  launched.source = str("Paddle (", role, ' ', family.text(id), " of PADDLE_TRAINERS ", trainers,
                        " and ", count, " PADDLE_PSERVER_IPS)");
  return family.done(launched);
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view list) {
  std::vector<std::string> hosts, word = {""};
  for (std::size_t at = 0; at <= list.size();) {
    if (at < list.size() && list[at] == '[') {
      Result<std::vector<std::string>> expanded = expand_bracket(list, at, word);
      if (!expanded.ok()) return expanded;
      word = std::move(expanded).value();
    } else if (at < list.size() && list[at] != ',') {
      if (list[at] == ']') return wrong(list, "']' without '['");
      for (std::string& host : word) host += list[at];
      ++at;
    } else {
      if (word.front().empty()) return wrong(list, "a host without a name");
      hosts.insert(hosts.end(), word.begin(), word.end());
      if (hosts.size() > kMostHosts) return wrong(list, str("more than ", kMostHosts, " hosts"));
      word = {""};
      ++at;
    }
  }
  return hosts;
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

Status read_master(const Variables& environment, Launched& launched) {
  const std::string* const host = find(environment, "MASTER_ADDR");
  if (!host) return {};
  launched.host = *host;
  const std::string* const text = find(environment, "MASTER_PORT");
  if (!text) return {};
  launched.port = number_in(*text, 1, kMostPort).value_or(0);
  if (launched.port > 0) return {};
  return Error{Code::kUsage, str("MASTER_PORT is '", *text, "', no port from 1 to ", kMostPort)};
}

}  // namespace shoal::compat
