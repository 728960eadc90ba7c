// Caffe's one program for several: `caffe train --solver=...` runs the tool of that name beside it.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const std::vector<std::string> commands = {"train", "test", "time", "extract_features",
                                             "device_query"};
  std::vector<char*> words(argv, argv + argc);
  // Flags may stand before the command.
  const auto found = std::find_first_of(words.begin() + std::min(argc, 1), words.end(),
                                        commands.begin(), commands.end());
  const std::string first = argc > 1 ? argv[1] : "";
  const bool version = found == words.end() && (first == "--version" || first == "-version");
  if (found != words.end() || version) {
    const std::string name = version ? "train" : *found;
    if (!version) words.erase(found);
    words[0] = const_cast<char*>(name.c_str());
    words.push_back(nullptr);
    const std::string path =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
    ::execv(path.c_str(), words.data());
    std::fprintf(stderr, "caffe: cannot run %s: %s\n", path.c_str(), std::strerror(errno));
    return 1;
  }
  const bool asked = first.starts_with("--help") || first == "-help" || first == "help";
  if (!asked && argc > 1) std::fprintf(stderr, "caffe: no command '%s'\n", first.c_str());
  std::string known;
  for (const std::string& name : commands) known += (known.empty() ? "" : "|") + name;
  std::fprintf(asked ? stdout : stderr,
               "usage: caffe %s FLAGS\nEach has a --help of its own and is a tool of its own "
               "beside this one.\n",
               known.c_str());
  return asked ? 0 : 2;
}
