// MXNet-G's files, as one machinefile.
#include <gtest/gtest.h>

#include "shoal/compat/mxnetg.h"
#include "shoal/parallel/cluster.h"
#include "support/data_files.h"

namespace shoal::test::mxnetg_test {
namespace {

using parallel::parse_machinefile;

TEST(MxnetG, RanksAreTheAddressesAsStringsTheLargestFirst) {
  const auto text = compat::machinefile_from_mxnetg("10.10.10.10 10.10.10.2\n10.10.10.9\n",
                                                    "10.10.10.10\n10.10.10.2\n10.10.10.9\n", "",
                                                    parallel::kDefaultPort);
  EXPECT_EQ(
      text,
      "0 10.10.10.9 29600 group=2\n1 10.10.10.2 29600 group=1\n2 10.10.10.10 29600 group=1\n");
}

TEST(MxnetG, Good) {
  const struct {
    const char* name;
    std::string groups, hosts, shares, expected;
  } cases[] = {
      {"groups alone", "b a\n", "", "", "0 b 29600 group=1\n1 a 29600 group=1\n"},
      {"an address again is one more process", "", "a\nb\na\n", "",
       "0 b 29600\n1 a 29600\n2 a 29601\n"},
      {"double blanks, blank lines", "a  b\n\nc \r\n", "", "",
       "0 c 29600 group=3\n1 b 29600 group=1\n2 a 29600 group=1\n"},
      {"two groups", "a b\nb\n", "a\nb", "",
       "# b is in the groups of lines 1 and 2; the first counts\n0 b 29600 group=1\n1 a 29600 "
       "group=1\n"},
      {"shares", "", "a\nb\nc", "0 .25\n.25 .5\n.5 1.0\n",
       "0 c 29600 weight=0.25\n1 b 29600 weight=0.25\n2 a 29600 weight=0.5\n"},
      {"shares in another order", "", "a\nb", "0.7 1\n0 0.7\n",
       "# data_sharding's shares do not follow each other by rank; here they do, with the same "
       "sizes\n0 b 29600 weight=0.3\n1 a 29600 weight=0.7\n"},
      {"shares of less than all", "", "a\nb", "0 0.33\n0.33 0.99\n",
       "# data_sharding leaves out 0.01 of the data; here all of it is used\n0 b 29600 "
       "weight=0.33\n1 a 29600 weight=0.66\n"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto text =
        compat::machinefile_from_mxnetg(c.groups, c.hosts, c.shares, parallel::kDefaultPort);
    EXPECT_EQ(text, c.expected);
    ASSERT_OK(parse_machinefile(text, "m"));
  }
}

TEST(MxnetG, Bad) {
  const struct {
    std::string groups, hosts, shares, expected;
  } cases[] = {
      {"", "", "", "neither hosts nor groups names a machine"},
      {"a\n", "a\nb\n", "", "hosts:2: b is in no group"},
      {"a\nb c\n", "a\nb\n", "", "groups:2: c is not in hosts"},
      {"", "a b\n", "", "hosts:1: 'a b' is not one address"},
      {"", "a\nb\n", "0 1\n", "data_sharding has 1 lines for 2 workers"},
      {"", "a\n", "0 2\n", "data_sharding:1: '0 2' is not 'begin end' with 0 <= begin < end <= 1"},
      {"", "a\n", "0\n", "data_sharding:1: '0' is not"},
      {"", "a\n", "\nx 1\n", "data_sharding:2: 'x 1' is not"},
      {"", "a\nb\n", "0.4 1\n0 0.5\n", "data_sharding: lines 1 and 2 overlap"},
  };
  for (const auto& c : cases)
    EXPECT_HAS(message_of([&] {
                 compat::machinefile_from_mxnetg(c.groups, c.hosts, c.shares,
                                                 parallel::kDefaultPort);
               }),
               c.expected);
}

TEST(MxnetG, TheTool) {
  if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
  const std::string tool = tools_dir() + "/convert_machinefile",
                    directory = fresh_directory("convert_machinefile");
  put_file(directory + "/hosts", "a\nb\n");
  put_file(directory + "/groups", "a b\n");
  const std::string hosts = "--hosts=" + directory + "/hosts",
                    expected = "0 b 29600 group=1\n1 a 29600 group=1\n";
  const Ran shown = run_program({tool, hosts, "--groups=" + directory + "/groups"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, expected);
  EXPECT_EQ(
      run_program({tool, hosts, "--groups", directory + "/groups", directory + "/machines"}).code,
      0);
  EXPECT_EQ(get_file(directory + "/machines"), expected);
  const Ran none = run_program({tool});
  EXPECT_EQ(none.code, 2);
  EXPECT_HAS(none.err, "convert_machinefile needs --hosts=FILE or --groups=FILE");
  const Ran missing = run_program({tool, "--hosts=" + directory + "/nowhere"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_HAS(missing.err, "nowhere: No such file");
  put_file(directory + "/hosts", "a:b\n");
  const Ran no_address = run_program({tool, hosts});
  EXPECT_EQ(no_address.code, 2);
  EXPECT_HAS(no_address.err, "'[a:b]' is not an IPv6 address in brackets");
}

}  // namespace
}  // namespace shoal::test::mxnetg_test
