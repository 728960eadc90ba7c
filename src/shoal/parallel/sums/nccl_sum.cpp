#include "shoal/parallel/sums/nccl_sum.h"

#include <thread>
#include <utility>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/parallel/roster.h"
#include "shoal/table/coordinator/bodies.h"

namespace shoal::parallel {
namespace {

// The longest delay of a worker in a live job for other reasons than its batch, as with MPI.
constexpr std::chrono::minutes kNcclPatience{30};

class NcclSum final : public VectorSum {
 public:
  NcclSum(table::Table& table, const Context& ctx, std::shared_ptr<ops::JobSums> group, int number,
          std::vector<Tensor*> tensors, std::size_t count)
      : table_(table),
        group_(std::move(group)),
        number_(number),
        numbers_(Shape{static_cast<std::int64_t>(count)}),
        all_(std::move(tensors)) {
    numbers_.pin(ctx.device());
    all_.push_back(&numbers_);
  }

  std::span<float> numbers() override { return numbers_.host_mut(); }
  table::Destination destination(table::RowId row) override {
    CHECK(false) << "row " << row << " of a sum by NCCL";
    return numbers();
  }
  Status expect(table::Clock, RowWaits&) override { return status_; }

  void start() override {
    since_ = table_.now();
    is_done_ = false;
    call([this] { group_->start(number_, all_); });
  }
  void progress() override {
    if (is_done_) return;
    call([this] {
      is_done_ = group_->is_done(number_);
      if (is_done_) numbers_.begin_download();
    });
  }
  bool is_done() const override { return is_done_; }

  Status wait(RowWaits& waits) override {
    const table::Instant from = table_.now();
    std::this_thread::yield();
    waits.add(table_.now() - from);
    // A lost worker breaks NCCL's connections before the table gives it up, and names it.
    TRY(table_.status());
    TRY(status_);
    if (from - since_ < kNcclPatience) return {};
    return Error{Code::kTimeout,
                 str("worker ", table_.worker(), " has waited ", kNcclPatience.count(),
                     " minutes for sum ", number_, " by NCCL")};
  }

 private:
  template <class Work>
  void call(Work work) {
    if (!status_.ok()) return;
    try {
      work();
    } catch (const DeviceError& error) {
      status_ = Error{Code::kPeer, error.what()};
    }
  }

  table::Table& table_;
  const std::shared_ptr<ops::JobSums> group_;
  const int number_;
  Tensor numbers_;
  std::vector<Tensor*> all_;  // the tensors, and the numbers
  bool is_done_ = true;
  Status status_{};
  table::Instant since_{};
};

}  // namespace

std::shared_ptr<ops::JobSums> begin_nccl(table::Table& table, Context& ctx, int sums,
                                         const std::string& name) {
  const auto refuse = [&](Code code, const auto&... words) {
    throw ConfigError(code, name, ": exchange NCCL: ", words...);
  };
  const ops::JobSumsImpl* const impl = ops::job_sums_of(ctx);
  if (impl == nullptr)
    refuse(Code::kConfig, "worker ", table.worker(), " computes on ", ctx.device().name(),
           "; all workers need a GPU (solver_mode: GPU, or --gpu)");
  if (const ops::Why why = impl->why_not(ctx); !why.empty()) refuse(Code::kDevice, why);
  const table::RosterBody& roster = table.roster();
  const bool is_chief = table.worker() == 0;
  const Result<std::string> group =
      table.ask(table::Topic::kBarrier, table::group_named(roster.generation),
                is_chief ? impl->name_group(ctx) : "");
  if (!group.ok()) refuse(group.error().code, group.error().message);
  std::shared_ptr<ops::JobSums> joined =
      impl->join(ctx, group.value(), table.worker(), workers_of(roster), sums);
  const table::Instant from = table.now();
  while (!joined->is_joined()) {
    std::this_thread::yield();
    if (Status status = table.status(); !status.ok())
      refuse(status.error().code, status.error().message);
    if (table.now() - from > kNcclPatience)
      refuse(Code::kTimeout, "not all workers joined NCCL's group in ", kNcclPatience.count(),
             " minutes");
  }
  LOG(INFO) << "NCCL: worker " << table.worker() << " of " << workers_of(roster) << " sums on "
            << ctx.device().name();
  return joined;
}

std::unique_ptr<VectorSum> make_nccl_sum(table::Table& table, const Context& ctx,
                                         std::shared_ptr<ops::JobSums> group, int number,
                                         std::vector<Tensor*> tensors, std::size_t count) {
  return std::make_unique<NcclSum>(table, ctx, std::move(group), number, std::move(tensors), count);
}

}  // namespace shoal::parallel
