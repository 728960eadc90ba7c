// Finds where a process of a job listens.
#pragma once

#include <cstdint>
#include <string>

#include "common/job.h"

namespace shoal {

struct Listening {
  std::string address;
  std::uint16_t port = 0;  // 0: any
};

// Takes the address from the flags, else the machinefile's line, else: process 0 at its master
// address; others at the interface that the launcher says, beside a master on this machine on
// 127.0.0.1, or else at the address from which they reach the master. Throws ConfigError (kUsage):
// no such interface, no free port in the range, flags that exclude each other.
Listening where_to_listen(const JobFlags& flags, const parallel::Place& place);

// Returns whether every address that is known of the job, and the one to listen on, are this
// machine's loopback.
bool stays_on_this_machine(const parallel::Place& place, const std::string& bind);

}  // namespace shoal
