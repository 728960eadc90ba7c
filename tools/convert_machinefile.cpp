// The files in which MXNet-G describes a cluster, as one machinefile.
#include <gflags/gflags.h>

#include <iostream>

#include "common/conversion.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/compat/mxnetg.h"
#include "shoal/parallel/cluster.h"

DEFINE_string(hosts, "",
              "file with one address a line; each repetition of an address is one more process");
DEFINE_string(groups, "", "file with one group of addresses a line");
DEFINE_string(data_sharding, "",
              "file with a line 'begin end' for each rank: its share of the data");

namespace shoal {
namespace {

std::string content(const std::string& path) {
  return path.empty() ? "" : or_throw(read_list(path, Code::kUsage));
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 0, 1,
              "convert_machinefile --hosts=FILE [--groups=FILE] [--data_sharding=FILE] [OUT]");
  if (FLAGS_hosts.empty() && FLAGS_groups.empty())
    throw ConfigError(Code::kUsage, "convert_machinefile needs --hosts=FILE or --groups=FILE");
  const std::string machines =
      compat::machinefile_from_mxnetg(content(FLAGS_groups), content(FLAGS_hosts),
                                      content(FLAGS_data_sharding), parallel::kDefaultPort);
  // The grammar's own words say what stands in the place of an address.
  or_throw(parallel::parse_machinefile(machines, "the machinefile to be"));
  if (words.empty())
    std::cout << machines;
  else
    or_throw(write_file(words[0], machines, Code::kUsage));
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(
      argc, argv,
      "convert_machinefile --hosts=FILE [--groups=FILE] [--data_sharding=FILE] [OUT]\n\n"
      "Writes MXNet-G's files as one machinefile, to OUT or to the terminal. Ranks are as in "
      "MXNet-G: by address, compared\n"
      "as strings, the largest first.",
      shoal::body);
}
