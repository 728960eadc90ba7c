// Tests the account of a job's compute that its chief gives, of real train processes of which one
// is killed.
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "jobs/process_losses.h"
#include "shoal/base/file.h"
#include "support/expect.h"

namespace shoal::test::process_losses_account_test {
namespace {

// Holds what the chief says of the job's compute, in its log and its metrics.
struct Said {
  long long in_params = 0, computed = 0, possible = 0;
  std::vector<nlohmann::json> faults, displays;
};

Said said_by_chief(const std::string& log, const std::string& metrics) {
  Said said;
  nlohmann::json last;
  std::istringstream lines(get_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    if (last["kind"] == "fault") said.faults.push_back(last);
    if (last["kind"] == "display") said.displays.push_back(last);
  }
  EXPECT_EQ(last["kind"], "useful") << last;
  if (last["kind"] != "useful") return said;
  said.in_params = last["in_params"];
  std::smatch found;
  const std::regex words(
      "\\] Useful: ([0-9.]+) % of the ([0-9]+) steps computed are in the params; ([0-9.]+) % of "
      "the ([0-9]+) that all processes could have computed\n");
  EXPECT_TRUE(std::regex_search(log, found, words)) << log;
  if (found.empty()) return said;
  said.computed = std::stoll(found[2]);
  said.possible = std::stoll(found[4]);
  EXPECT_EQ(last["computed"], said.computed);
  EXPECT_NEAR(static_cast<double>(last["possible"]), static_cast<double>(said.possible), 0.5);
  EXPECT_NEAR(std::stod(found[1]),
              100.0 * static_cast<double>(said.in_params) / static_cast<double>(said.computed),
              0.2);
  EXPECT_NEAR(std::stod(found[3]),
              100.0 * static_cast<double>(said.in_params) / static_cast<double>(said.possible),
              0.2);
  return said;
}

// The account outlives its chief and its coordinator, which rank 0 is both.
TEST_F(ProcessLosses, TheChiefSaysHowMuchOfTheComputeWasUseful) {
  for (const auto& [victim, way] :
       {std::pair<std::size_t, const char*>{2, "TABLE"}, {0, "TABLE"}, {2, "RING"}}) {
    const std::string name = str("useful_", way, victim), metrics = folder_ + "/" + name;
    SCOPED_TRACE(name);
    const std::string path =
        solver(name, str("scheme { type: 'bsp' } copies: 2 exchange { way: ", way, " }"));
    JobProcesses job(job_folder(name), "bbb");
    for (const std::string& flag : {std::string("--emulate_step_ms=4"), "--metrics=" + metrics})
      job.flags.push_back(flag);
    job.start_all(path);
    const std::size_t chief = victim == 0 ? 1 : 0;
    ASSERT_TRUE(job.says(0, "Iteration 40 (")) << job.wait(0).ran.err;
    job.signal(victim, SIGKILL);
    ASSERT_TRUE(job.says(chief, "continuing with 2 workers (was 3)"));
    ASSERT_TRUE(job.says(chief, "Iteration 200 (")) << job.wait(chief).ran.err;
    job.signal(chief, SIGUSR1);
    const Ran ran = job.wait(chief).ran;
    EXPECT_EQ(ran.code, 75) << ran.err;
    const Said said = said_by_chief(ran.err, str(metrics, "/metrics.", chief, ".jsonl"));
    EXPECT_GE(said.in_params, 2 * 200 + 40);
    // At least the lost worker's last step, and at most two of each.
    EXPECT_GT(said.computed, said.in_params);
    EXPECT_LE(said.computed, said.in_params + 6);
    EXPECT_GT(said.possible, said.computed + 60);
    ASSERT_EQ(said.faults.size(), 1u);
    EXPECT_EQ(said.faults[0]["rank"], victim);
    EXPECT_EQ(said.faults[0]["steps"], said.computed - said.in_params);
    EXPECT_GT(said.faults[0]["stopped"], 0);
    EXPECT_TRUE(said.faults[0]["back"].is_null());
    EXPECT_HAS(ran.err, str("    Fault 1: rank ", victim, " (host "));
    ASSERT_FALSE(said.displays.empty());
    EXPECT_EQ(said.displays.back()["alive"], 2);
    EXPECT_EQ(said.displays.back()["taking_part"], 2);
    EXPECT_GE(said.displays.back()["committed"], 2 * 200 + 40);
    std::cout << "  " << name << ": " << said.in_params << " of " << said.computed << " of "
              << said.possible << ", stopped " << said.faults[0]["stopped"] << " s" << std::endl;
  }
}

}  // namespace
}  // namespace shoal::test::process_losses_account_test
