// Starts the processes of a job, real train programs on one machine or in network namespaces of it,
// and ends them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "support/data_files.h"
#include "support/ports.h"

namespace shoal::test {

class JobProcesses {
 public:
  // Makes one process for each letter of `roles`, "bsw": both, server, worker. The machinefile goes
  // to `folder`.
  JobProcesses(const std::string& folder, const std::string& roles);
  // Makes them at the addresses `hosts`. The words of `starters` stand before each command.
  JobProcesses(const std::string& folder, const std::string& roles, std::vector<std::string> hosts,
               std::vector<std::vector<std::string>> starters);
  ~JobProcesses();  // kills what still runs
  JobProcesses(const JobProcesses&) = delete;

  // Flags of every process.
  std::vector<std::string> flags{"--threads=1", "--start_timeout=60", "--stall_warn=2",
                                 "--stall_abort=60"};

  std::size_t size() const { return processes_.size(); }
  int port(std::size_t rank) const { return ports_[rank]; }
  std::string machinefile() const { return folder_ + "/machines"; }
  std::vector<std::string> command(std::size_t rank, const std::string& solver,
                                   const std::vector<std::string>& more = {}) const;
  // Returns the command of a process that joins while the job trains.
  std::vector<std::string> joining(const std::string& solver,
                                   const std::vector<std::string>& more = {}) const;
  void start(std::size_t rank, const std::string& solver,
             const std::vector<std::string>& more = {});
  void start_all(const std::string& solver, const std::vector<std::string>& more = {});
  bool says(std::size_t rank, const std::string& text, int times = 1) const {
    return wait_for_text(processes_[rank], text, times);
  }
  const Running& running(std::size_t rank) const { return processes_[rank]; }
  void signal(std::size_t rank, int number);

  struct Ended {
    Ran ran;
    // Seconds from the last signal, or from the start, until the end of the process was seen.
    double seconds = 0;
  };
  Ended wait(std::size_t rank);

 private:
  const std::string folder_, roles_;
  const ReservedPorts ports_;
  std::vector<std::vector<std::string>> starters_;
  std::vector<Running> processes_;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace shoal::test
