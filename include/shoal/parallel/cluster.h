// Finds which processes make up a job, and which of them this one is, from a machinefile, flags and
// the environments of launchers. The functions are pure: their caller reads files, and passes
// variables in a map.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal::parallel {

enum class Role : std::uint8_t { kBoth, kWorker, kServer };
const char* name_of(Role role);
std::optional<Role> role_named(std::string_view name);

// A process that is to run.
struct Process {
  int id = 0;  // rank, 0 first
  // As written: a name, or an address of IPv4 or, without brackets, of IPv6.
  std::string host;
  // The port of the table service. If none was given: the default port, or the next on the same
  // host.
  int port = 0;
  Role role = Role::kBoth;
  int ssh_port = 22;
  std::string user, interface, group;
  std::string data;  // suffix of its part of the data; empty: its client id
  std::vector<int> gpus;
  double weight = 1;     // of its share of the data, and of a batch of all, beside others'
  double bandwidth = 0;  // of its link, bytes a second each way; 0: not said
  int line = 0;          // of the machinefile
};

enum class HostfileFormat { kAuto, kPoseidon, kOpenMpi, kHorovod, kDeepSpeed, kMxnet, kMpich };
std::optional<HostfileFormat> hostfile_format_named(std::string_view name);

// Parses a machinefile (docs/reference/formats.md). Returns its processes in the order of ids, with
// one for each slot. Errors (kUsage) name the file and all lines concerned: duplicate or missing
// ids, duplicate host:port, an unknown key (the nearest known named), a port out of range, an
// ambiguous "host:N" (only the format tells ssh port from slots), no lines.
Result<std::vector<Process>> parse_machinefile(std::string_view text, const std::string& name,
                                               HostfileFormat format = HostfileFormat::kAuto);

// Returns the host, with one name for those by which this machine calls itself: localhost,
// 127.0.0.1, ::1.
std::string machine_of(const std::string& host);

inline constexpr int kDefaultPort = 29600;

// Returns "0,2|1": the workers of each group, in the order in which the file names groups; "" if it
// names none. Error (kUsage): some workers have a group and others do not.
Result<std::string> groups_of(const std::vector<Process>& machines);
// Returns the bandwidths of the servers' links, in the servers' order; none unless all are given.
std::vector<double> server_bandwidths(const std::vector<Process>& machines);
// Returns the workers' weights, in their order; none if all are equal.
std::vector<double> worker_weights(const std::vector<Process>& machines);

// The place of a process in its job.
struct Place {
  // `rank` below 0: process 0 assigns it, and is the first process on the machine of `master`.
  int rank = 0, processes = 1;
  std::string master;  // "host:port" of process 0
  // The source of rank and size, for the log: "flags --client_id and --num_clients", "torchrun
  // (RANK ...)".
  std::string source;
  std::vector<Process> machines;  // of the machinefile, or empty
  Role role = Role::kBoth;        // its own
  // Given by some launchers, as in compat/launchers.h.
  std::string interface = "", advertise = "";
  int verbosity = 0;
  bool scheduler = false;
  bool distributed() const { return processes > 1 || !machines.empty() || !master.empty(); }
};

struct PlaceFlags {
  std::optional<int> client_id{}, num_clients{};
  std::string master{};                           // "host:port"
  std::string machinefile{}, machinefile_text{};  // name and content, or empty
  HostfileFormat format = HostfileFormat::kAuto;
  std::string role{};  // "", "worker", "server", "both"
  int port = 0;
};
// Finds this process's place: from flags first, then by the conventions of launchers
// (compat/launchers.h). Without any: one process alone. An empty variable counts as not set. Errors
// (kUsage): a half-set family (names the missing variable), a rank outside the size, a size that is
// not the machinefile's, no address for process 0, a machinefile of several processes and nothing
// that says which one.
Result<Place> find_place(const PlaceFlags& flags,
                         const std::map<std::string, std::string>& environment);

}  // namespace shoal::parallel
