// Asks the coordinator for the rank of a process that has none, on a connection of its own.
#include "shoal/base/bytes.h"
#include "shoal/base/log.h"
#include "shoal/table/broken.h"
#include "shoal/table/link/peer.h"

namespace shoal::table {
namespace {

constexpr int kMostReferrals = 4;
// The time for one of several addresses, before the next is asked.
constexpr milliseconds kOneOfSeveral{1000};

class Enrolling final : public PeerOwner {
 public:
  Enrolling(ProcessState& process, IoThreads& threads)
      : process_(process),
        strand_(threads),
        peer_(process, strand_, Purpose::kCoordination, kNoRank, *this) {}

  // Asks the process at options.coordinator, for so long. Process 0 of a job that is about to begin
  // may come later.
  Result<Enrolment> ask(milliseconds within) {
    const std::string& address = process_.options.coordinator;
    strand_.post([this, within] { peer_.dial(process_.options.coordinator, within); });
    const Status status = process_.wait(
        [this]() REQUIRES(process_.mutex) { return place_.has_value(); },
        [&](double seconds) {
          LOG(INFO) << "after " << seconds << " s: no rank yet from process 0 at " << address;
        },
        within + process_.options.stall_abort);
    (void)strand_.call([this] { peer_.close(true); });
    TRY(status);
    MutexLock lock(process_.mutex);
    return *place_;
  }

 private:
  void up(Peer& peer, bool) override {
    peer.send(Ask{.topic = Topic::kEnroll,
                  .clock = static_cast<Clock>(process_.self.incarnation),
                  .body = {}});
  }
  void lost(Peer&, const Error& error) override { process_.fail(error); }
  Status received(Peer& peer, Message&& message) override {
    const Answer* answer = std::get_if<Answer>(&message);
    if (!answer || answer->topic != Topic::kEnroll || answer->body.size() < sizeof(Rank))
      return broken("A ", name_of(message),
                    " came instead of a rank: does process 0 run the same program?");
    const auto rank = get_le<Rank>(answer->body);
    const std::string elsewhere = answer->body.substr(sizeof(Rank));
    MutexLock lock(process_.mutex);
    place_ = Enrolment{rank, peer.rank(), rank == kNoRank ? elsewhere : ""};
    process_.changed.notify_all();
    return {};
  }

  ProcessState& process_;
  const Strand strand_;
  Peer peer_;
  std::optional<Enrolment> place_ GUARDED_BY(process_.mutex);
};

}  // namespace

namespace {

// Asks at one address, and where that refers to.
Result<Enrolment> enroll_at(const std::string& address, const ServiceOptions& options,
                            milliseconds within) {
  ServiceOptions asked = options;
  asked.rank = kNoRank;
  asked.coordinator = address;
  for (int times = 0;; ++times) {
    ProcessState process(asked);
    IoThreads threads(1);
    Enrolling enrolling(process, threads);
    Result<Enrolment> place = enrolling.ask(within);
    let_run(threads);
    threads.stop();
    TRY(place);
    if (place.value().rank != kNoRank) {
      place.value().coordinator = asked.coordinator;
      return place;
    }
    // The coordinator is lost, or its successor, if others point in a circle.
    if (times == kMostReferrals || place.value().coordinator.empty())
      return unreachable(asked.coordinator,
                         "it belongs to a job that no process coordinates at the moment");
    asked.coordinator = place.value().coordinator;
  }
}

}  // namespace

Result<Enrolment> enroll(const ServiceOptions& options) {
  CHECK(options.key) << "a rank without a key that it belongs to";
  std::vector<std::string> addresses{options.coordinator};
  addresses.insert(addresses.end(), options.others.begin(), options.others.end());
  const auto within = options.ranks_by_order ? options.start : options.connect;
  const Instant until = now() + within;
  for (std::size_t at = 0;; ++at) {
    const std::string& address = addresses[at % addresses.size()];
    Result<Enrolment> place = enroll_at(
        address, options, addresses.size() > 1 ? std::min(within, kOneOfSeveral) : within);
    if (place.ok()) return place;
    const bool is_last = addresses.size() == 1 || now() >= until;
    if (!is_last && worth_another_try(place.error())) continue;
    const Error& error = place.error();
    if (options.ranks_by_order)
      return Error{error.code,
                   str("no rank came from process 0: ", error.message,
                       " Process 0 is the first worker or server that starts on the machine of ",
                       address, ": has one been started there?")};
    return Error{error.code, str("no job can be joined at ", address, ": ", error.message)};
  }
}

}  // namespace shoal::table
