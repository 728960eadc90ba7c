// Tests the environments of launchers: which process of the job this is by them, and host lists.
#include <gtest/gtest.h>

#include "shoal/compat/launchers.h"
#include "shoal/parallel/cluster.h"
#include "support/expect.h"

namespace shoal::test::launchers_test {
namespace {

using parallel::find_place;
using parallel::Place;
using parallel::PlaceFlags;
using parallel::Process;
using parallel::Role;
using Variables = std::map<std::string, std::string>;

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
      {"a step on some machines of its job",
       {},
       with(kSlurm, {{"SLURM_STEP_NODELIST", "gnode[10-11]"}}),
       "5 of 8 at gnode10:29600 by Slurm (SLURM_PROCID 5 of SLURM_NTASKS 8)"},
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
      {"no process", {.num_clients = 0}, {}, "--num_clients=0; it must be 1 or more"},
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
      {"master with an open bracket",
       {.client_id = 1, .num_clients = 2, .master = "[a:5"},
       {},
       "--master=[a:5 is not host:port"},
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
      {"unknown role", {.role = "master"}, {}, "--role=master is not worker, server or both"},
      {"half of torchrun",
       {},
       {{"RANK", "0"}},
       "torchrun started this process, but WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set; set "
       "them, or unset RANK"},
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
      {"a bad host list of a step",
       {},
       with(kSlurm, {{"SLURM_STEP_NODELIST", "a]"}}),
       "SLURM_STEP_NODELIST: host list 'a]': ']' without '['"},
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

}  // namespace
}  // namespace shoal::test::launchers_test
