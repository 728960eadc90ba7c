// Tests jobs of real train processes in network namespaces, whose links go away: for long, which
// ends all, and for a while, which harms nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/job_processes.h"

namespace shoal::test::process_network_test {
namespace {

constexpr double kBounded = 20;  // seconds, for a machine on which much else runs

// Namespaces that a bridge in one of their own connects: machine k is at 10.77.0.(k + 1).
class Network {
 public:
  explicit Network(int machines) : name_(str("shoal-", ::getpid(), "-")), machines_(machines) {
    add(hub());
    run({"-n", hub(), "link", "add", "bridge0", "type", "bridge"});
    run({"-n", hub(), "link", "set", "bridge0", "up"});
    for (int k = 0; k < machines_; ++k) {
      add(machine(k));
      run({"-n", hub(), "link", "add", port(k), "type", "veth", "peer", "name", "eth0", "netns",
           machine(k)});
      run({"-n", hub(), "link", "set", port(k), "master", "bridge0", "up"});
      run({"-n", machine(k), "addr", "add", address(k) + "/24", "dev", "eth0"});
      run({"-n", machine(k), "link", "set", "eth0", "up"});
      run({"-n", machine(k), "link", "set", "lo", "up"});
    }
  }
  ~Network() {
    for (int k = 0; k < machines_; ++k) run_program({kIp, "netns", "del", machine(k)});
    run_program({kIp, "netns", "del", hub()});
  }
  Network(const Network&) = delete;

  std::string trouble;  // what could not be had, or ""
  static std::string address(int k) { return str("10.77.0.", k + 1); }
  std::vector<std::string> starter(int k) const { return {kIp, "netns", "exec", machine(k)}; }
  void set_link(int k, bool up) { run({"-n", hub(), "link", "set", port(k), up ? "up" : "down"}); }
  // Loses all that machine k sends from now on; it still hears. False: this kernel cannot do it.
  bool silence(int k) { return set_rate(k, {"rate", "8bit", "burst", "1b", "limit", "1b"}); }
  // Lets what machine k sends leave at this rate. False: this kernel cannot do it.
  bool limit(int k, const std::string& rate) {
    return set_rate(k, {"rate", rate, "burst", "64k", "latency", "50ms"});
  }

 private:
  static constexpr const char* kIp = "/usr/sbin/ip";
  static constexpr const char* kTc = "/usr/sbin/tc";
  std::string hub() const { return name_ + "hub"; }
  std::string machine(int k) const { return name_ + std::to_string(k); }
  static std::string port(int k) { return str("port", k); }
  bool set_rate(int k, const std::vector<std::string>& words) {
    std::vector<std::string> all{kTc,   "-n",   machine(k), "qdisc", "replace",
                                 "dev", "eth0", "root",     "tbf"};
    all.insert(all.end(), words.begin(), words.end());
    return run_program(all).code == 0;
  }
  void add(const std::string& space) { run({"netns", "add", space}); }
  void run(std::vector<std::string> words) {
    if (!trouble.empty()) return;
    words.insert(words.begin(), kIp);
    if (const Ran ran = run_program(words); ran.code != 0)
      trouble = ran.code == 127 ? str("there is no ", kIp) : ran.err;
  }

  const std::string name_;
  const int machines_;
};

class ProcessNetwork : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    folder_ = fresh_directory("process_network");
    network_ = std::make_unique<Network>(3);
    if (!network_->trouble.empty())
      GTEST_SKIP() << "no network namespaces here: " << network_->trouble;
  }
  std::string solver(const std::string& name, const std::string& more) const {
    const std::string path = folder_ + "/" + name + ".prototxt";
    put_file(path,
             "base_lr: 0.001 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 display: 1 "
             "snapshot_prefix: '" +
                 folder_ + "/" + name + "' " + more +
                 R"( net_param { name: 'drawn'
      layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { shape { dim: 4 dim: 36 } shape { dim: 4 }
        data_filler { type: 'gaussian' std: 1 } data_filler { type: 'constant' value: 1 } } }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { num_output: 5000 weight_filler { type: 'xavier' } } }
      layer { name: 'out' type: 'InnerProduct' bottom: 'ip' top: 'out' inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'out' bottom: 'label' top: 'loss' } })");
    return path;
  }
  std::unique_ptr<JobProcesses> job(const std::string& roles) const {
    std::vector<std::string> hosts;
    std::vector<std::vector<std::string>> starters;
    for (int k = 0; k < static_cast<int>(roles.size()); ++k)
      hosts.push_back(Network::address(k)), starters.push_back(network_->starter(k));
    auto made = std::make_unique<JobProcesses>(folder_, roles, hosts, starters);
    // The throttle gives about ten iterations a second, and little work.
    put_file(folder_ + "/token", "the token of the job");
    made->flags.push_back("--token_file=" + folder_ + "/token");  // what leaves is encrypted
    made->flags.push_back("--throttle=16000000");
    return made;
  }
  // Expects that all end by themselves, since no other process hears one of them.
  static void expect_end(JobProcesses& job, std::size_t cut) {
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      const JobProcesses::Ended ended = job.wait(rank);
      EXPECT_TRUE(ended.ran.code == 6 || ended.ran.code == 8)
          << "rank " << rank << ", " << ended.ran.code << ": " << ended.ran.err;
      EXPECT_LT(ended.seconds, 3 + kBounded);
      if (rank != cut) {
        EXPECT_HAS(ended.ran.err, str("rank ", cut, " ("));
      }
      std::cout << "  rank " << rank << " ended with " << ended.ran.code << " after "
                << ended.seconds << " s" << std::endl;
    }
  }

  std::string folder_;
  std::unique_ptr<Network> network_;
};

