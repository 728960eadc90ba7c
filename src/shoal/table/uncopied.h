// The updates of a row that its second copy does not have yet, and the answers that wait for them:
// no worker sees a version that would be lost with this server.
#pragma once

#include <deque>

#include "shoal/table/outbox.h"

namespace shoal::table {

class Uncopied {
 public:
  // Numbers the update, and keeps it until the copy has it. Returns it as it is to be sent.
  const Update& keep(Update update) {
    update.number = ++last_;
    return updates_.emplace_back(std::move(update));
  }
  // Sends the answer now, or when the copy has all updates so far.
  void answer(int worker, RowMessage answer, Outbox& out) {
    if (updates_.empty())
      out.push_back({worker, std::move(answer)});
    else
      answers_.push_back({last_, worker, std::move(answer)});
  }
  // Notes that the copy has the updates up to this number.
  void copied(std::uint64_t number, Outbox& out) {
    while (!updates_.empty() && updates_.front().number <= number) updates_.pop_front();
    const std::uint64_t has = updates_.empty() ? last_ : updates_.front().number - 1;
    for (; !answers_.empty() && answers_.front().number <= has; answers_.pop_front())
      out.push_back({answers_.front().worker, std::move(answers_.front().message)});
  }
  // Waits for no copy any more.
  void give_up(Outbox& out) { copied(last_, out); }
  // Continues with the numbers of the server before, whose row was copied here.
  void begin_after(std::uint64_t number) { last_ = number; }

  std::uint64_t last() const { return last_; }
  const std::deque<Update>& updates() const { return updates_; }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const Update& update : updates_) bytes += update.payload.bytes.size();
    return bytes;
  }

 private:
  struct Waiting {
    std::uint64_t number = 0;  // of the last update that it shows
    int worker = 0;
    RowMessage message;
  };
  std::uint64_t last_ = 0;
  std::deque<Update> updates_;  // oldest first
  std::deque<Waiting> answers_;
};

}  // namespace shoal::table
