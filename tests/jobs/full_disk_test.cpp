// Tests jobs of real train processes whose disk is full when the loss of a process calls for a
// snapshot.
#include <sys/mount.h>

#include <filesystem>
#include <fstream>

#include "jobs/process_losses.h"
#include "shoal/solver/snapshot.h"
#include "support/expect.h"

namespace shoal::test::full_disk_test {
namespace {

namespace fs = std::filesystem;

// A small file system in memory, at this folder.
class SmallDisk {
 public:
  explicit SmallDisk(std::string folder) : folder_(std::move(folder)) {
    fs::create_directory(folder_);
    mounted_ = ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  bool is_mounted() const { return mounted_; }
  void fill() const {
    std::ofstream filler(folder_ + "/filler", std::ios::binary);
    while (filler << std::string(512, 'x')) filler.flush();
  }

 private:
  const std::string folder_;
  bool mounted_ = false;
};

// The next chief finds no snapshot on its machine, or too few workers are left.
TEST_F(ProcessLosses, AFullDiskEndsAJobWhoseLossCallsForASnapshot) {
  const struct {
    const char *name, *more, *says;
    std::size_t victim;
  } cases[] = {{"chief", "snapshot: 50000000", "is no snapshot under", 0},
               {"few", "min_workers: 3", "2 workers are left, and min_workers is 3", 2}};
  for (const auto& [name, more, says, victim] : cases) {
    SCOPED_TRACE(name);
    const SmallDisk disk(str(folder_, "/", name));
    if (!disk.is_mounted()) GTEST_SKIP() << "a small disk cannot be mounted here";
    const std::string path =
        solver(str(name, "/s"), str(more, " scheme { type: 'bsp' } copies: 2", kTable));
    JobProcesses job(job_folder(str("disk_", name)), "bbb");
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
    disk.fill();
    job.signal(victim, SIGKILL);
    const std::size_t chief = victim == 0 ? 1 : 0;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == victim) continue;
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 9) << "rank " << rank << ": " << ran.err;
      EXPECT_HAS(ran.err, "No space left on device");
      if (rank == chief) {
        EXPECT_HAS(ran.err, says);
      }
    }
    EXPECT_EQ(newest_snapshot(str(folder_, "/", name, "/s")), "");
    for (const auto& entry : fs::directory_iterator(str(folder_, "/", name)))
      EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace shoal::test::full_disk_test
