#include "common/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "shoal/base/file.h"
#include "shoal/base/log.h"

namespace shoal {
namespace {

// One stream of the program, read here.
struct Pipe {
  int end = -1;
  std::string text;
};

// Appends what has come; at the end of the stream its end is closed.
void read_some(Pipe& stream) {
  std::array<char, 4096> buffer;
  const ssize_t got = read(stream.end, buffer.data(), buffer.size());
  if (got > 0) {
    stream.text.append(buffer.data(), static_cast<std::size_t>(got));
  } else if (got == 0 || errno != EINTR) {
    close(stream.end);
    stream.end = -1;
  }
}

// Reads both streams to their ends. Returns false if that took too long.
bool read_all(Pipe& out, Pipe& err, std::chrono::steady_clock::time_point until) {
  while (out.end >= 0 || err.end >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd ends[] = {{out.end, POLLIN, 0}, {err.end, POLLIN, 0}};
    if (poll(ends, 2, static_cast<int>(left.count())) <= 0) continue;
    if (ends[0].revents != 0) read_some(out);
    if (ends[1].revents != 0) read_some(err);
  }
  return true;
}

}  // namespace

Result<ProgramRun> run_program(std::vector<std::string> words, std::chrono::seconds deadline) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int out_ends[2], err_ends[2];
  PCHECK(pipe2(out_ends, O_CLOEXEC) == 0 && pipe2(err_ends, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err_ends[1], 2);
  pid_t process = 0;
  const int error = posix_spawnp(&process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out_ends[1]);
  close(err_ends[1]);
  Pipe out{out_ends[0], {}}, err{err_ends[0], {}};
  if (error != 0) {
    close(out.end);
    close(err.end);
    return Error{Code::kConfig, str(words[0], " cannot be started: ", system_reason(error))};
  }
  const bool ended = read_all(out, err, std::chrono::steady_clock::now() + deadline);
  if (!ended) {
    kill(process, SIGKILL);
    for (const Pipe* stream : {&out, &err})
      if (stream->end >= 0) close(stream->end);
  }
  int state = 0;
  while (waitpid(process, &state, 0) < 0 && errno == EINTR) {
  }
  if (!ended)
    return Error{Code::kTimeout,
                 str(words[0], " did not end within ", deadline.count(), " seconds: killed")};
  const int code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return ProgramRun{code, std::move(out.text), std::move(err.text)};
}

}  // namespace shoal
