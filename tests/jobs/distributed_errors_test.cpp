// Tests jobs of train processes that cannot run: exit codes, and the errors of each process.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "support/certificates.h"
#include "support/data_files.h"
#include "support/distributed_train.h"

namespace shoal::distributed_errors_test {
namespace {

using test::DistributedTrain;
using test::Port;
using test::put_file;
using test::Ran;
using test::Running;

TEST_F(DistributedTrain, AloneNoPortIsOpened) {
  const Running running =
      test::start_program(alone(solver("local", plain_net(4), "max_iter: 100000000 display: 1")));
  ASSERT_TRUE(test::wait_for_text(running, "Iteration 3 ("));
  int sockets = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(running.process) + "/fd")) {
    std::error_code error;
    sockets += std::filesystem::read_symlink(entry.path(), error).string().starts_with("socket:");
  }
  EXPECT_EQ(sockets, 0);
  ::kill(running.process, SIGTERM);
  EXPECT_EQ(test::wait_for(running).code, 75);
}

TEST_F(DistributedTrain, WhatTheCommandLineGetsWrongIsNamed) {
  const std::string good = solver("good", plain_net(4), "max_iter: 2");
  put_file(folder_ + "/twice", "0 127.0.0.1 29600\n1 127.0.0.1 29600\n");
  put_file(folder_ + "/short", "fifteen letters\n");
  const table::test::Authority ca("Shoal CA");
  const table::CertificateFiles own =
      table::test::put_files(folder_ + "/own", ca.sign("machine"), ca.certificate());
  port_ = 29600;
  const struct {
    std::vector<std::string> flags;
    int code;
    const char* words;
  } cases[] = {
      {{"--scheme=bps"}, 2, "flags: scheme 'bps': no scheme is named 'bps'; did you mean 'bsp'?"},
      {{"--staleness=-1"},
       2,
       "--staleness=-1: it must be a number of clocks, 0 or more, or unbounded"},
      {{"--scheme=bsp", "--staleness=2"}, 2, "--scheme=bsp and --staleness=2 exclude each other"},
      {{"--movingRate=0.5", "--moving_rate=0.6"},
       2,
       "--moving_rate=0.6 and --movingRate=0.5 are two names of one flag; give one value"},
      {{"--backup=2", "--payload=deltas"},
       2,
       "--payload=deltas; did you mean 'delta'? Known: gradient, delta, weights"},
      {{"--backup=1", "--weighting=inverse"},
       2,
       "sync_backup has no 'weighting', less weight for a stale update"},
      {{"--groups=0|0"}, 2, "worker 0 is given twice"},
      {{"--staleness=1", "--table_staleness=2"},
       2,
       "--staleness=1 and --table_staleness=2 are two names of one flag; give one value"},
      {{"--consistency_model=LocalOOC"},
       2,
       "--consistency_model=LocalOOC: known are SSP, SSPPush and SSPAggr"},
      {{"--replicas=2", "--num_table_threads=2"},
       2,
       "--replicas=2 and --num_table_threads=2 exclude each other"},
      {{"--batch_semantics=EACH"}, 2, "--batch_semantics=EACH: known are PER_WORKER and GLOBAL"},
      {{"--batch_semantics=GLOBAL", "--replicas=5"},
       3,
       "the batch_size of layer 'data', 4, is less than the 5 nets that divide it"},
      {{"--hostfile=" + folder_ + "/none", "--client_id=0"}, 2, "/none"},
      {{"--hostfile=" + folder_ + "/twice", "--client_id=0"}, 2, "29600"},
      {{"--client_id=2", "--num_clients=2", "--master=127.0.0.1:1"}, 2, "rank 2"},
      {{"--client_id=0", "--num_clients=2"}, 2, "no address of process 0 is known"},
      {{"--client_id=0", "--num_clients=2", "--master=127.0.0.1:29600", "--port=29601"},
       2,
       "others look for it at 127.0.0.1:29600"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--interface=none0"},
       2,
       "--interface=none0: there is no interface"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--port_range=5"},
       2,
       "--port_range=5: two ports with a dash are wanted"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--send_order=best"},
       2,
       "--send_order=best: known are priority and arrival"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600",
        "--token_file=" + folder_ + "/none"},
       2,
       "/none"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--encrypt=maybe"},
       2,
       "--encrypt=maybe: known are auto, always and never"},
      {{"--client_id=1", "--num_clients=2", "--master=192.0.2.1:29600",
        "--token_file=" + folder_ + "/short"},
       2,
       "the job's token, which has 15 bytes: one of fewer than 16 can be guessed"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--encrypt=always"},
       2,
       "a token of 0 bytes: encrypted connections need one of at least 16 bytes"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--tls_cert=a.crt",
        "--tls_ca=a.ca"},
       2,
       "--tls_cert, --tls_key and --tls_ca are given together or not at all; --tls_key is missing"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--tls_cert=none.crt",
        "--tls_key=none.key", "--tls_ca=none.ca"},
       2,
       "--tls_cert: cannot open none.crt: No such file"},
      {{"--client_id=1", "--num_clients=2", "--master=127.0.0.1:29600", "--encrypt=never",
        "--tls_cert=" + own.certificate, "--tls_key=" + own.key, "--tls_ca=" + own.authorities},
       2,
       "certificates are given, and nothing is encrypted"},
  };
  for (const auto& wrong : cases) {
    const Ran ran = test::run_program(alone(good, wrong.flags));
    EXPECT_EQ(ran.code, wrong.code) << wrong.words << ": " << ran.err;
    EXPECT_HAS(ran.err, wrong.words);
  }
  const Ran negative = test::run_program(
      alone(solver("negative", plain_net(4), "scheme { type: 'ssp' staleness: -1 }")));
  EXPECT_EQ(negative.code, 3);
  EXPECT_HAS(negative.err, "staleness is -1; it must be a whole number of clocks, 0 or more");
  const Ran two = test::run_program(
      alone(solver("schemes", plain_net(4), "scheme { } scheme { type: 'async' }")));
  EXPECT_HAS(two.err, "of several schemes, each but the last needs it");
}

