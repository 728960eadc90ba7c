// A job of several processes as a tool is told of it, by flags, the launcher's variables and the
// solver, and as the table service wants it.
#pragma once

#include <optional>
#include <string>

#include "common/trial_flags.h"
#include "shoal/parallel/cluster.h"
#include "shoal/parallel/merge_scheme.h"
#include "shoal/table/table.h"

namespace shoal {

class SolverParameter;

struct JobFlags {
  std::string hostfile, hostfile_format = "auto", master, role, host, advertise, interface,
                        port_range;
  int client_id = -1, num_clients = -1, port = -1;  // -1: not given
  parallel::SchemeFlags scheme;
  std::string batch_semantics, share_by, batch_by, share_interval, data_sharding, exchange, codec;
  bool svb = false;
  int replicas = 0, num_table_threads = 0;                         // 0: not given
  int start_timeout = 300, connect_timeout = 10, stall_warn = 10;  // seconds
  std::optional<double> lost_after;                                // seconds; nothing: not given
  std::string on_lost;
  int min_workers = 0, copies = 0;  // 0: not given
  int io_threads = 1;
  std::string local_transport = "AUTO", encrypt = "auto";
  TrialFlags trials;
  std::string token_file;
  table::CertificateFiles certificates;
  bool insecure = false;  // no token is needed
  // Set for a process that joins a job while it trains.
  std::string join, data_part;
};

// Returns the value of a flag with two names. Throws ConfigError (kUsage) if both are given and
// differ.
std::string one_of(const char* name, const std::string& value, const char* other_name,
                   const std::string& other);

// Return the token in a file that a flag names, and the job's; "": it has none. No command line
// holds them: others can read those.
std::string token_in(const std::string& file, const char* flag);
std::string read_token(const JobFlags& flags);

// Finds which process of which job this is: from the flags, the machinefile and the environment.
// Throws ConfigError, as all below.
parallel::Place find_place(const JobFlags& flags);
// "2 of 4 processes" of them run on this process's own machine, as far as the machinefile says; at
// least 1.
int processes_here(const parallel::Place& place);
// Returns how many of them come before it.
int place_here(const parallel::Place& place);
// Nets a process trains with: one a GPU (`gpus` of them; 0: on the CPU).
int replicas_of(const JobFlags& flags, std::size_t gpus);
// Puts what flags say of scheme and batch_semantics into the solver. Refuses flags that contradict
// each other, by both names.
void merge_flags(const JobFlags& flags, SolverParameter& param);
// Returns the weights of the workers' shares of the data: of --data_sharding, or the machinefile's;
// none if neither says any.
std::vector<double> worker_weights(const JobFlags& flags, const parallel::Place& place);
// Gives the solver's grouped schemes that do not say theirs the groups of the machinefile.
void merge_groups(const parallel::Place& place, SolverParameter& param);
// Throws ConfigError (kUsage) if the solver's scheme, all of which flags gave, makes no sense.
void check_scheme_of_flags(const SolverParameter& param);

table::ServiceOptions service_options(const JobFlags& flags, const parallel::Place& place,
                                      const SolverParameter& solver);
// Gives a rank to a process that has none of its launcher: that of process 0 if it is the first on
// the machine where process 0 is to be, else what process 0 says. The rank belongs to the key.
parallel::Place numbered_place(const JobFlags& flags, const SolverParameter& solver,
                               parallel::Place place, bool first,
                               std::shared_ptr<const SigningKey> key);
// Returns the options of a process that joins the job whose process 0 is at --join, before it has a
// rank.
parallel::Place place_to_join(const JobFlags& flags);
// Returns the end of the name of the part that the process reads of a divided source.
std::string data_part(const JobFlags& flags, const parallel::Place& place);
// Returns the addresses at which a process that is started again may find its job, process 0's
// first: those of the others of the machinefile; without one, that of process 0.
std::vector<std::string> where_it_may_go_on(const parallel::Place& place);
// Returns the flags with which a process that had `place` in a job, and was removed from it, joins
// it anew at one of these addresses: with its role, its part of the data, and the port it had.
JobFlags flags_to_rejoin(JobFlags flags, const parallel::Place& place,
                         const table::ServiceOptions& options, std::uint16_t port,
                         const std::vector<std::string>& servers);

}  // namespace shoal
