// Machinefiles of every family, what launchers say by the environment, host lists, and MXNet-G's
// files.
#include "shoal/parallel/cluster.h"

#include <gtest/gtest.h>

#include "shoal/compat/launchers.h"
#include "shoal/compat/mxnetg.h"
#include "support/data_files.h"

namespace shoal::test::cluster_test {
namespace {

using parallel::find_place;
using parallel::HostfileFormat;
using parallel::parse_machinefile;
using parallel::Place;
using parallel::PlaceFlags;
using parallel::Process;
using parallel::Role;
using Variables = std::map<std::string, std::string>;

// "0 a:29600 worker user=u ..." of all processes, with what is not the default.
std::string in_words(const std::vector<Process>& processes) {
  std::string text;
  for (const Process& p : processes) {
    text += str(text.empty() ? "" : "; ", p.id, ' ', parallel::address_text(p.host, p.port));
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
      {HostfileFormat::kAuto, "localhost\n127.0.0.1\n127.0.0.2",
       "0 localhost:29600; 1 127.0.0.1:29601; 2 127.0.0.2:29600"},
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
       "missing; beyond that: line 3"},
      {any, "0 a 1\n2 b 2",
       "m: ids of 2 lines must be 0 to 1, and 1 is missing; beyond that: line 2"},
      {any, "0 a 1\nb\nc",
       "m: line 1 begins with an id and lines 2 and 3 do not; all must, or none"},
      {any, "0 a 1\n1 b 1\n2 a 1", "m: lines 1 and 3 have the same address a:1"},
      {any, "127.0.0.1 port=5\nlocalhost port=5",
       "m: lines 1 and 2 have the same address 127.0.0.1:5"},
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
      {any, "0 a 1 port=2", "m:1: port is there twice"},
      {any, "a role=worker role=server", "m:1: role is there twice"},
      {any, "a port=0", "m:1: port=0 is not from 1 to 65535"},
      {any, "a port=65535 slots=2", "m: line 1 needs ports above 65535"},
      {any, "a slots=0", "m:1: slots=0 is not from 1 to 65535"},
      {any, "a slots=-1", "m:1: slots=-1 is not from 1 to 65535"},
      {any, "a slots=4 max_slots=2", "m:1: slots=4 is more than max_slots=2"},
      {any, "a ssh_port=99999", "m:1: ssh_port=99999 is not from 1 to 65535"},
      {any, "a user=", "m:1: user= has no value"},
      {any, "a gpus=0,x", "m:1: gpus=0,x is not a list of different numbers"},
      {any, "a gpus=1,1", "m:1: gpus=1,1 is not a list of different numbers"},
      {any, "a weight=0", "m:1: weight=0 is not a number above 0"},
      {any, "a weight=inf", "m:1: weight=inf is not a number above 0"},
      {any, "a role=master", "m:1: role=master is none of both, worker, server"},
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
      {HostfileFormat::kMpich, "a:2 slots=3", "m:1: slots is there twice"},
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

const Variables kTorchrun = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
const Variables kPmi = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
const Variables kSlurm = {{"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_JOB_NODELIST", "gnode[08,10-11],x"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"}};
const Variables kHorovod = {{"HOROVOD_RANK", "1"},
                            {"HOROVOD_SIZE", "2"},
                            {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "h"},
                            {"HOROVOD_GLOO_RENDEZVOUS_PORT", "999"}};
const Variables kDmlc = {{"DMLC_ROLE", "worker"},          {"DMLC_NUM_WORKER", "3"},
                         {"DMLC_NUM_SERVER", "2"},         {"DMLC_WORKER_ID", "2"},
                         {"DMLC_PS_ROOT_URI", "10.0.0.1"}, {"DMLC_PS_ROOT_PORT", "9091"}};
const Variables kPaddle = {{"PADDLE_TRAINER_ID", "1"},
                           {"PADDLE_TRAINERS", "3"},
                           {"PADDLE_TRAINING_ROLE", "TRAINER"},
                           {"PADDLE_PSERVER_IPS", "10.0.0.1,10.0.0.2"},
                           {"PADDLE_PSERVER_PORT", "6174"}};

Variables with(Variables all, const Variables& more) {
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}

std::string in_words(const Place& place) {
  return str(place.rank, " of ", place.processes, " at ", place.master,
             place.role == Role::kBoth ? "" : str(" ", name_of(place.role)), " by ", place.source);
}

TEST(FindPlace, Good) {
  const std::string text = "a\nb role=worker\n";
  const PlaceFlags file{.machinefile = "m", .machinefile_text = text};
  const PlaceFlags second{.client_id = 1, .machinefile = "m", .machinefile_text = text};
  const PlaceFlags flags{.client_id = 1, .num_clients = 3, .master = "[::1]:5"};
  const struct {
    const char* name;
    PlaceFlags flags;
    Variables variables;
    std::string expected;
  } cases[] = {
      {"alone", {}, {}, "0 of 1 at  by one process alone"},
      {"alone by flags",
       {.client_id = 0, .num_clients = 1},
       {},
       "0 of 1 at  by flags (--client_id 0 of --num_clients 1)"},
      {"flags", flags, {}, "1 of 3 at [::1]:5 by flags (--client_id 1 of --num_clients 3)"},
      {"flags before launchers", flags, kTorchrun,
       "1 of 3 at [::1]:5 by flags (--client_id 1 of --num_clients 3)"},
      {"machinefile",
       second,
       {},
       "1 of 2 at a:29600 worker by flags (--client_id 1 of m, 2 processes)"},
      {"role by flag",
       {.client_id = 1, .machinefile = "m", .machinefile_text = text, .role = "server"},
       {},
       "1 of 2 at a:29600 server by flags (--client_id 1 of m, 2 processes)"},
      {"machinefile of one",
       {.machinefile = "m", .machinefile_text = "a port=4"},
       {},
       "0 of 1 at a:4 by the only process of m"},
      {"machinefile and launcher", file, kPmi,
       "0 of 2 at a:29600 by PMI (PMI_RANK 0 of PMI_SIZE 2)"},
      {"torchrun", {}, kTorchrun, "1 of 4 at a:29500 by torchrun (RANK 1 of WORLD_SIZE 4)"},
      {"torchrun's agent has the port",
       {},
       with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
       "1 of 4 at a:29501 by torchrun (RANK 1 of WORLD_SIZE 4)"},
      {"torchrun under srun",
       {},
       with(kSlurm, kTorchrun),
       "1 of 4 at a:29500 by torchrun (RANK 1 of WORLD_SIZE 4)"},
      {"torchrun of one",
       {},
       with(kTorchrun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
       "0 of 1 at  by torchrun (RANK 0 of WORLD_SIZE 1)"},
      {"Open MPI with a master",
       {.master = "b:7"},
       kOpenMpi,
       "2 of 3 at b:7 by Open MPI (OMPI_COMM_WORLD_RANK 2 of OMPI_COMM_WORLD_SIZE 3)"},
      {"Open MPI here",
       {},
       with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}),
       "2 of 3 at 127.0.0.1:29600 by Open MPI (OMPI_COMM_WORLD_RANK 2 of OMPI_COMM_WORLD_SIZE 3)"},
      {"Open MPI with MASTER_ADDR",
       {.port = 31000},
       with(kOpenMpi, {{"MASTER_ADDR", "c"}}),
       "2 of 3 at c:31000 by Open MPI (OMPI_COMM_WORLD_RANK 2 of OMPI_COMM_WORLD_SIZE 3)"},
      {"PMI with MASTER_PORT",
       {},
       with(kPmi, {{"MASTER_ADDR", "c"}, {"MASTER_PORT", "4"}}),
       "0 of 2 at c:4 by PMI (PMI_RANK 0 of PMI_SIZE 2)"},
      {"PMI of Slurm",
       {},
       with(kSlurm, kPmi),
       "0 of 2 at gnode08:29600 by PMI (PMI_RANK 0 of PMI_SIZE 2)"},
      {"Slurm", {}, kSlurm, "5 of 8 at gnode08:29600 by Slurm (SLURM_PROCID 5 of SLURM_NTASKS 8)"},
      {"a batch script of Slurm",
       {},
       with(kSlurm, {{"SLURM_STEP_ID", ""}}),
       "0 of 1 at  by one process alone"},
      {"an interactive step of Slurm",
       {},
       with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}}),
       "0 of 1 at  by one process alone"},
      {"Horovod", {}, kHorovod, "1 of 2 at h:29600 by Horovod (HOROVOD_RANK 1 of HOROVOD_SIZE 2)"},
      {"DMLC worker",
       {},
       kDmlc,
       "2 of 5 at 10.0.0.1:9091 worker by DMLC (DMLC_WORKER_ID 2 of DMLC_NUM_WORKER 3 and "
       "DMLC_NUM_SERVER 2)"},
      {"DMLC server",
       {},
       with(kDmlc, {{"DMLC_ROLE", "server"}, {"DMLC_SERVER_ID", "1"}}),
       "4 of 5 at 10.0.0.1:9091 server by DMLC (DMLC_SERVER_ID 1 of DMLC_NUM_WORKER 3 and "
       "DMLC_NUM_SERVER 2)"},
      {"DMLC without servers",
       {},
       with(kDmlc, {{"DMLC_NUM_SERVER", "0"}}),
       "2 of 3 at 10.0.0.1:9091 by DMLC (DMLC_WORKER_ID 2 of DMLC_NUM_WORKER 3 and DMLC_NUM_SERVER "
       "0)"},
      {"DMLC worker without an id",
       {},
       with(kDmlc, {{"DMLC_WORKER_ID", ""}}),
       "-1 of 5 at 10.0.0.1:9091 worker by DMLC (a worker of DMLC_NUM_WORKER 3 and DMLC_NUM_SERVER "
       "2)"},
      {"DMLC server without an id",
       {},
       with(kDmlc, {{"DMLC_ROLE", "server"}}),
       "-1 of 5 at 10.0.0.1:9091 server by DMLC (a server of DMLC_NUM_WORKER 3 and DMLC_NUM_SERVER "
       "2)"},
      {"DMLC of one worker",
       {},
       with(kDmlc, {{"DMLC_WORKER_ID", ""}, {"DMLC_NUM_WORKER", "1"}, {"DMLC_NUM_SERVER", "0"}}),
       "0 of 1 at  by DMLC (a worker of DMLC_NUM_WORKER 1 and DMLC_NUM_SERVER 0)"},
      {"Paddle trainer",
       {},
       kPaddle,
       "3 of 5 at 10.0.0.1:6174 worker by Paddle (TRAINER 1 of PADDLE_TRAINERS 3 and 2 "
       "PADDLE_PSERVER_IPS)"},
      {"Paddle server",
       {},
       with(kPaddle, {{"PADDLE_TRAINING_ROLE", "PSERVER"}, {"POD_IP", "10.0.0.2"}}),
       "1 of 5 at 10.0.0.1:6174 server by Paddle (PSERVER 10.0.0.2 of PADDLE_TRAINERS 3 and 2 "
       "PADDLE_PSERVER_IPS)"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Result<Place> place = find_place(c.flags, c.variables);
    ASSERT_OK(place);
    EXPECT_EQ(in_words(place.value()), c.expected);
    EXPECT_EQ(place.value().distributed(),
              place.value().processes > 1 || !c.flags.machinefile.empty());
  }
}

TEST(FindPlace, DmlcSaysMore) {
  const Variables variables =
      with(kDmlc, {{"DMLC_INTERFACE", "ib0"}, {"DMLC_NODE_HOST", "10.1.0.2"}, {"PS_VERBOSE", "2"}});
  const Result<Place> worker = find_place({}, variables);
  ASSERT_OK(worker);
  EXPECT_EQ(worker.value().interface, "ib0");
  EXPECT_EQ(worker.value().advertise, "10.1.0.2");
  EXPECT_EQ(worker.value().verbosity, 2);
  EXPECT_FALSE(worker.value().scheduler);
  const Result<Place> scheduler = find_place({}, with(kDmlc, {{"DMLC_ROLE", "scheduler"}}));
  ASSERT_OK(scheduler);
  EXPECT_TRUE(scheduler.value().scheduler);
  EXPECT_EQ(scheduler.value().master, "10.0.0.1:9091");
}

TEST(FindPlace, Bad) {
  const std::string text = "a\nb\n";
  const struct {
    const char* name;
    PlaceFlags flags;
    Variables variables;
    std::string expected;
  } cases[] = {
      {"rank without size",
       {.client_id = 1},
       {},
       "--client_id=1 without --num_clients or --machinefile"},
      {"size without rank",
       {.num_clients = 2},
       {},
       "--num_clients=2, and nothing says which of them this one is: give --client_id"},
      {"no process", {.num_clients = 0}, {}, "--num_clients=0 is not at least 1"},
      {"rank outside",
       {.client_id = 2, .num_clients = 2, .master = "a:1"},
       {},
       "rank 2 is not from 0 to 1; it comes from flags"},
      {"negative rank",
       {.client_id = -1, .num_clients = 2, .master = "a:1"},
       {},
       "rank -1 is not from 0 to 1"},
      {"no master",
       {.client_id = 1, .num_clients = 2},
       {},
       "no address of process 0 is known; flags (--client_id 1 of --num_clients 2) does not say "
       "it: "
       "give --master=host:port, or --machinefile"},
      {"master without port",
       {.client_id = 1, .num_clients = 2, .master = "a"},
       {},
       "--master=a is not host:port"},
      {"master with a bad port",
       {.client_id = 1, .num_clients = 2, .master = "a:0"},
       {},
       "--master=a:0 is not host:port"},
      {"master of IPv6",
       {.client_id = 1, .num_clients = 2, .master = "::1:5"},
       {},
       "--master=::1:5 is not host:port (an IPv6 address stands in brackets)"},
      {"machinefile without rank",
       {.machinefile = "m", .machinefile_text = text},
       {},
       "m names 2 processes, and nothing says which of them this one is"},
      {"bad machinefile",
       {.client_id = 0, .machinefile = "m", .machinefile_text = "a:2"},
       {},
       "m:1: 'a:2' is ambiguous"},
      {"size beside the machinefile",
       {.client_id = 0, .num_clients = 3, .machinefile = "m", .machinefile_text = text},
       {},
       "--num_clients=3, but 2 processes by flags (--client_id 0 of m, 2 processes)"},
      {"launcher beside the machinefile",
       {.machinefile = "m", .machinefile_text = text},
       kTorchrun,
       "m names 2 processes, but there are 4 by torchrun (RANK 1 of WORLD_SIZE 4)"},
      {"launcher beside --num_clients",
       {.num_clients = 3},
       kTorchrun,
       "--num_clients=3, but 4 processes by torchrun"},
      {"unknown role", {.role = "master"}, {}, "--role=master is none of worker, server, both"},
      {"half of torchrun",
       {},
       {{"RANK", "0"}},
       "torchrun started this process, but WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set; set "
       "it, or unset RANK"},
      {"other half of torchrun",
       {},
       with(kTorchrun, {{"RANK", ""}}),
       "torchrun started this process, but RANK is not set; set it, or unset WORLD_SIZE, "
       "MASTER_ADDR, MASTER_PORT"},
      {"torchrun without an address",
       {},
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}},
       "MASTER_ADDR is not set"},
      {"a rank that is no number",
       {},
       with(kTorchrun, {{"RANK", "1x"}}),
       "torchrun started this process, but RANK is '1x', no number from 0 to 65534"},
      {"a port that is no port",
       {},
       with(kTorchrun, {{"MASTER_PORT", "0"}}),
       "MASTER_PORT is '0', no number from 1 to 65535"},
      {"a rank outside the world",
       {},
       with(kTorchrun, {{"RANK", "4"}}),
       "rank 4 is not from 0 to 3; it comes from torchrun"},
      {"half of Open MPI",
       {},
       {{"OMPI_COMM_WORLD_SIZE", "2"}},
       "OMPI_COMM_WORLD_RANK is not set; set it, or unset OMPI_COMM_WORLD_SIZE"},
      {"Open MPI without an address",
       {},
       with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
       "no address of process 0 is known; Open MPI ("},
      {"a bad MASTER_PORT",
       {},
       with(kOpenMpi, {{"MASTER_ADDR", "c"}, {"MASTER_PORT", "x"}}),
       "MASTER_PORT is 'x', no port from 1 to 65535"},
      {"half of PMI", {}, {{"PMI_RANK", "0"}}, "PMI_SIZE is not set; set it, or unset PMI_RANK"},
      {"half of Slurm",
       {},
       {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}},
       "Slurm started this process, but SLURM_NTASKS is not set"},
      {"a bad host list",
       {},
       with(kSlurm, {{"SLURM_JOB_NODELIST", "a[1"}}),
       "SLURM_JOB_NODELIST: host list 'a[1': '[' without ']'"},
      {"half of Horovod",
       {},
       {{"HOROVOD_SIZE", "2"}},
       "HOROVOD_RANK is not set; set it, or unset HOROVOD_SIZE"},
      {"half of DMLC",
       {},
       with(kDmlc, {{"DMLC_PS_ROOT_URI", ""}}),
       "DMLC_PS_ROOT_URI is not set; set it, or unset DMLC_ROLE"},
      {"DMLC without an id and a machinefile",
       {.machinefile = "m", .machinefile_text = text},
       with(kDmlc, {{"DMLC_WORKER_ID", ""}, {"DMLC_NUM_WORKER", "2"}, {"DMLC_NUM_SERVER", "0"}}),
       "m says what each process is, and DMLC (a worker of DMLC_NUM_WORKER 2 and DMLC_NUM_SERVER "
       "0) does not say which of them this one is: give --client_id"},
      {"a verbosity that is no number",
       {},
       with(kDmlc, {{"PS_VERBOSE", "x"}}),
       "PS_VERBOSE is 'x', no number from 0 to 9"},
      {"a worker too many",
       {},
       with(kDmlc, {{"DMLC_WORKER_ID", "3"}}),
       "DMLC_WORKER_ID is '3', no number from 0 to 2"},
      {"an unknown role of DMLC",
       {},
       with(kDmlc, {{"DMLC_ROLE", "x"}}),
       "DMLC_ROLE is 'x', neither worker nor server"},
      {"half of Paddle",
       {},
       with(kPaddle, {{"PADDLE_TRAINERS", ""}}),
       "Paddle started this process, but PADDLE_TRAINERS is not set"},
      {"Paddle trainer without an id",
       {},
       with(kPaddle, {{"PADDLE_TRAINER_ID", ""}}),
       "PADDLE_TRAINER_ID is not set"},
      {"Paddle server elsewhere",
       {},
       with(kPaddle, {{"PADDLE_TRAINING_ROLE", "PSERVER"}, {"POD_IP", "10.0.0.9"}}),
       "POD_IP 10.0.0.9 is not one of PADDLE_PSERVER_IPS"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Result<Place> place = find_place(c.flags, c.variables);
    EXPECT_FAILS_WITH(c.expected, place);
    EXPECT_EQ(place.error().code, Code::kUsage);
  }
}

