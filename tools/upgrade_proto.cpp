#include <string>
#include <string_view>

#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

struct InOut {
  std::string in, out;
};

InOut in_and_out(const std::vector<std::string>& words) {
  if (words.size() != 2)
    throw ConfigError(Code::kUsage, "two files are needed, IN and OUT, but there are ",
                      words.size());
  return {words[0], words[1]};
}

int report(const InOut& files, const Status& written) {
  or_throw(written);
  LOG(INFO) << "Wrote " << files.out;
  return 0;
}

int upgrade_net_text(const InOut& files) {
  return report(files, write_text(read_net(files.in), files.out));
}

int upgrade_net_binary(const InOut& files) {
  return report(files, write_binary(read_weights(files.in), files.out, Code::kConfig));
}

int upgrade_solver_text(const InOut& files) {
  return report(files, write_text(read_solver(files.in, SnapshotPrefix::kAsWritten), files.out));
}

int upgrade_any(const InOut& files) {
  switch (const FileKind kind = kind_of_file(files.in)) {
    case FileKind::kModel: return upgrade_net_binary(files);
    case FileKind::kSolverText: return upgrade_solver_text(files);
    case FileKind::kNetText:
    case FileKind::kEmpty:
    // Reading it as a net says what is wrong with it.
    case FileKind::kUnknown: return upgrade_net_text(files);
    default:
      throw ConfigError(Code::kConfig, files.in, " is ", to_words(kind),
                        "; there is nothing to upgrade");
  }
}

using Words = std::vector<std::string>;

// The names of this program: its own, and those that Caffe has for single kinds of file.
constexpr struct {
  std::string_view name;
  const char* usage;
  int (*body)(const Words& words);
} kNames[] = {
    {"upgrade_net_proto_text",
     "upgrade_net_proto_text IN OUT\n\n"
     "Writes a net in text form, of any age, in today's form. Comments are not kept.",
     [](const Words& words) { return upgrade_net_text(in_and_out(words)); }},
    {"upgrade_net_proto_binary",
     "upgrade_net_proto_binary IN OUT\n\n"
     "Writes a model (.caffemodel) of any age and writer in today's form.",
     [](const Words& words) { return upgrade_net_binary(in_and_out(words)); }},
    {"upgrade_solver_proto_text",
     "upgrade_solver_proto_text IN OUT\n\n"
     "Writes a solver in text form, of any age, in today's form. Comments are not kept.",
     [](const Words& words) { return upgrade_solver_text(in_and_out(words)); }},
    {"",
     "upgrade_proto IN OUT\n\n"
     "Writes a net or a solver (text) or a model (binary) of any age in today's form. The content "
     "of IN tells what it is.\n"
     "OUT may be IN. Comments of a text are not kept.",
     [](const Words& words) { return upgrade_any(in_and_out(words)); }},
};

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  const std::string_view path = argc > 0 ? argv[0] : "";
  for (const auto& [name, usage, body] : shoal::kNames)
    if (path.ends_with(name)) return shoal::run_tool(argc, argv, usage, body);
}
