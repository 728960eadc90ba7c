// Asks process 0 for the rank of a process that has none, on a connection of its own.
#include "shoal/base/bytes.h"
#include "shoal/base/log.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/peer.h"

namespace shoal::table {
namespace {

class Enrolling final : public PeerOwner {
 public:
  Enrolling(ProcessState& process, IoThreads& threads)
      : process_(process),
        strand_(threads),
        peer_(process, strand_, Purpose::kCoordination, 0, *this) {}

  Result<Rank> ask() {
    const table::ServiceOptions& options = process_.options;
    // Process 0 of a job that is about to begin may come later.
    const auto within = options.ranks_by_order ? options.start : options.connect;
    strand_.post([this, within] { peer_.dial(process_.options.coordinator, within); });
    const Status status =
        process_.wait([this]() REQUIRES(process_.mutex) { return rank_.has_value(); },
                      [&](double seconds) {
                        LOG(INFO) << "after " << seconds << " s: no rank yet from process 0 at "
                                  << options.coordinator;
                      },
                      within + options.stall_abort);
    (void)strand_.call([this] { peer_.close(true); });
    if (!status.ok() && options.ranks_by_order)
      return Error{status.error().code,
                   str("no rank came from process 0: ", status.error().message,
                       " Process 0 is the first worker or server that starts on the machine of ",
                       options.coordinator, ": has one been started there?")};
    if (!status.ok())
      return Error{status.error().code,
                   str("no job can be joined at ", process_.options.coordinator, ": ",
                       status.error().message)};
    MutexLock lock(process_.mutex);
    return *rank_;
  }

 private:
  void up(Peer& peer, bool) override {
    peer.send(Ask{.topic = Topic::kEnroll,
                  .clock = static_cast<Clock>(process_.self.incarnation),
                  .body = {}});
  }
  void lost(Peer&, const Error& error) override { process_.fail(error); }
  Status received(Peer&, Message&& message) override {
    const Answer* answer = std::get_if<Answer>(&message);
    if (!answer || answer->topic != Topic::kEnroll || answer->body.size() != sizeof(Rank))
      return broken("A ", name_of(message),
                    " came instead of a rank: does process 0 run the same program?");
    MutexLock lock(process_.mutex);
    rank_ = get_le<Rank>(answer->body);
    process_.changed.notify_all();
    return {};
  }

  ProcessState& process_;
  const Strand strand_;
  Peer peer_;
  std::optional<Rank> rank_ GUARDED_BY(process_.mutex);
};

}  // namespace

Result<Rank> enroll(const ServiceOptions& options) {
  ServiceOptions without = options;
  without.rank = kNoRank;
  ProcessState process(without);
  IoThreads threads(1);
  Enrolling enrolling(process, threads);
  Result<Rank> rank = enrolling.ask();
  let_run(threads);
  threads.stop();
  return rank;
}

}  // namespace shoal::table
