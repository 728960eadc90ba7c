// Queues of messages by urgency, which share memory: a job has as many as it has pairs of workers
// and servers, and most of them are empty at any time.
#pragma once

#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "shoal/table/messages.h"

namespace shoal::simulate {

class MessageQueues {
 public:
  explicit MessageQueues(std::size_t count) : queues_(count) {}

  void push(std::size_t queue, table::Urgency urgency, table::Message&& message) {
    if (free_.empty()) {
      free_.push_back(messages_.size());
      messages_.emplace_back();
    }
    const std::size_t place = free_.back();
    free_.pop_back();
    messages_[place] = std::move(message);
    queues_[queue].push({urgency, numbers_++, place});
  }
  // The most urgent message of a queue, of those the first that came; nothing if the
  // queue is empty.
  std::optional<table::Message> pop(std::size_t queue) {
    if (queues_[queue].empty()) return std::nullopt;
    const std::size_t place = queues_[queue].top().place;
    queues_[queue].pop();
    free_.push_back(place);
    return std::exchange(messages_[place], table::Bye());
  }

 private:
  struct Turn {
    table::Urgency urgency{};
    std::uint64_t number = 0;  // counts all messages
    std::size_t place = 0;     // in messages_
    auto operator<=>(const Turn&) const = default;
  };
  std::vector<std::priority_queue<Turn, std::vector<Turn>, std::greater<>>> queues_;
  std::vector<table::Message> messages_;
  std::vector<std::size_t> free_;  // places in messages_
  std::uint64_t numbers_ = 0;
};

}  // namespace shoal::simulate