// ---- host lists ----

// Process 0 is on the first machine of Slurm's list.
TEST(HostList, Good) {
  const struct {
    std::string list, first;
  } cases[] = {{"login", "login"}, {"gnode[10,20,25-27],login", "gnode10"}, {"x[001-003]", "x001"},
               {"x[8-11]", "x8"},  {"r[1-2]n[3-4]-ib,b", "r1n3-ib"},        {"a,,b", "a"}};
  for (const auto& c : cases) {
    const auto place = find_place({}, with(kSlurm, {{"SLURM_JOB_NODELIST", c.list}}));
    EXPECT_EQ(place.value().master, c.first + ":29600") << c.list;
  }
}

TEST(HostList, Bad) {
  for (const auto& [list, words] :
       {std::pair(",a", "a host without a name"), std::pair("a[1", "'[' without ']'"),
        std::pair("a1]", "']' without '['"), std::pair("a[]", "'' is no number"),
        std::pair("a[x]", "'x' is no number")})
    EXPECT_FAILS_WITH(words, find_place({}, with(kSlurm, {{"SLURM_JOB_NODELIST", list}})));
}

// ---- MXNet-G ----

TEST(MxnetG, RanksAreTheAddressesAsStringsTheLargestFirst) {
  const auto text = compat::machinefile_from_mxnetg("10.10.10.10 10.10.10.2\n10.10.10.9\n",
                                                    "10.10.10.10\n10.10.10.2\n10.10.10.9\n", "",
                                                    parallel::kDefaultPort);
  ASSERT_OK(text);
  EXPECT_EQ(
      text.value(),
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
    ASSERT_OK(text);
    EXPECT_EQ(text.value(), c.expected);
    ASSERT_OK(parse_machinefile(text.value(), "m"));
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
    EXPECT_FAILS_WITH(c.expected, compat::machinefile_from_mxnetg(c.groups, c.hosts, c.shares,
                                                                  parallel::kDefaultPort));
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
            "the machinefile has groups, and none for the workers of lines 2 and 4; give group= to "
            "all workers, or to none");
  EXPECT_EQ(
      parallel::server_bandwidths(machines("a bandwidth=1e8\nb role=worker\nc bandwidth=2.5e6\n")),
      (std::vector<double>{1e8, 2.5e6}));
  EXPECT_EQ(parallel::server_bandwidths(machines("a bandwidth=1e8\nb\n")), std::vector<double>());
  EXPECT_EQ(parse_machinefile("a bandwidth=0\n", "m").error().message,
            "m:1: bandwidth=0 is not a number above 0");
}

}  // namespace
}  // namespace shoal::test::cluster_test
