#include "support/data_files.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shoal/base/file.h"
#include "shoal/proto/blob.pb.h"

namespace shoal::test {

namespace fs = std::filesystem;

// Returns a folder of this process, which goes when it ends.
static std::string scratch() { return testing::TempDir() + str("shoal_tests_", ::getpid()); }

std::string fresh_directory(const std::string& name) {
  if (!fs::exists(scratch())) std::atexit([] { fs::remove_all(scratch()); });
  const std::string path = str(scratch(), "/", name);
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

void put_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string get_file(const std::string& path) { return or_throw(read_file(path)); }

std::vector<std::string> entries(const std::string& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Status write_records(const std::string& backend, const std::string& path, const Records& records,
                     WriteMode mode) {
  Result<std::unique_ptr<RecordWriter>> writer = create_writer(backend, path, mode);
  if (!writer.ok()) return writer.error();
  int since = 0;
  for (const auto& [key, value] : records) {
    if (Status put = writer.value()->put(key, value); !put.ok()) return put;
    if (++since % kRecordsPerCommit == 0)
      if (Status committed = writer.value()->commit(); !committed.ok()) return committed;
  }
  return writer.value()->finish();
}

Result<Records> read_all(RecordSource& source) {
  Records records;
  for (;;) {
    Result<std::optional<RecordView>> record = source.next();
    if (!record.ok()) return record.error();
    if (!record.value()) return records;
    records.emplace_back(record.value()->key, record.value()->value);
  }
}

std::string datum(int channels, int height, int width, std::string_view pixels, int label) {
  Datum made;
  made.set_channels(channels);
  made.set_height(height);
  made.set_width(width);
  made.set_data(std::string(pixels));
  made.set_label(label);
  return made.SerializeAsString();
}

Records small_records(int count) {
  Records records;
  for (int i = 0; i < count; ++i) {
    char key[16];
    std::snprintf(key, sizeof key, "%05d", i);
    std::string pixels;
    for (int p = 0; p < 4; ++p) pixels.push_back(static_cast<char>(i + p));
    records.emplace_back(key, datum(1, 2, 2, pixels, i % 10));
  }
  return records;
}

Records numbered(int count) {
  Records records;
  for (int i = 0; i < count; ++i) {
    std::string key = std::to_string(i);
    records.emplace_back(std::string(8 - key.size(), '0') + key,
                         std::string(1 + i * 37 % 5000, static_cast<char>(i)));
  }
  return records;
}

std::string trouble(const std::string& backend, const std::string& path) {
  Result<std::unique_ptr<RecordSource>> source = open_source(backend, path);
  if (!source.ok()) return source.error().message;
  Result<Records> all = read_all(*source.value());
  return all.ok() ? "" : all.error().message;
}

Running start_program(const std::vector<std::string>& argv, std::uint64_t file_size_limit) {
  std::string directory = fresh_directory("ran") + "_XXXXXX";  // several may run at once
  if (::mkdtemp(directory.data()) == nullptr) ADD_FAILURE() << "no folder like " << directory;
  const std::string out = directory + "/out", err = directory + "/err";
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!std::freopen(out.c_str(), "w", stdout) || !std::freopen(err.c_str(), "w", stderr))
      ::_exit(126);
    if (file_size_limit > 0) {
      const rlimit limit{file_size_limit, file_size_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  return {child, directory};
}

namespace {

bool has_times(const std::string& said, const std::string& text, int times) {
  std::size_t at = 0;
  for (; times > 0 && (at = said.find(text, at)) != std::string::npos; at += text.size()) --times;
  return times == 0;
}

}  // namespace

bool wait_for_text(const Running& running, const std::string& text, int times) {
  const int watch = ::inotify_init1(IN_CLOEXEC);
  ::inotify_add_watch(watch, running.directory.c_str(), IN_MODIFY | IN_CREATE | IN_CLOSE_WRITE);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  bool found = false, ended = false;
  while (!found && !ended && std::chrono::steady_clock::now() < end) {
    siginfo_t info{};
    ended = ::waitid(P_PID, static_cast<id_t>(running.process), &info,
                     WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != 0;
    found = file_exists(running.directory + "/err") &&
            has_times(get_file(running.directory + "/err"), text, times);
    pollfd events{watch, POLLIN, 0};
    if (found || ended || ::poll(&events, 1, 1000) <= 0) continue;
    char drained[4096];
    if (::read(watch, drained, sizeof drained) < 0) break;
  }
  ::close(watch);
  return found;
}

Ran wait_for(const Running& running) {
  constexpr int kDeadline = 120'000;  // milliseconds, for what takes a moment on an idle machine
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, running.process, 0));
  pollfd end{process, POLLIN, 0};
  if (process >= 0 && ::poll(&end, 1, kDeadline) == 0) ::kill(running.process, SIGKILL);
  ::close(process);
  int status = 0;
  ::waitpid(running.process, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  Ran ran{code, get_file(running.directory + "/out"), get_file(running.directory + "/err")};
  fs::remove_all(running.directory);
  return ran;
}

Ran run_program(const std::vector<std::string>& argv, std::uint64_t file_size_limit) {
  return wait_for(start_program(argv, file_size_limit));
}

std::string tools_dir() {
  const char* given = std::getenv("TOOLS_DIR");
  return given ? given : "";
}

}  // namespace shoal::test