TEST_F(DistributedTrain, PoseidonsTuningFlagsAreTakenAndNamed) {
  const Ran ran = test::run_program(
      alone(solver("good", plain_net(4), "max_iter: 1"),
            {"--resume_clock=7", "--num_rows_per_table=256", "--init_thread_access_table=true",
             "--consistency_model=SSPPush", "--table_staleness=0"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err,
             "These flags are accepted, but have no effect in Shoal: --num_rows_per_table, "
             "--init_thread_access_table\n");
  EXPECT_HAS(ran.err, "--resume_clock has no effect: nothing is resumed; --snapshot=");
}

TEST_F(DistributedTrain, AnotherSolverOnOneRankEndsAllWithTheFieldNamed) {
  port_ = Port().number;
  const auto ran =
      wait({test::start_program(member(0, 2, solver("a", plain_net(4), "max_iter: 3"))),
            test::start_program(
                member(1, 2, solver("b", plain_net(4), "max_iter: 3 weight_decay: 0.5")))});
  for (const Ran& process : ran) {
    EXPECT_EQ(process.code, 3) << process.err;
    EXPECT_HAS(process.err, "weight_decay: 0.5");
  }
}

TEST_F(DistributedTrain, AWrongTokenIsRefused) {
  port_ = Port().number;
  put_file(folder_ + "/token0", "one\n");
  put_file(folder_ + "/token1", "two\n");
  const std::string good = solver("good", plain_net(4), "max_iter: 3");
  const auto ran =
      wait({test::start_program(
                member(0, 2, good, {"--token_file=" + folder_ + "/token0", "--start_timeout=5"})),
            test::start_program(
                member(1, 2, good, {"--token_file=" + folder_ + "/token1", "--start_timeout=5"}))});
  EXPECT_EQ(ran[0].code, 8) << ran[0].err;
  EXPECT_EQ(ran[1].code, 6) << ran[1].err;
  EXPECT_HAS(ran[1].err, "token");
}

TEST_F(DistributedTrain, ATakenPortIsNamed) {
  const Port taken;
  port_ = taken.number;
  const Ran ran = test::run_program(member(0, 2, solver("good", plain_net(4), "max_iter: 3")));
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_HAS(ran.err, std::to_string(port_));
  EXPECT_HAS(ran.err, "in use");
  const Ran range = test::run_program(member(0, 2, solver("good", plain_net(4), "max_iter: 3"),
                                             {str("--port_range=", port_, "-", port_)}));
  EXPECT_EQ(range.code, 2) << range.err;
  EXPECT_HAS(range.err, "none of these ports is free");
}

TEST_F(DistributedTrain, AJobNeedsAServerAndAWorker) {
  for (const auto& [role, words] : {std::pair{"worker", "server"}, {"server", "worker"}}) {
    const auto ran =
        wait(start(2, solver("good", plain_net(4), "max_iter: 3"), {str("--role=", role)}));
    for (const Ran& process : ran) {
      EXPECT_NE(process.code, 0);
      EXPECT_HAS(process.err, words);
    }
  }
}

TEST_F(DistributedTrain, AWorkerReadsThePartOfItsClientId) {
  // Client 0 is a server, so that worker 0 is client 1.
  for (const char* part : {"_1", "_2"})
    std::filesystem::copy_file(folder_ + "/data", folder_ + "/data" + part);
  const std::string file = solver("server_first", net_in_parts(4), "max_iter: 3");
  port_ = Port().number;
  std::vector<Running> job = {test::start_program(member(0, 3, file, {"--role=server"}))};
  for (const int rank : {1, 2})
    job.push_back(test::start_program(member(rank, 3, file, {"--role=worker"})));
  for (const Ran& process : wait(job)) EXPECT_EQ(process.code, 0) << process.err;
}

TEST_F(DistributedTrain, AnErrorOfOneIsTheEndOfAll) {
  // Worker 1's part of the data is not there.
  std::filesystem::copy_file(folder_ + "/data", folder_ + "/data_0");
  const auto ran = wait(start(2, solver("parts", net_in_parts(4), "max_iter: 3")));
  EXPECT_EQ(ran[1].code, 4) << ran[1].err;
  EXPECT_HAS(ran[1].err, folder_ + "/data_1, the part of client 1 of 2, does not exist");
  EXPECT_NE(ran[0].code, 0);
  EXPECT_HAS(ran[0].err, folder_ + "/data_1");
}

}  // namespace
}  // namespace shoal::distributed_errors_test
