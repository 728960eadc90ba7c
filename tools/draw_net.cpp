// Draws a net as built: its layers, blobs, shapes and shared params.
#include <gflags/gflags.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "common/net_facts.h"
#include "common/net_flags.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

DEFINE_string(phase, "TRAIN", "TRAIN or TEST");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "draw_net [--phase=TEST] [--stage=NAMES] NET.prototxt OUT.dot|OUT.png|OUT.svg|OUT.pdf\n\n"
    "Draws a net as it is built: layers with their params, blobs with their shapes. OUT.dot is "
    "Graphviz's language; of other\nendings Graphviz's program `dot` makes the picture.";

// Runs `dot`, which reads the file `graph` and writes the picture `out`. Returns why it did not.
Status run_dot(const std::string& kind, const std::string& graph, const std::string& out) {
  std::string words[] = {"dot", "-T" + kind, "-o", out, graph};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                       words[3].data(), words[4].data(), nullptr};
  pid_t process = 0;
  if (const int error = ::posix_spawnp(&process, "dot", nullptr, nullptr, arguments, environ))
    return Error{Code::kUsage, str("cannot run Graphviz's dot: ", system_reason(error),
                                   ". Install graphviz, or draw to a .dot file")};
  int status = 0;
  if (::waitpid(process, &status, 0) != process || status != 0)
    return Error{Code::kUsage, "Graphviz's dot could not write " + out};
  return {};
}

int draw(const std::vector<std::string>& words) {
  if (words.size() != 2)
    throw ConfigError(Code::kUsage,
                      "give a net and a file to write: draw_net NET.prototxt OUT.dot");
  const std::string &file = words[0], &out = words[1];
  const std::size_t dot = out.rfind('.');
  const std::string kind = dot == std::string::npos ? "" : out.substr(dot + 1);
  if (kind != "dot" && kind != "png" && kind != "svg" && kind != "pdf")
    throw ConfigError(Code::kUsage, out, ": a drawing ends in .dot, .png, .svg or .pdf");
  NetParameter param = read_net(file);
  set_state_of_flags(FLAGS_phase, *param.mutable_state());
  Context context({});
  const Net net(param, context);
  const std::string graph = kind == "dot" ? out : str(out, ".", ::getpid(), ".dot");
  or_throw(write_file(graph, dot_of(net), Code::kUsage));
  if (kind == "dot") return 0;
  const Status drawn = run_dot(kind, graph, out);
  std::remove(graph.c_str());
  or_throw(drawn);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::draw); }
