// How a process that joins a job while it trains comes by its rank: on a connection of its own, for
// this one question.
#include <future>

#include "shoal/base/bytes.h"
#include "shoal/table/link/line.h"

namespace shoal::table {
namespace {

class Question final : public LineOwner {
 public:
  Question(Job& job, IoThreads& threads)
      : job_(job), strand_(threads), line_(job, strand_, Purpose::kCoordination, 0, *this) {}

  Result<std::uint32_t> ask() {
    strand_.post([this] { line_.open(job_.options.coordinator, job_.options.connect); });
    const Status status = job_.wait(
        job_.options.connect + job_.options.stall_abort, job_.options.stall_warn,
        [this]() REQUIRES(job_.mutex) { return rank_.has_value(); }, [](double) {});
    const auto closed = std::make_shared<std::promise<void>>();
    strand_.post([this, closed] {
      line_.close(true);
      closed->set_value();
    });
    constexpr std::chrono::seconds kLong{10};
    (void)closed->get_future().wait_for(kLong);
    if (!status.ok())
      return Error{status.error().code, str("no job can be joined at ", job_.options.coordinator,
                                            ": ", status.error().message)};
    MutexLock lock(job_.mutex);
    return *rank_;
  }

 private:
  std::span<std::byte> place(Line&, Message&, std::size_t) override { return {}; }
  std::optional<Message> next(Line&) override { return std::nullopt; }
  void up(Line& line, bool) override {
    line.link()->send(Ask{
        .topic = Topic::kEnroll, .clock = static_cast<Clock>(job_.self.incarnation), .body = {}});
  }
  void lost(Line&, const Error& error) override { job_.fail(error); }
  Status received(Line&, Message&& message) override {
    const Answer* answer = std::get_if<Answer>(&message);
    if (!answer || answer->topic != Topic::kEnroll || answer->body.size() != sizeof(std::uint32_t))
      return Error{Code::kPeer,
                   str("A ", name_of(type_of(message)),
                       " came where a rank was due: does process 0 run the same program?")};
    MutexLock lock(job_.mutex);
    rank_ = get_le<std::uint32_t>(answer->body);
    job_.changed.notify_all();
    return {};
  }

  Job& job_;
  const Strand strand_;
  Line line_;
  std::optional<std::uint32_t> rank_ GUARDED_BY(job_.mutex);
};

}  // namespace

Result<std::uint32_t> enroll(const ServiceOptions& options) {
  ServiceOptions without = options;
  without.rank = kNoRank;
  Job job(without);
  IoThreads threads(1);
  Question question(job, threads);
  Result<std::uint32_t> rank = question.ask();
  let_run(threads);
  threads.stop();
  job.forget_links();
  return rank;
}

}  // namespace shoal::table
