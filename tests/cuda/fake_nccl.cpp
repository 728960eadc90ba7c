// NCCL without GPUs. A collective is done when the streams of all its members have come to it.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"
#include "cuda/fake_stream.h"

namespace shoal::test {
namespace {

struct Call;

// GPUs that were connected: of one thread, or of as many threads as there are GPUs, which find each
// other by the clique's name.
struct Clique {
  std::vector<int> devices;  // by rank
  std::size_t joined = 0;    // of those
  bool lost = false;         // one of them went without a word
  // Groups of sums over all that not all have called for, by number: of each member the calls.
  std::map<int, std::vector<std::vector<Call>>> groups{};
};

}  // namespace
}  // namespace shoal::test

// NCCL's own header leaves it opaque.
struct ncclComm {
  std::shared_ptr<shoal::test::Clique> clique;
  std::size_t rank = 0;
  int groups = 0;  // of sums over all
};

namespace shoal::test {
namespace {

enum class Kind { kReduce, kBroadcast, kAllReduce };

// One member's part.
struct Call {
  ncclComm_t comm;
  Kind kind;
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
      if (root.kind != Kind::kBroadcast) root.data[i] = sum;
      if (root.kind == Kind::kReduce) continue;
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
thread_local ncclResult_t group_result = ncclSuccess;

// Queues one collective on its members' streams.
void queue_collective(std::vector<Call> parts) {
  const auto one = std::make_shared<Collective>();
  one->parts = std::move(parts);
  one->arrived.resize(one->parts.size());
  std::vector<std::pair<cudaStream_t, std::function<void()>>> work;
  for (std::size_t rank = 0; rank < one->parts.size(); ++rank) {
    EXPECT_EQ(one->parts[rank].count, one->parts[0].count);
    EXPECT_EQ(one->parts[rank].kind, one->parts[0].kind);
    work.emplace_back(one->parts[rank].stream, [one, rank] { one->arrive(rank); });
  }
  queue_together(work);
}

ncclResult_t call(Kind kind, const void* from, void* to, std::size_t count, ncclDataType_t type,
                  int root, ncclComm_t comm, cudaStream_t stream) {
  EXPECT_TRUE(in_group) << "one thread that calls for several GPUs hangs without a group, and sums "
                           "that go together are one launch in a group";
  const int device = comm->clique->devices[comm->rank];
  if (from != to || type != ncclFloat32 || root != 0 || fake_device_of(stream) != device ||
      !in_fake_memory(to, count * sizeof(float), device))
    return ncclInvalidArgument;
  group.push_back({comm, kind, static_cast<float*>(to), count, stream});
  return ncclSuccess;
}

// The n-th calls of all members belong together, as in NCCL.
ncclResult_t queue_collectives(const std::vector<std::vector<Call>>& by_rank) {
  for (std::size_t n = 0; n < by_rank[0].size(); ++n) {
    std::vector<Call> parts;
    for (const auto& of : by_rank) {
      if (of.size() != by_rank[0].size()) {
        ADD_FAILURE() << "a collective without all its members never ends";
        return ncclInvalidUsage;
      }
      parts.push_back(of[n]);
    }
    queue_collective(std::move(parts));
  }
  return ncclSuccess;
}

// ---- members that are threads ----

std::map<std::string, std::weak_ptr<Clique>>& cliques() {
  static std::map<std::string, std::weak_ptr<Clique>> all;
  return all;
}

ncclResult_t name_clique(ncclUniqueId* id) {
  static int count = 0;
  const std::lock_guard lock(fake_mutex());
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "clique %d", ++count);
  return ncclSuccess;
}

ncclResult_t join_clique(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                         ncclConfig_t* config) {
  if (library_fails()) return ncclUnhandledCudaError;
  if (config->blocking != 0 || rank < 0 || rank >= size) return ncclInvalidArgument;
  const std::lock_guard lock(fake_mutex());
  std::weak_ptr<Clique>& known = cliques()[std::string(id.internal, sizeof id.internal)];
  std::shared_ptr<Clique> clique = known.lock();
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->devices.resize(static_cast<std::size_t>(size), -1);
    known = clique;
  }
  if (std::ranges::count(clique->devices, current_gpu()) > 0) return ncclInvalidUsage;
  clique->devices[static_cast<std::size_t>(rank)] = current_gpu();
  ++clique->joined;
  *comm = std::make_unique<ncclComm>(ncclComm{clique, static_cast<std::size_t>(rank)}).release();
  return ncclInProgress;
}

ncclResult_t state_of(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(fake_mutex());
  const Clique& clique = *comm->clique;
  const bool waits = clique.joined < clique.devices.size() ||
                     (comm->groups > 0 && clique.groups.contains(comm->groups - 1));
  *state = clique.lost ? ncclRemoteError : waits ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t reduce_all(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t state = ncclSuccess;
  state_of(comm, &state);
  EXPECT_NE(state, ncclInProgress) << "a call while the last is in progress";
  const ncclResult_t result = state != ncclSuccess ? state  // a member may be lost at any time
                              : library_fails()    ? ncclUnhandledCudaError
                              : op == ncclSum
                                  ? call(Kind::kAllReduce, from, to, count, type, 0, comm, stream)
                                  : ncclInvalidArgument;
  if (result != ncclSuccess) group_result = result;
  return result;
}

// Begins when all members have ended theirs.
ncclResult_t end_own_group(std::vector<Call> calls) {
  const std::lock_guard lock(fake_mutex());
  ncclComm_t const comm = calls[0].comm;
  Clique& clique = *comm->clique;
  const int number = comm->groups++;
  std::vector<std::vector<Call>>& by_rank = clique.groups[number];
  by_rank.push_back(std::move(calls));
  if (by_rank.size() < clique.devices.size()) return ncclInProgress;
  std::ranges::sort(by_rank, {}, [](const auto& of) { return of[0].comm->rank; });
  const ncclResult_t result = queue_collectives(by_rank);
  clique.groups.erase(number);
  return result;
}

ncclResult_t end_group() {
  in_group = false;
  std::vector<Call> calls = std::exchange(group, {});
  const ncclResult_t result = std::exchange(group_result, ncclSuccess);
  if (result != ncclSuccess) return result;
  if (library_fails()) return ncclUnhandledCudaError;
  if (calls.empty()) return ncclSuccess;
  if (calls[0].kind == Kind::kAllReduce) return end_own_group(std::move(calls));
  std::vector<std::vector<Call>> by_rank(calls[0].comm->clique->devices.size());
  for (const Call& one : calls) by_rank[one.comm->rank].push_back(one);
  return queue_collectives(by_rank);
}

ncclResult_t abort_clique(ncclComm_t comm) {
  const std::lock_guard lock(fake_mutex());
  comm->clique->lost = true;
  const std::unique_ptr<ncclComm> owned(comm);
  return ncclSuccess;
}

}  // namespace

const ops::cuda::Nccl& fake_nccl() {
  static const ops::cuda::Nccl table = {
      .GetErrorString =
          [](ncclResult_t result) {
            return result == ncclRemoteError ? "a member was lost" : "unhandled cuda error";
          },
      .GetUniqueId = name_clique,
      .CommInitAll =
          [](ncclComm_t* comms, int count, const int* devices) {
            if (library_fails()) return ncclUnhandledCudaError;
            const auto clique = std::make_shared<Clique>();
            clique->devices.assign(devices, devices + count);
            clique->joined = clique->devices.size();
            for (int rank = 0; rank < count; ++rank)
              comms[rank] =
                  std::make_unique<ncclComm>(ncclComm{clique, static_cast<std::size_t>(rank)})
                      .release();
            return ncclSuccess;
          },
      .CommInitRankConfig = join_clique,
      .CommGetAsyncError = state_of,
      .CommFinalize = [](ncclComm_t) { return ncclSuccess; },
      .CommDestroy =
          [](ncclComm_t comm) {
            const std::unique_ptr<ncclComm> owned(comm);
            return ncclSuccess;
          },
      .CommAbort = abort_clique,
      .GroupStart =
          [] {
            in_group = true;
            return ncclSuccess;
          },
      .GroupEnd = end_group,
      .Reduce =
          [](const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
             int root, ncclComm_t comm, cudaStream_t stream) {
            return op == ncclSum ? call(Kind::kReduce, from, to, count, type, root, comm, stream)
                                 : ncclInvalidArgument;
          },
      .Broadcast =
          [](const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream) {
            return call(Kind::kBroadcast, from, to, count, type, root, comm, stream);
          },
      .AllReduce = reduce_all,
  };
  return table;
}

}  // namespace shoal::test
