// Drives two servers that have each other's copies.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "shoal/table/shard.h"

namespace shoal::table::test {

// Two servers with a row each, and the copy of the other's.
struct ShardPair {
  explicit ShardPair(Plan one) : plan(std::move(one)) {
    plan.servers = plan.copies = 2;
    for (int server = 0; server < 2; ++server) {
      shards.push_back(std::make_unique<Shard>(server));
      give(server, 0, PlanMessage{plan});
      for (RowId row = 0; row < plan.rows.size(); ++row) {
        const std::vector<float> numbers(plan.rows[row].length, 0.5f);
        give(server, 0, Init{row, Part::kWeights, as_payload({numbers, nullptr})});
      }
      EXPECT_TRUE(shards.back()->ready());
    }
    answers.clear();
  }
  void give(int server, int worker, const Message& message) {
    const Status status = shards[server]->handle(worker, message, out);
    EXPECT_TRUE(status.ok()) << status.error().message;
    take(server);
  }
  void take(int) {
    for (Outgoing& one : std::exchange(out, {})) {
      if (is_to_server(one.to))
        between.emplace_back(server_of(one.to), std::move(one.message));
      else
        answers.push_back(std::move(one));
    }
  }
  // Delivers what the servers have said to each other.
  void deliver(std::size_t most = ~std::size_t{0}) {
    for (; !between.empty() && most > 0; --most) {
      auto [server, message] = std::move(between.front());
      between.erase(between.begin());
      const Status status = shards[server]->hear_server(message, out);
      EXPECT_TRUE(status.ok()) << status.error().message;
      take(server);
    }
  }
  // Says that worker and server `lost` are gone.
  void lose(int server, int worker) {
    shards[1 - server]->lose_server(server, out);
    shards[1 - server]->leave(worker, out);
    take(1 - server);
  }
  std::span<const float> numbers_of(int server, RowId row) const {
    return shards[server]->look(row)->payload.floats();
  }
  float first_of(int server, RowId row) const { return numbers_of(server, row)[0]; }

  Plan plan;
  std::vector<std::unique_ptr<Shard>> shards;
  std::vector<std::pair<int, Message>> between;
  Outbox out, answers;
};

}  // namespace shoal::table::test
