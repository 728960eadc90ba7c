// Tests machinefiles of every family: good ones, and refused ones.
#include "shoal/parallel/cluster.h"

#include <gtest/gtest.h>

#include "shoal/base/address.h"
#include "support/expect.h"

namespace shoal::test::machinefile_test {
namespace {

using parallel::HostfileFormat;
using parallel::parse_machinefile;
using parallel::Process;
using parallel::Role;

// Returns "0 a:29600 worker user=u ..." of all processes, with the values that are not the default.
std::string in_words(const std::vector<Process>& processes) {
  std::string text;
  for (const Process& p : processes) {
    text += str(text.empty() ? "" : "; ", p.id, ' ', join_address(p.host, str(p.port)));
    if (p.role != Role::kBoth) text += str(' ', name_of(p.role));
    if (p.ssh_port != 22) text += str(" ssh ", p.ssh_port);
    for (const auto& [name, value] : {std::pair("user", p.user), std::pair("iface", p.interface),
                                      std::pair("group", p.group), std::pair("data", p.data)})
      if (!value.empty()) text += str(' ', name, ' ', value);
    for (const int gpu : p.gpus) text += str(" gpu ", gpu);
    if (p.weight != 1) text += str(" weight ", p.weight);
  }
  return text;
}

TEST(Machinefile, Good) {
  const struct {
    HostfileFormat format;
    std::string text, expected;
  } cases[] = {
      {HostfileFormat::kAuto, "0 127.0.0.1 9999", "0 127.0.0.1:9999"},
      {HostfileFormat::kPoseidon, "0 a 1\n1\tb   2 \n", "0 a:1; 1 b:2"},
      {HostfileFormat::kAuto, "2 c 3\n0 a 1 # first\n\n  # nothing\n1 b 2#x\n",
       "0 a:1; 1 b:2; 2 c:3"},
      {HostfileFormat::kAuto,
       "\xef\xbb\xbf"
       "a\r\nb\r\n",
       "0 a:29600; 1 b:29600"},
      {HostfileFormat::kAuto, "a slots=2 max_slots=8\nb\na\n",
       "0 a:29600; 1 a:29601; 2 b:29600; 3 a:29602"},
      {HostfileFormat::kOpenMpi, "node-1.x slots=2\n", "0 node-1.x:29600; 1 node-1.x:29601"},
      {HostfileFormat::kDeepSpeed, "a slots=1\nb slots=1", "0 a:29600; 1 b:29600"},
      {HostfileFormat::kAuto, "10.0.0.1\n10.0.0.1\n", "0 10.0.0.1:29600; 1 10.0.0.1:29601"},
      {HostfileFormat::kAuto, "localhost\n127.0.0.1\n[::1]\n127.0.0.2",
       "0 localhost:29600; 1 127.0.0.1:29601; 2 [::1]:29602; 3 127.0.0.2:29600"},
      {HostfileFormat::kAuto, "a port=7 slots=3", "0 a:7; 1 a:8; 2 a:9"},
      {HostfileFormat::kAuto, "a port=5\na port=6", "0 a:5; 1 a:6"},
      {HostfileFormat::kAuto, "a port=29600\na", "0 a:29600; 1 a:29601"},
      {HostfileFormat::kAuto, "[::1]\n[fe80::1%eth0] port=3", "0 [::1]:29600; 1 [fe80::1%eth0]:3"},
      {HostfileFormat::kAuto, "0 [2001:db8::2] 5", "0 [2001:db8::2]:5"},
      {HostfileFormat::kMxnet, "a:2222\nb", "0 a:29600 ssh 2222; 1 b:29600"},
      {HostfileFormat::kMpich, "a:2", "0 a:29600; 1 a:29601"},
      {HostfileFormat::kHorovod, "a:2\nb slots=1", "0 a:29600; 1 a:29601; 2 b:29600"},
      {HostfileFormat::kAuto,
       "a ssh_port=23 user=u gpus=0,2 group=g data=x iface=eth0 weight=2.5 role=worker\nb "
       "role=server\nc role=both",
       "0 a:29600 worker ssh 23 user u iface eth0 group g data x gpu 0 gpu 2 weight 2.5; 1 b:29600 "
       "server; 2 c:29600"},
      {HostfileFormat::kAuto, "a slots=2 gpus=3,1\nb slots=2 gpus=0",
       "0 a:29600 gpu 3; 1 a:29601 gpu 1; 2 b:29600 gpu 0; 3 b:29601 gpu 0"},
      {HostfileFormat::kAuto, "a slots=2 gpus=0,1,2,3",
       "0 a:29600 gpu 0 gpu 1; 1 a:29601 gpu 2 gpu 3"},
      {HostfileFormat::kAuto, "1 b 2 role=server\n0 a 1 data=left",
       "0 a:1 data left; 1 b:2 server"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const auto processes = parse_machinefile(c.text, "m", c.format);
    ASSERT_OK(processes);
    EXPECT_EQ(in_words(processes.value()), c.expected);
  }
  EXPECT_EQ(parse_machinefile("\n\na slots=2\n", "m").value()[1].line, 3);
}

TEST(Machinefile, Bad) {
  const HostfileFormat any = HostfileFormat::kAuto;
  const struct {
    HostfileFormat format;
    std::string text, expected;
  } cases[] = {
      {any, "", "m: names no machine"},
      {any, " \n# a\n", "m: names no machine"},
      {any, "0 a 1\n\n0 b 2\n1 c 3",
       "m: lines 1 and 3 have the same id 0\nm: ids of 3 lines must be 0 to 2, and 2 is missing"},
      {any, "0 a 1\n2 b 2\n5 c 3\n2 d 4",
       "m: lines 2 and 4 have the same id 2\nm: ids of 4 lines must be 0 to 3, and 1, 3 are "
       "missing; ids that are too large: line 3"},
      {any, "0 a 1\n2 b 2",
       "m: ids of 2 lines must be 0 to 1, and 1 is missing; ids that are too large: line 2"},
      {any, "0 a 1\nb\nc",
       "m: line 1 begins with an id and lines 2 and 3 do not; all must, or none"},
      {any, "0 a 1\n1 b 1\n2 a 1", "m: lines 1 and 3 have the same address a:1"},
      {any, "127.0.0.1 port=5\nlocalhost port=5",
       "m: lines 1 and 2 have the same address 127.0.0.1:5"},
      {any, "[::1] port=5\n127.0.0.1 port=5", "m: lines 1 and 2 have the same address 127.0.0.1:5"},
      {any, "a port=5 slots=2\nb\na port=6", "m: lines 1 and 3 have the same address a:6"},
      {any, "a slot=2", "m:1: unknown key 'slot'; did you mean 'slots'?"},
      {any, "a colour=red", "m:1: unknown key 'colour'; known: slots, max_slots, port, "},
      {any, "a b", "m:1: 'b' is not key=value"},
      {any, "0 10.0.0.1",
       "m:1: '10.0.0.1' is not key=value; a line with an id is 'id address port'"},
      {any, "0 a slots=2",
       "m:1: 'slots=2' is not a port from 1 to 65535; a line that begins with an id is 'id address "
       "port'"},
      {any, "0 a 0\n1 b 65536\n2 c x",
       "m:1: '0' is not a port from 1 to 65535; a line that begins with an id is 'id address "
       "port'\nm:2: '65536' is not"},
      {any, "99999999999 a 1", "m:1: id 99999999999 is not from 0 to 65534"},
      {any, "0 a 1 slots=2", "m:1: slots=2 on a line with an id; a line with an id is one process"},
      {any, "0 a 1 port=2", "m:1: port is given twice"},
      {any, "a role=worker role=server", "m:1: role is given twice"},
      {any, "a port=0", "m:1: port=0 is not from 1 to 65535"},
      {any, "a port=65535 slots=2", "m: line 1 needs ports above 65535"},
      {any, "a slots=2 gpus=0,1,2", "m: line 1: 3 gpus cannot be divided among 2 slots"},
      {any, "a slots=0", "m:1: slots=0 is not from 1 to 65535"},
      {any, "a slots=-1", "m:1: slots=-1 is not from 1 to 65535"},
      {any, "a slots=4 max_slots=2", "m:1: slots=4 is more than max_slots=2"},
      {any, "a ssh_port=99999", "m:1: ssh_port=99999 is not from 1 to 65535"},
      {any, "a user=", "m:1: user= has no value"},
      {any, "a gpus=0,x", "m:1: gpus=0,x is not a list of different numbers"},
      {any, "a gpus=1,1", "m:1: gpus=1,1 is not a list of different numbers"},
      {any, "a weight=0", "m:1: weight=0 is not a number above 0"},
      {any, "a weight=inf", "m:1: weight=inf is not a number above 0"},
      {any, "a role=master", "m:1: role=master is not worker, server or both"},
      {any, "a:22",
       "m:1: 'a:22' is ambiguous: write 'a ssh_port=22' or 'a slots=22' (or 'port=' for the table "
       "service), or give --hostfile_format"},
      {any, "::1", "m:1: IPv6 address ::1 without brackets; write [::1]"},
      {any, "[::g]", "m:1: '[::g]' is not an IPv6 address in brackets"},
      {any, "[::1", "m:1: '[::1' is not an IPv6 address in brackets"},
      {any, "me@a", "m:1: 'me@a' has a user; write 'a user=me'"},
      {any, "10.0.0.300", "m:1: '10.0.0.300' is not an IPv4 address"},
      {any, "a,b", "m:1: 'a,b' is neither a host's name nor an address"},
      {any, "-oProxyCommand=x", "m:1: '-oProxyCommand=x' is neither a host's name nor an address"},
      {any, "a x=1\nb y=2", "m:1: unknown key 'x'"},
      {any, "a x=1\nb y=2", "\nm:2: unknown key 'y'"},
      {HostfileFormat::kMxnet, "a:x", "m:1: ssh_port=x is not from 1 to 65535"},
      {HostfileFormat::kMpich, "a:0", "m:1: slots=0 is not from 1 to 65535"},
      {HostfileFormat::kMpich, "a:2 slots=3", "m:1: slots is given twice"},
      {HostfileFormat::kOpenMpi, "a:2",
       "m:1: 'a:2' has a colon, which means nothing in this format"},
      {HostfileFormat::kDeepSpeed, "a\nb\na",
       "m: lines 1 and 3 name a again, which this format does not allow"},
      {HostfileFormat::kPoseidon, "a\n0 b 1",
       "m:1: 'a' is not 'id address port', as every line of this format"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const auto processes = parse_machinefile(c.text, "m", c.format);
    EXPECT_FAILS_WITH(c.expected, processes);
    EXPECT_EQ(processes.error().code, Code::kUsage);
  }
  std::string many;
  for (int i = 0; i < 14; ++i) many += "a x=1\n";
  EXPECT_FAILS_WITH("\n... and 4 more", parse_machinefile(many, "m"));
  EXPECT_EQ(parse_machinefile("a slots=4 max_slots=x", "m").error().message,
            "m:1: max_slots=x is not from 1 to 65535")
      << "and no more than that";
}

TEST(Machinefile, Formats) {
  EXPECT_EQ(parallel::hostfile_format_named("mpich"), HostfileFormat::kMpich);
  EXPECT_EQ(parallel::hostfile_format_named("auto"), HostfileFormat::kAuto);
  EXPECT_EQ(parallel::hostfile_format_named("yarn"), std::nullopt);
}

// ---- which process this is ----

// ---- MXNet-G ----

TEST(Machinefile, GroupsAndBandwidthsAreOfWorkersAndOfServers) {
  const auto machines = [](const std::string& text) {
    return parse_machinefile(text, "m").value();
  };
  EXPECT_EQ(
      parallel::groups_of(machines("a group=fast\nb role=server\nc group=slow\nd group=fast\n"))
          .value(),
      "0,2|1")
      << "b is no worker";
  EXPECT_EQ(parallel::groups_of(machines("a\nb\n")).value(), "");
  EXPECT_EQ(parallel::groups_of(machines("a group=x\nb\nc group=x\nd\n")).error().message,
            "the machinefile gives groups, but none for the workers of lines 2 and 4; give group= "
            "to all, or to none");
  EXPECT_EQ(
      parallel::server_bandwidths(machines("a bandwidth=1e8\nb role=worker\nc bandwidth=2.5e6\n")),
      (std::vector<double>{1e8, 2.5e6}));
  EXPECT_EQ(parallel::server_bandwidths(machines("a bandwidth=1e8\nb\n")), std::vector<double>());
  EXPECT_EQ(parse_machinefile("a bandwidth=0\n", "m").error().message,
            "m:1: bandwidth=0 is not a number above 0");
}

}  // namespace
}  // namespace shoal::test::machinefile_test
