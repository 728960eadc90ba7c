// A client whose rows and time are a test's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/client.h"

namespace shoal::table::test {

// A client of rows with their numbers; what it says is written down as words: "push 3@7" (row 3,
// clock 7), "get 3@8", "get 3@8 part 1".
struct ClientRig {
  explicit ClientRig(std::vector<Row> rows, Order order = Order::kPriority, Clock start = 0)
      : ClientRig(std::move(rows), ClientOptions{.order = order}, start) {}
  ClientRig(std::vector<Row> rows, const ClientOptions& options, Clock start = 0)
      : ClientRig(plan_of_rows(std::move(rows), start), options) {}
  ClientRig(const Plan& of, const ClientOptions& options) : plan(of) {
    for (const Row& row : plan.rows) {
      numbers.push_back(std::vector<float>(row.length * 3, 0.f));
      gradients.push_back(std::vector<float>(row.length, 1.f));
    }
    client.emplace(options, plan, [this](RowId row, Part part) {
      const std::size_t length = plan.rows[row].length;
      return Destination(
          std::span<float>(numbers[row]).subspan(static_cast<std::size_t>(part) * length, length),
          values);
    });
  }

  static Plan plan_of_rows(std::vector<Row> rows, Clock start) {
    Plan plan;
    plan.start = start;
    plan.rows = std::move(rows);
    for (const Row& row : plan.rows)
      plan.servers = std::max<std::uint16_t>(plan.servers, row.server + 1);
    return plan;
  }

  void push(RowId row, Clock clock) {
    client->push(
        {.row = row, .clock = clock, .rate = 1, .payload = as_payload({gradients[row], nullptr})},
        now);
  }
  // The first server's turn comes at once.
  void sent_push(RowId row, Clock clock) { push(row, clock), said(); }
  void sent_get(RowId row, Clock clock) { get(row, clock), said(); }
  // Returns what leaves for it then.
  Push pushed(RowId row, Clock clock) {
    push(row, clock);
    return next();
  }
  Push next() { return std::get<Push>(*client->next(0)); }
  void get(RowId row, Clock clock, Part part = Part::kWeights) {
    client->get(row, clock, part, now);
  }
  Result<bool> row(RowId id, Clock clock, float value, Version version = 1,
                   Part part = Part::kWeights) {
    answer.assign(plan.rows[id].length, value);
    return client->take(plan.rows[id].server,
                        RowMessage{id, clock, version, part, as_payload({answer, nullptr})});
  }
  void need(RowId id, Clock clock) {
    EXPECT_FALSE(client->take(plan.rows[id].server, NeedPush{id, clock}).value());
  }
  float value(RowId row, Part part = Part::kWeights) const {
    return numbers[row][static_cast<std::size_t>(part) * plan.rows[row].length];
  }

  std::string said(int server = 0) {
    std::string words;
    while (const std::optional<Message> message = client->next(server)) {
      if (!words.empty()) words += ", ";
      if (const auto* push = std::get_if<Push>(&*message))
        words += str("push ", push->row, "@", push->clock);
      else if (const auto* get = std::get_if<Get>(&*message)) {
        words += str("get ", get->row, "@", get->clock);
        if (get->part != Part::kWeights) words += str(" part ", static_cast<int>(get->part));
      } else
        words += "something else";
    }
    return words;
  }

  Plan plan;
  std::vector<std::vector<float>> numbers, gradients;
  Values* values = nullptr;  // of destinations
  std::vector<float> answer;
  Instant now{};
  std::optional<Client> client;
};

// Rows of four numbers with these priorities, on servers `of`, or all on the first.
inline std::vector<Row> rows(const std::vector<std::uint32_t>& priorities,
                             const std::vector<std::uint16_t>& of = {}) {
  std::vector<Row> made;
  for (std::size_t i = 0; i < priorities.size(); ++i)
    made.push_back({.length = 4,
                    .priority = priorities[i],
                    .server = i < of.size() ? of[i] : std::uint16_t{0}});
  return made;
}

}  // namespace shoal::table::test
