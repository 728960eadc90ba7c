// The Team of a worker with a table: its barriers, sums, shared data and agreements are questions
// to the coordinator.
#include <algorithm>
#include <utility>

#include "shoal/base/bytes.h"
#include "shoal/base/try.h"
#include "shoal/parallel/worker.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/coordinator/members.h"
#include "shoal/table/messages.h"

namespace shoal::parallel {
namespace {

using table::Topic;
using table::Want;

constexpr std::pair<Action, Want> kWants[] = {{Action::kNone, Want::kNothing},
                                              {Action::kStop, Want::kStop},
                                              {Action::kSnapshot, Want::kSnapshot},
                                              {Action::kRequeue, Want::kRequeue},
                                              {Action::kRegroup, Want::kRegroup}};

Want want_of(Action action) {
  for (const auto& [known, want] : kWants)
    if (known == action) return want;
  return Want::kNothing;
}

Action action_of(Want want) {
  for (const auto& [action, known] : kWants)
    if (known == want) return action;
  return Action::kNone;
}

Error broken(const char* what, std::size_t wanted, std::size_t found) {
  return {Code::kPeer, str("the coordinator's answer to a ", what, " has ", found, " bytes where ",
                           wanted, " were expected: do all processes run the same program?")};
}

// The workers that may be lost at once, on the way from one generation to the next, without the
// loss of momentum: as many more than the chief keep the histories.
constexpr int kMostLost = 2;

class TableTeam final : public Team {
 public:
  TableTeam(table::Table& table, table::Generation generation)
      : table_(table),
        size_(workers_of(table.roster())),
        first_(table::Clock{generation} << 32),
        rounds_(first_) {}

  int index() const override { return table_.worker(); }
  int size() const override { return size_; }
  // The chief may leave without a word to the others, and the next one with it.
  bool may_lead() const override {
    if (place_) return *place_ <= kMostLost;
    return index() <= kMostLost ||
           std::ranges::all_of(table_.roster().processes, [this](const auto& process) {
             return process.worker < 0 || process.worker >= index() || table_.is_gone(process.rank);
           });
  }

  Status status() const override {
    TRY(table_.status());
    return table_.interruption();
  }

  // Counts questions anew: members may have been interrupted before different ones.
  Result<std::vector<std::string>> reunite(std::string mine) override {
    Result<table::Table::Reunion> reunion = table_.reunite(std::move(mine));
    TRY(reunion);
    constexpr int kMostQuestions = 24;  // 2 to the power of
    rounds_ = first_ + (table::Clock{reunion.value().losses} << kMostQuestions);
    const auto& said = reunion.value().said;
    place_ = std::count_if(said.begin(), said.begin() + index(),
                           [](const std::string& one) { return !one.empty(); });
    return std::move(reunion).value().said;
  }
  // Goes on in pieces, as many for those that decline them.
  Result<std::string> hand_on(std::string firsts) override {
    const bool is_first = place_ == 0;
    std::vector<double> size{is_first ? static_cast<double>(firsts.size()) : 0};
    TRY(sum(size));
    const auto bytes = static_cast<std::size_t>(size[0]);
    std::string whole;
    for (std::size_t at = 0; at < bytes; at += table::kMaxBodyBytes) {
      std::string mine = may_lead() ? "" : "-";
      if (is_first) mine = firsts.substr(at, table::kMaxBodyBytes);
      const Result<std::string> piece = table_.ask(Topic::kShare, rounds_++, std::move(mine));
      TRY(piece);
      whole += piece.value();
    }
    if (may_lead() && whole.size() != bytes) return broken("handing on", bytes, whole.size());
    return whole;
  }
  Result<Action> ends() override {
    const Result<Want> want = table_.end_of_generation();
    TRY(want);
    return action_of(want.value());
  }

  Result<Action> agree(std::int64_t iteration, Action mine) override {
    if (mine == Action::kLeave)
      table_.tell(Topic::kLeave, iteration, encode(table::LeaveBody()));
    else if (mine != Action::kNone)
      table_.tell(Topic::kPause, iteration, encode(want_of(mine)));
    const Result<Want> want = table_.start(iteration);
    TRY(want);
    return action_of(want.value());
  }

  Result<Action> meet(std::int64_t iteration, Action mine, bool ended, bool last) override {
    if (mine != Action::kNone) table_.tell(Topic::kPause, iteration, encode(want_of(mine)));
    const table::Meeting why = ended  ? table::Meeting::kEnd
                               : last ? table::Meeting::kGeneration
                                      : table::Meeting::kPause;
    const Result<std::string> answer = table_.ask(Topic::kMeet, rounds_++, encode(why));
    TRY(answer);
    const Result<Want> want = table::decode<Want>(answer.value());
    TRY(want);
    return action_of(want.value());
  }

  Result<bool> leave(std::int64_t iteration, std::string state) override {
    return table_.leave(iteration, std::move(state));
  }

