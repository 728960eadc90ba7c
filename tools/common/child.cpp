#include "common/child.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shoal/base/error.h"
#include "shoal/base/log.h"

namespace shoal {

Child::Child(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "/proc/self/exe");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  argv.push_back(nullptr);
  int ends[2];
  PCHECK(pipe2(ends, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  CHECK_EQ(posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  out_ = fdopen(ends[0], "r");
  PCHECK(out_ != nullptr);
}

Child::~Child() {
  std::fclose(out_);
  int state = 0;
  waitpid(process_, &state, 0);
}

double Child::number() {
  double value = -1;
  if (std::fscanf(out_, "%lf", &value) != 1)
    throw ConfigError(Code::kInternal, "a process of the measurement has ended early");
  return value;
}

double Child::cpu_seconds() const {
  clockid_t clock{};
  timespec time{};
  CHECK_EQ(clock_getcpuclockid(process_, &clock), 0);
  PCHECK(clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Below those that the system gives to who asks for any, so that none of a job's other processes
// gets it first.
std::uint16_t unused_port() {
  constexpr int kFirst = 20'000, kLast = 32'000;
  for (int port = kFirst + getpid() % (kLast - kFirst); port < 2 * kLast; ++port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    PCHECK(fd >= 0);
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (is_free) return static_cast<std::uint16_t>(port);
  }
  throw ConfigError(Code::kInternal, "no port of the loopback address is free");
}

}  // namespace shoal