TEST_F(ProcessNetwork, ALinkThatStaysDownEndsAll) {
  for (const std::size_t cut : {0u, 2u}) {
    SCOPED_TRACE(cut);
    const auto cut_off = job("bbb");
    for (const char* const flag : {"--stall_warn=1", "--stall_abort=3"})
      cut_off->flags.push_back(flag);
    cut_off->start_all(solver("down", "max_iter: 100000000 on_lost: STOP"));
    ASSERT_TRUE(cut_off->says(0, "Iteration 12 ("));
    network_->set_link(static_cast<int>(cut), false);
    cut_off->signal(cut, 0);  // from now on
    expect_end(*cut_off, cut);
    network_->set_link(static_cast<int>(cut), true);
  }
}

TEST_F(ProcessNetwork, OneWhoIsNotHeardEndsAll) {
  const auto mute = job("bbb");
  for (const char* const flag : {"--stall_warn=1", "--stall_abort=3"}) mute->flags.push_back(flag);
  mute->start_all(solver("mute", "max_iter: 100000000 on_lost: STOP"));
  ASSERT_TRUE(mute->says(0, "Iteration 12 ("));
  if (!network_->silence(1)) GTEST_SKIP() << "this kernel has no tbf";
  mute->signal(1, 0);
  expect_end(*mute, 1);
}

// The larger side goes on, also without the process that coordinates. The other one ends, to join
// again.
TEST_F(ProcessNetwork, OneSideOfABrokenNetworkGoesOn) {
  for (const std::size_t cut : {0u, 2u}) {
    SCOPED_TRACE(cut);
    const auto parted = job("bbb");
    parted->flags.push_back("--lost_after=1");
    parted->start_all(solver(str("parted_", cut), "max_iter: 100000000 copies: 2"));
    ASSERT_TRUE(parted->says(0, "Iteration 12 ("));
    const std::size_t other = cut == 0 ? 1 : 0;
    network_->set_link(static_cast<int>(cut), false);
    ASSERT_TRUE(parted->says(other, "continuing with 2 workers (was 3)"))
        << parted->wait(other).ran.err;
    const JobProcesses::Ended cut_off = parted->wait(cut);
    EXPECT_EQ(cut_off.ran.code, 75) << cut_off.ran.err;
    // A launcher would believe it.
    EXPECT_EQ(cut_off.ran.err.find("] lost rank "), std::string::npos) << cut_off.ran.err;
    parted->signal(other, SIGUSR1);
    for (const std::size_t rank : {other, std::size_t{3} - cut - other})
      EXPECT_EQ(parted->wait(rank).ran.code, 75);
    network_->set_link(static_cast<int>(cut), true);
  }
}

// A machine that is reached again before it gives up learns that it was removed.
TEST_F(ProcessNetwork, AMachineWhoseLinkIsBackJoinsAnew) {
  const auto healed = job("bbb");
  healed->flags.push_back("--lost_after=1");
  healed->start_all(solver("healed", "max_iter: 100000000 copies: 2"));
  ASSERT_TRUE(healed->says(0, "Iteration 12 ("));
  network_->set_link(2, false);
  ASSERT_TRUE(healed->says(0, "continuing with 2 workers (was 3)")) << healed->wait(0).ran.err;
  network_->set_link(2, true);
  ASSERT_TRUE(healed->says(2, "It joins the job anew.")) << healed->wait(2).ran.err;
  ASSERT_TRUE(healed->says(0, "continuing with 3 workers (was 2)")) << healed->wait(0).ran.err;
  healed->signal(0, SIGUSR1);
  for (std::size_t rank = 0; rank < healed->size(); ++rank)
    EXPECT_EQ(healed->wait(rank).ran.code, 75);
}

// Trains by the table, and by a ring with factors, whose transfers go from each machine to all
// others.
TEST_F(ProcessNetwork, ASlowLinkThatIsDownForAWhileChangesNoBit) {
  for (const std::string exchange : {"way: TABLE", "way: RING layer { name: 'ip' way: FACTORS }"}) {
    SCOPED_TRACE(exchange);
    std::vector<std::string> models;
    for (const bool disturbed : {false, true}) {
      const std::string name = disturbed ? "disturbed" : "smooth";
      const auto trained = job("bbw");
      trained->flags.push_back("--stall_warn=1");
      if (disturbed && !network_->limit(1, "60mbit")) GTEST_SKIP() << "this kernel has no tbf";
      trained->start_all(solver(name, "max_iter: 25 exchange { " + exchange + " }"));
      if (disturbed) {
        ASSERT_TRUE(trained->says(0, "Iteration 12 ("));
        network_->set_link(1, false);
        EXPECT_TRUE(trained->says(0, "has waited for rows for"));
        network_->set_link(1, true);
      }
      for (std::size_t rank = 0; rank < trained->size(); ++rank) {
        const Ran ran = trained->wait(rank).ran;
        ASSERT_EQ(ran.code, 0) << "rank " << rank << ": " << ran.err;
      }
      models.push_back(get_file(model_path(snapshot_stem(folder_ + "/" + name, 25))));
    }
    EXPECT_EQ(models[0].size(), models[1].size());
    EXPECT_TRUE(models[0] == models[1]);
  }
}

}  // namespace
}  // namespace shoal::test::process_network_test
