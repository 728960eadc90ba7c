// NCCL without GPUs. A collective is done when the streams of all its members have come to it.
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"

namespace shoal::test {
namespace {

struct Clique {
  std::vector<int> devices;
};

}  // namespace
}  // namespace shoal::test

// NCCL's own header leaves it opaque.
struct ncclComm {
  std::shared_ptr<shoal::test::Clique> clique;
  std::size_t rank = 0;
};

namespace shoal::test {
namespace {

// One member's part.
struct Call {
  ncclComm_t comm;
  bool reduces;
  float* data;
  std::size_t count;
  cudaStream_t stream;
};

// One collective, whose parts are by rank.
struct Collective {
  std::vector<Call> parts;
  std::vector<bool> arrived;
  bool done = false;

  void finish() {
    const Call& root = parts[0];
    for (std::size_t i = 0; i < root.count; ++i) {
      float sum = 0;
      for (std::size_t rank = parts.size(); rank-- > 0;) sum += parts[rank].data[i];
      if (root.reduces)
        root.data[i] = sum;
      else
        for (const Call& part : parts) part.data[i] = root.data[i];
    }
    done = true;
  }
  void arrive(std::size_t rank) {
    arrived[rank] = true;
    for (std::size_t other = 0; other < parts.size(); ++other)
      run_until(parts[other].stream, [this, other] { return arrived[other]; });
    if (!done && std::ranges::find(arrived, false) == arrived.end()) finish();
  }
};

thread_local bool in_group = false;
thread_local std::vector<Call> group;

ncclResult_t call(bool reduces, const void* from, void* to, std::size_t count, ncclDataType_t type,
                  int root, ncclComm_t comm, cudaStream_t stream) {
  EXPECT_TRUE(in_group) << "one thread that calls for several GPUs needs a group, or it hangs";
  const int device = comm->clique->devices[comm->rank];
  if (from != to || type != ncclFloat32 || root != 0 || fake_device_of(stream) != device ||
      !in_fake_memory(to, count * sizeof(float), device))
    return ncclInvalidArgument;
  group.push_back({comm, reduces, static_cast<float*>(to), count, stream});
  return ncclSuccess;
}

// The n-th calls of all members belong together, as in NCCL.
ncclResult_t end_group() {
  in_group = false;
  const std::vector<Call> calls = std::exchange(group, {});
  if (library_fails()) return ncclUnhandledCudaError;
  if (calls.empty()) return ncclSuccess;
  const std::size_t size = calls[0].comm->clique->devices.size();
  std::vector<std::vector<Call>> by_rank(size);
  for (const Call& one : calls) by_rank[one.comm->rank].push_back(one);
  for (std::size_t n = 0; n < by_rank[0].size(); ++n) {
    const auto one = std::make_shared<Collective>();
    for (const auto& of : by_rank) {
      if (of.size() != by_rank[0].size()) {
        ADD_FAILURE() << "a collective without all its members never ends";
        return ncclInvalidUsage;
      }
      EXPECT_EQ(of[n].count, by_rank[0][n].count);
      EXPECT_EQ(of[n].reduces, by_rank[0][n].reduces);
      one->parts.push_back(of[n]);
    }
    one->arrived.resize(size);
    std::vector<std::pair<cudaStream_t, std::function<void()>>> work;
    for (std::size_t rank = 0; rank < size; ++rank)
      work.emplace_back(one->parts[rank].stream, [one, rank] { one->arrive(rank); });
    queue_together(work);
  }
  return ncclSuccess;
}

}  // namespace

const ops::cuda::Nccl& fake_nccl() {
  static const ops::cuda::Nccl table = {
      .GetErrorString = [](ncclResult_t) { return "unhandled cuda error"; },
      .CommInitAll =
          [](ncclComm_t* comms, int count, const int* devices) {
            if (library_fails()) return ncclUnhandledCudaError;
            const auto clique = std::make_shared<Clique>();
            clique->devices.assign(devices, devices + count);
            for (int rank = 0; rank < count; ++rank)
              comms[rank] =
                  std::make_unique<ncclComm>(ncclComm{clique, static_cast<std::size_t>(rank)})
                      .release();
            return ncclSuccess;
          },
      .CommDestroy =
          [](ncclComm_t comm) {
            const std::unique_ptr<ncclComm> owned(comm);
            return ncclSuccess;
          },
      .GroupStart =
          [] {
            in_group = true;
            return ncclSuccess;
          },
      .GroupEnd = end_group,
      .Reduce =
          [](const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
             int root, ncclComm_t comm, cudaStream_t stream) {
            return op == ncclSum ? call(true, from, to, count, type, root, comm, stream)
                                 : ncclInvalidArgument;
          },
      .Broadcast =
          [](const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream) {
            return call(false, from, to, count, type, root, comm, stream);
          },
  };
  return table;
}

}  // namespace shoal::test
