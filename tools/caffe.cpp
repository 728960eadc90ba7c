// Caffe's one program for several: `caffe train --solver=...` runs the tool of that name beside it.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const std::vector<std::string> commands = {"train", "test", "time", "extract_features",
                                             "device_query"};
  const std::string command = argc > 1 ? argv[1] : "";
  std::string known;
  for (const std::string& name : commands) {
    known += (known.empty() ? "" : "|") + name;
    if (name != command) continue;
    const std::string path =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
    ::execv(path.c_str(), argv + 1);
    std::fprintf(stderr, "caffe: cannot run %s: %s\n", path.c_str(), std::strerror(errno));
    return 1;
  }
  const bool asked = command == "--help" || command == "-help" || command == "help";
  if (!asked && argc > 1) std::fprintf(stderr, "caffe: no command '%s'\n", command.c_str());
  std::fprintf(asked ? stdout : stderr,
               "usage: caffe %s FLAGS\nEach has a --help of its own and is a tool of its own "
               "beside this one.\n",
               known.c_str());
  return asked ? 0 : 2;
}