  // Sends texts and numbers that are longer than a body in several rounds, which all members count
  // alike.
  Status sum(std::span<double> numbers) override {
    constexpr std::size_t kPiece = table::kMaxBodyBytes / sizeof(double);
    do {
      const std::span<double> piece = numbers.first(std::min(kPiece, numbers.size()));
      TRY(sum_piece(piece));
      numbers = numbers.subspan(piece.size());
    } while (!numbers.empty());
    return {};
  }

  Result<std::vector<std::string>> gather(std::string mine) override {
    std::vector<double> sizes(static_cast<std::size_t>(size_));
    sizes[static_cast<std::size_t>(index())] = static_cast<double>(mine.size());
    TRY(sum(sizes));
    // Half of the answer is for these pieces and their lengths, half for members that left.
    const std::size_t piece = table::kMaxBodyBytes / 2 / sizes.size() - sizeof(std::uint32_t);
    std::vector<std::string> whole;  // of the one that gets it
    std::size_t at = 0;
    do {
      const Result<std::vector<std::string>> pieces =
          gather_piece(mine.substr(std::min(at, mine.size()), piece));
      TRY(pieces);
      if (at == 0 && !pieces.value().empty()) whole.resize(sizes.size());
      if (pieces.value().size() < whole.size()) return std::vector<std::string>();
      // The state of a member that left is whole in each answer.
      for (std::size_t member = 0; member < whole.size(); ++member)
        if (at == 0 || sizes[member] > 0) whole[member] += pieces.value()[member];
      at += piece;
    } while (static_cast<double>(at) < *std::ranges::max_element(sizes));
    return whole;
  }

  // The first bytes of each piece are the length of the whole.
  Result<std::string> share(std::string chiefs) override {
    constexpr std::size_t kSize = sizeof(std::uint64_t);
    std::string whole;
    for (;;) {
      std::string piece;
      if (chief()) {
        put_le(piece, std::uint64_t{chiefs.size()});
        piece += std::string_view(chiefs).substr(whole.size(), table::kMaxBodyBytes - kSize);
      }
      const Result<std::string> answer = table_.ask(Topic::kShare, rounds_++, std::move(piece));
      TRY(answer);
      const std::string_view said = answer.value();
      if (said.empty()) return std::string();  // the chief is lost
      const std::uint64_t size = said.size() < kSize ? 0 : get_le<std::uint64_t>(said);
      if (said.size() < kSize || (said.size() == kSize && whole.size() < size))
        return broken("sharing", kSize + 1, said.size());
      whole += said.substr(kSize);
      if (whole.size() >= size) return whole;
    }
  }

  void report(std::int64_t iteration, double weight, std::span<const double> numbers) override {
    table_.tell(Topic::kOutputs, iteration,
                table::numbers_to_bytes({&weight, 1}) + table::numbers_to_bytes(numbers));
  }

  void note(std::int64_t iteration, const Times& times) override {
    table_.tell(Topic::kReport, iteration,
                encode(table::ReportBody{times.iterations, times.compute, times.data, times.rows,
                                         times.other}));
  }

  std::vector<Average> take_averages() override {
    std::vector<Average> averages;
    for (const table::Answer& answer : table_.take_outputs())
      if (table::whole_numbers(answer.body))
        averages.push_back({answer.clock, table::bytes_to_numbers(answer.body)});
    return averages;
  }

 private:
  Status sum_piece(std::span<double> numbers) {
    const Result<std::string> answer =
        table_.ask(Topic::kSum, rounds_++, table::numbers_to_bytes(numbers));
    TRY(answer);
    const std::size_t wanted = numbers.size() * sizeof(double);
    if (answer.value().size() != wanted) return broken("sum", wanted, answer.value().size());
    std::ranges::copy(table::bytes_to_numbers(answer.value()), numbers.begin());
    return {};
  }

  Result<std::vector<std::string>> gather_piece(std::string mine) {
    Result<std::string> answer = table_.ask(Topic::kGather, rounds_++, std::move(mine));
    TRY(answer);
    std::vector<std::string> parts;
    std::string_view rest = answer.value();
    while (!rest.empty()) {
      if (rest.size() < 4) return broken("gathering", 4, rest.size());
      const std::size_t length = get_le<std::uint32_t>(rest);
      rest.remove_prefix(4);
      if (rest.size() < length) return broken("gathering", length, rest.size());
      parts.emplace_back(rest.substr(0, length));
      rest.remove_prefix(length);
    }
    if (!parts.empty() && parts.size() != static_cast<std::size_t>(size_))
      return broken("gathering", static_cast<std::size_t>(size_) * 4, parts.size() * 4);
    return parts;
  }

  table::Table& table_;
  const int size_;
  const table::Clock first_;
  // Counts the questions since the generation began. All members ask the same in the same order.
  table::Clock rounds_;
  // After a loss that interrupts all: how many workers before this one are left.
  std::optional<std::ptrdiff_t> place_;
};

}  // namespace

std::unique_ptr<Team> make_table_team(table::Table& table, table::Generation generation) {
  return std::make_unique<TableTeam>(table, generation);
}

}  // namespace shoal::parallel
