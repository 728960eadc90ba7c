#include "common/link_rates.h"

#include <time.h>

#include "shoal/base/log.h"
#include "shoal/base/mutex.h"
#include "shoal/table/link/link.h"

namespace shoal {
namespace {

using table::Link;
using table::LinkOwner;
using table::Message;

// One end: says its rows, or counts those that it hears.
class End final : public LinkOwner {
 public:
  End(std::size_t rows, std::size_t row_floats) : left_(rows), row_(row_floats, 1.0f) {}

  std::span<std::byte> place(Message&, std::size_t) override {
    return std::as_writable_bytes(std::span(row_));
  }
  Status received(Link&, Message&&) override {
    MutexLock lock(mutex_);
    ++heard_;
    changed_.notify_all();
    return {};
  }
  std::optional<Message> next(Link&) override {
    if (left_ == 0 || !may_send_) return std::nullopt;
    --left_;
    return table::Init{0, table::Part::kWeights, table::as_payload({row_, nullptr})};
  }
  void opened(std::shared_ptr<Link> link) override { keep(std::move(link)); }
  void closed(Link&, Status status) override {
    CHECK(status.ok()) << "the link broke: " << status.error().message;
  }
  void keep(std::shared_ptr<Link> link) {
    MutexLock lock(mutex_);
    link_ = std::move(link);
    changed_.notify_all();
  }
  std::shared_ptr<Link> link() {
    MutexLock lock(mutex_);
    wait([this]() REQUIRES(mutex_) { return link_ != nullptr; });
    return link_;
  }
  void wait_for(std::size_t rows) {
    MutexLock lock(mutex_);
    wait([&]() REQUIRES(mutex_) { return heard_ >= rows; });
  }
  std::atomic<bool> may_send_{false};

 private:
  void wait(const auto& done) REQUIRES(mutex_) {
    CHECK(changed_.wait_for(mutex_, std::chrono::minutes(10), done)) << "the link stands still";
  }

  std::size_t left_;
  std::vector<float> row_;
  Mutex mutex_;
  Condition changed_;
  std::size_t heard_ GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Link> link_ GUARDED_BY(mutex_);
};

// Returns the seconds that the only thread has computed.
double computed(table::IoThreads& threads) {
  double seconds = 0;
  CHECK(table::Strand(threads).call([&] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }));
  return seconds;
}

}  // namespace

LinkRates measure_link(table::Encrypt encrypt, std::size_t rows, std::size_t row_floats) {
  table::IoThreads sending(1), receiving(1);
  End sender(rows, row_floats), receiver(0, row_floats);
  table::LinkOptions options;
  options.encrypt = encrypt;
  const table::Credentials self{.rank = 1,
                                .incarnation = 1,
                                .token = "the token of the bench",
                                .key = std::make_shared<const SigningKey>()};
  const auto listener =
      table::Listener::create(receiving, "127.0.0.1", 0, {.token = self.token}, options,
                              [&](const table::PeerName&) { return &receiver; });
  CHECK(listener.ok()) << listener.error().message;
  connect(table::Strand(sending), str("127.0.0.1:", listener.value().port), 0,
          table::Purpose::kRows, self, options, sender, [&](Result<std::shared_ptr<Link>> link) {
            CHECK(link.ok()) << link.error().message;
            sender.keep(std::move(link).value());
          });
  const std::shared_ptr<Link> link = sender.link();
  (void)receiver.link();
  const LinkRates before{to_seconds(table::now()), computed(sending), computed(receiving)};
  sender.may_send_ = true;
  link->wake();
  receiver.wait_for(rows);
  const LinkRates rates{to_seconds(table::now()) - before.wall, computed(sending) - before.sender,
                        computed(receiving) - before.receiver};
  link->close(true);
  sending.stop(), receiving.stop();
  return rates;
}

}  // namespace shoal
