#include "shoal/table/running_job.h"

#include <algorithm>
#include <deque>
#include <span>

#include "shoal/base/bytes.h"
#include "shoal/table/link/process_state.h"

namespace shoal::table {
namespace {

// The limits of one attempt to connect, and of the answers to all that ask at a time.
constexpr milliseconds kAttempt{1000}, kAnswer{1500};
// The pause before all are asked again whether the process still counts as a member.
constexpr milliseconds kPause{100};
constexpr std::size_t kAtATime = 16;

enum class Found { kUnknown, kNothing, kNoJob, kMember, kGone };

// One question to one server, on a connection of its own.
class Inquiry final : public LinkOwner {
 public:
  Inquiry(ProcessState& process, Rank rank) : process_(process), rank_(rank) {}

  void ask(const Strand& strand, const std::string& address) {
    LinkOptions options = process_.link_options();
    options.connect = std::min(options.connect, kAttempt);
    connect(strand, address, kNoRank, Purpose::kCoordination, process_.self, options, *this,
            [this](Result<std::shared_ptr<Link>> link) {
              if (!link.ok()) return find(Found::kNothing);
              link_ = std::move(link).value();
              std::string body;
              put_le(body, rank_);
              link_->send(Ask{.topic = Topic::kEnroll,
                              .clock = static_cast<Clock>(process_.self.incarnation),
                              .body = std::move(body)});
            });
  }
  Found found() const REQUIRES(process_.mutex) { return found_; }

 private:
  Status received(Link&, Message&& message) override {
    const Answer* answer = std::get_if<Answer>(&message);
    if (!answer || answer->topic != Topic::kEnroll || answer->body.size() != sizeof(Rank))
      find(Found::kNothing);
    else
      find(get_le<Rank>(answer->body) == kNoRank ? Found::kGone : Found::kMember);
    return {};
  }
  // A process that waits for its job to begin has no answer.
  void closed(Link&, Status error) override { find(error.ok() ? Found::kNoJob : Found::kNothing); }
  void find(Found found) {
    MutexLock lock(process_.mutex);
    if (found_ == Found::kUnknown) found_ = found;
    process_.changed.notify_all();
  }

  ProcessState& process_;
  const Rank rank_;
  std::shared_ptr<Link> link_;  // on the strand
  Found found_ GUARDED_BY(process_.mutex) = Found::kUnknown;
};

struct Answered {
  Found found = Found::kNothing;
  std::string address;
};

// Asks at all these addresses together. Returns the first answer that settles the matter.
Answered ask_at_once(const ServiceOptions& options, std::span<const std::string> addresses) {
  ServiceOptions asks = options;
  asks.rank = kNoRank;
  ProcessState process(asks);
  IoThreads threads(1);
  const Strand strand(threads);
  std::deque<Inquiry> inquiries;
  for (const std::string& address : addresses)
    inquiries.emplace_back(process, options.rank).ask(strand, address);
  Answered answered;
  const auto is_settled = [&]() REQUIRES(process.mutex) {
    bool all = true;
    for (std::size_t i = 0; i < inquiries.size(); ++i) {
      const Found found = inquiries[i].found();
      all = all && found != Found::kUnknown;
      if (found > Found::kNothing && answered.found == Found::kNothing)
        answered = {found, addresses[i]};
    }
    return all || answered.found != Found::kNothing;
  };
  (void)process.wait(
      is_settled, [](double) {}, kAnswer);  // late answers do not count
  threads.stop();
  return answered;
}

Answered ask_all(const ServiceOptions& options, std::span<const std::string> addresses) {
  Answered answered = ask_at_once(options, addresses.first(1));
  for (addresses = addresses.subspan(1); answered.found == Found::kNothing && !addresses.empty();) {
    const std::size_t some = std::min(kAtATime, addresses.size());
    answered = ask_at_once(options, addresses.first(some));
    addresses = addresses.subspan(some);
  }
  return answered;
}

}  // namespace

Result<std::vector<std::string>> find_running_job(const ServiceOptions& options,
                                                  const std::vector<std::string>& addresses) {
  std::vector<std::string> found;
  // Its loss may be noticed by its silence, and a new coordinator be needed for it first.
  const Instant until = now() + 3 * options.stall_abort;
  Condition pause;
  Mutex mutex;
  while (!addresses.empty()) {
    const Answered answered = ask_all(options, addresses);
    if (answered.found == Found::kGone) {
      found = addresses;
      std::ranges::rotate(found, std::ranges::find(found, answered.address));
    }
    if (answered.found != Found::kMember) break;
    if (now() >= until)
      return broken("rank ", options.rank, " is another process's, which takes part in the job at ",
                    answered.address, ": two processes have the same --client_id");
    MutexLock lock(mutex);
    pause.wait_for(mutex, kPause, [] { return false; });
  }
  return found;
}

}  // namespace shoal::table
