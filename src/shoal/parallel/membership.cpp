// A process that trains alone: a job of one member, without plans.
#include "shoal/parallel/membership.h"

#include "shoal/proto/config_error.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {
namespace {

class Alone final : public JobMembership {
 public:
  Alone(const RunOptions& options, const std::string& name) : options_(options), name_(name) {}

  Team* team() override { return nullptr; }
  const Share& share() const override { return options_.share; }
  std::vector<std::int64_t> clocks() const override { return {}; }
  bool same_workers() const override { return true; }
  bool has_other_plans() const override { return false; }
  std::optional<table::SchemeSpec> joined() const override { return {}; }
  void check(const SolverParameter&, const std::vector<Phase>&) const override {
    if (options_.profile_only)
      throw ConfigError(Code::kUsage, name_, ": --profile_only: this run has no other workers");
  }
  Result<bool> prepare(std::int64_t, std::int64_t, table::SchemeSpec&) override { return true; }
  ExchangeOffer offer(const SolverParameter& solver, const table::SchemeSpec&, std::int64_t,
                      const Share&) override {
    return local_offer(solver, name_);
  }
  Meter* meter() override { return options_.meter; }
  void report(Solver&, const table::SchemeSpec&, bool) override {}
  void begin(const Solver&, const Phase&, std::int64_t) override {}
  bool wants_regroup() override { return false; }
  Result<SegmentStart> next(const SegmentEnd&) override { return SegmentStart(); }
  Status finish(std::int64_t, std::int64_t, const table::SchemeSpec&) override { return {}; }
  void abort(const Error&) override {}
  void release() override {}

 private:
  const RunOptions& options_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<JobMembership> make_alone(const RunOptions& options, const std::string& name) {
  return std::make_unique<Alone>(options, name);
}

}  // namespace shoal::parallel
