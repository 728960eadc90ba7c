// Runs workers of a job, each as train does, on a simulated network, and loses some of them at
// times that a test chooses. Gradients are known beforehand, so that the params at the end tell
// which updates they hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::test {

struct LossyCase {
  std::uint64_t seed = 1;  // of times: of the network, of layers, of losses
  std::string exchange = "way: RING";
  std::string scheme = "type: 'bsp'";
  std::string rule = "type: 'SGD' momentum: 0.9";
  std::string more{};  // fields of the solver
  int workers = 3;
  int losses = 1;         // of the last workers, one after the other
  bool of_first = false;  // of the first ones instead: each has led, or is about to
  // The workers that are lost are the only servers. At 0 losses the only server is a process of its
  // own, which is lost.
  bool with_servers = false;
  bool early = false;        // about when the job begins
  bool as_it_leads = false;  // the second is lost about when it begins a generation as the chief
  int iterations = 6;
  int local_steps = 1;
  double bandwidth = 3e7;  // of each process
  // Workers skip this iteration, with an update of nothing, where this is worker 1; -1: none.
  int skipped = -1;
};

struct LossyRun {
  std::string wrong;         // the first thing that is not as it must be, or ""
  bool was_lost = false;     // a worker was lost before the end
  bool was_mixed = false;    // some layers have the lost worker's part of an iteration, others not
  bool was_dropped = false;  // a survivor made an iteration again
  bool was_in_vain = false;  // a generation had no chief that could begin it
};
LossyRun run_lossy(const LossyCase& one);

}  // namespace shoal::test
