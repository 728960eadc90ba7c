#include "support/job_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shoal/base/text.h"

namespace shoal::test {

JobProcesses::JobProcesses(const std::string& folder, const std::string& roles)
    : JobProcesses(folder, roles, std::vector<std::string>(roles.size(), "127.0.0.1"),
                   std::vector<std::vector<std::string>>(roles.size())) {}

JobProcesses::JobProcesses(const std::string& folder, const std::string& roles,
                           std::vector<std::string> hosts,
                           std::vector<std::vector<std::string>> starters)
    : folder_(folder),
      roles_(roles),
      ports_(roles.size()),
      starters_(std::move(starters)),
      processes_(roles.size()),
      since_(std::chrono::steady_clock::now()) {
  std::string machines;
  for (std::size_t rank = 0; rank < roles.size(); ++rank)
    machines += str(hosts[rank], " port=", ports_[rank], " role=",
                    roles[rank] == 'b'   ? "both"
                    : roles[rank] == 's' ? "server"
                                         : "worker",
                    "\n");
  put_file(machinefile(), machines);
}

JobProcesses::~JobProcesses() {
  for (const Running& process : processes_) {
    if (process.process < 0) continue;
    ::kill(process.process, SIGKILL);
    wait_for(process);
  }
}

std::vector<std::string> JobProcesses::command(std::size_t rank, const std::string& solver,
                                               const std::vector<std::string>& more) const {
  std::vector<std::string> words = starters_[rank];
  for (const std::string& word : {tools_dir() + "/train", "--solver=" + solver,
                                  "--hostfile=" + machinefile(), str("--client_id=", rank)})
    words.push_back(word);
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> JobProcesses::joining(const std::string& solver,
                                               const std::vector<std::string>& more) const {
  std::vector<std::string> words = {tools_dir() + "/train", "--solver=" + solver,
                                    str("--join=127.0.0.1:", port(0)), "--threads=1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void JobProcesses::start(std::size_t rank, const std::string& solver,
                         const std::vector<std::string>& more) {
  processes_[rank] = start_program(command(rank, solver, more));
}

void JobProcesses::start_all(const std::string& solver, const std::vector<std::string>& more) {
  for (std::size_t rank = 0; rank < size(); ++rank) start(rank, solver, more);
}

void JobProcesses::signal(std::size_t rank, int number) {
  ::kill(processes_[rank].process, number);
  since_ = std::chrono::steady_clock::now();
}

JobProcesses::Ended JobProcesses::wait(std::size_t rank) {
  Ended ended{wait_for(processes_[rank])};
  processes_[rank].process = -1;
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
  return ended;
}

}  // namespace shoal::test
