// The fixture of tests of jobs of real train processes on this machine, in which a test names the
// master. Wants the variable TOOLS_DIR; skipped by name without it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::test {

// A listener on a port of this machine that no other process had.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(socket_, 1);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    number = ntohs(address.sin_port);
  }
  ~Port() { ::close(socket_); }
  Port(const Port&) = delete;
  int number = 0;

 private:
  int socket_;
};

class DistributedTrain : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("distributed");
    make_digits(folder_ + "/data");
  }
  // Returns a net without random numbers: a job's batches together are one machine's.
  std::string plain_net(int batch) const {
    const std::string data = "transform_param { scale: 0.01 } data_param { source: '" + folder_ +
                             "/data' backend: DATUMFILE shared_file_system: true batch_size: ";
    return "name: 'plain' layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { "
           "phase: TRAIN } " +
           data + std::to_string(batch) +
           "} } layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: TEST "
           "} " +
           data +
           R"(5 } } layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
             inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
           layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy' include { phase: TEST } }
           layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
  }
  // Returns the same net, of data in parts.
  std::string net_in_parts(int batch) const {
    std::string net = plain_net(batch);
    for (std::size_t at; (at = net.find("shared_file_system: true")) != std::string::npos;)
      net.erase(at, 24);
    return net;
  }
  // Returns a net with dropout, crops and running means, each process with its own.
  std::string small_net() const {
    NetParameter net = parse_net(test::small_net(folder_ + "/data"), "small");
    share_data(net);
    clear_origins(net);
    return to_text(net);
  }
  // Writes a solver with its net; snapshots go to `name` in the test's folder. Returns its path.
  std::string solver(const std::string& name, const std::string& net,
                     const std::string& more) const {
    const std::string path = folder_ + "/" + name + ".prototxt";
    put_file(path + ".net", net);
    const std::string rate = more.find("base_lr:") == std::string::npos ? "base_lr: 0.05 " : "";
    put_file(
        path,
        "net: '" + path + ".net' " + rate +
            "momentum: 0.9 lr_policy: 'fixed' random_seed: 3 solver_mode: CPU snapshot_prefix: '" +
            folder_ + "/" + name + "' " + more);
    return path;
  }
  static std::vector<std::string> alone(const std::string& solver,
                                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {tools_dir() + "/train", "--solver=" + solver,
                                        "--threads=1"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  // Returns the command of one process of a job on this machine.
  std::vector<std::string> member(int rank, int size, const std::string& solver,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = alone(
        solver, {"--client_id=" + std::to_string(rank), "--num_clients=" + std::to_string(size),
                 "--master=127.0.0.1:" + std::to_string(port_), "--start_timeout=60"});
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::vector<Running> start(int size, const std::string& solver,
                             const std::vector<std::string>& more = {}) {
    port_ = Port().number;
    std::vector<Running> job;
    for (int rank = 0; rank < size; ++rank)
      job.push_back(start_program(member(rank, size, solver, more)));
    return job;
  }
  static std::vector<Ran> wait(const std::vector<Running>& job) {
    std::vector<Ran> ran;
    for (const Running& process : job) ran.push_back(wait_for(process));
    return ran;
  }
  // Runs a job that is to end well.
  std::vector<Ran> run(int size, const std::string& solver,
                       const std::vector<std::string>& more = {}) {
    std::vector<Ran> ran = wait(start(size, solver, more));
    for (const Ran& process : ran) EXPECT_EQ(process.code, 0) << process.err;
    return ran;
  }
  std::string model(const std::string& name, int iteration) const {
    return get_file(model_path(snapshot_stem(folder_ + "/" + name, iteration)));
  }
  std::string state(const std::string& name, int iteration) const {
    return state_path(snapshot_stem(folder_ + "/" + name, iteration));
  }

  std::string folder_;
  int port_ = 0;
};

}  // namespace shoal::test
