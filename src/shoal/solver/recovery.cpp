#include "shoal/solver/recovery.h"

#include <cstring>

#include "shoal/base/bytes.h"
#include "shoal/base/log.h"
#include "shoal/base/try.h"

namespace shoal {
namespace {

constexpr const char* kNobody =
    "the workers that had the params at the start of this part of the run are lost";

Error cut_short() {
  return {Code::kPeer,
          "what another worker sent after a loss is cut: do all processes run the same program?"};
}

// Pieces of what a member gives follow each other, each after its length.
void put_piece(const std::string& piece, std::string& bytes) {
  put_le(bytes, std::uint64_t{piece.size()});
  bytes += piece;
}
Result<std::string_view> get_piece(std::string_view& bytes) {
  if (bytes.size() < sizeof(std::uint64_t)) return cut_short();
  const auto length = get_le<std::uint64_t>(bytes);
  bytes.remove_prefix(sizeof(length));
  if (bytes.size() < length) return cut_short();
  const std::string_view piece = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return piece;
}

}  // namespace

Status get_numbers(std::string_view& bytes, std::span<float> numbers) {
  if (bytes.size() < numbers.size_bytes()) return cut_short();
  std::memcpy(numbers.data(), bytes.data(), numbers.size_bytes());
  bytes.remove_prefix(numbers.size_bytes());
  return {};
}

Error nobody_has_params() { return {Code::kPeer, kNobody}; }
bool is_without_params(const Error& error) { return error.message == kNobody; }

Result<std::int64_t> Recovery::run() {
  Recoverable* const updater = updater_.recoverable();
  Recoverable::Standing mine{.done = progress_.iteration};
  if (updater) {
    Result<Recoverable::Standing> standing = updater->interrupt();
    TRY(standing);
    mine = std::move(standing).value();
  }
  const Result<Standings> all = exchange_standings(mine);
  TRY(all);
  std::int64_t done = mine.done;
  for (const auto& one : all.value())
    if (one) done = std::min(done, one->done);
  // The chief, or, if that is lost, the next member.
  const auto first =
      std::ranges::find_if(all.value(), [](const auto& one) { return one.has_value(); });
  leads_ = first - all.value().begin() == team_.index();
  const Result<std::vector<Unit>> units = choose(all.value(), done);
  TRY(units);
  std::string bytes;
  TRY(give(units.value(), done, bytes));
  const Result<std::vector<std::string>> given = team_.gather(std::move(bytes));
  TRY(given);
  if (leads_ && given.value().size() != all.value().size())
    return Error{Code::kInterrupted,
                 "another worker was to go on for the lost one, and is lost, too"};
  if (leads_) {
    TRY(take(units.value(), all.value(), done, given.value()));
    report(units.value(), done, all.value());
  }
  TRY(hand_on(units.value().size(), done));
  LOG(INFO) << "Iteration " << done << ": a loss has interrupted this worker"
            << (mine.done > done ? ", which makes an iteration again" : "");
  if (updater) updater->go_on_from(done, team_.may_lead());
  return done;
}

Result<Recovery::Standings> Recovery::exchange_standings(const Recoverable::Standing& mine) const {
  std::string bytes;
  put_le(bytes, mine.done);
  for (const std::int64_t version : mine.versions) put_le(bytes, version);
  const Result<std::vector<std::string>> said = team_.reunite(std::move(bytes));
  TRY(said);
  Standings all;
  for (std::string_view rest : said.value()) {
    auto& one = all.emplace_back();
    if (rest.empty()) continue;
    if (rest.size() != (1 + mine.versions.size()) * sizeof(std::int64_t)) return cut_short();
    one.emplace().done = get_le<std::int64_t>(rest);
    for (rest.remove_prefix(sizeof(one->done)); !rest.empty();
         rest.remove_prefix(sizeof(one->done)))
      one->versions.push_back(get_le<std::int64_t>(rest));
  }
  return all;
}

// Chooses, for each unit, the first member with its newest version.
Result<std::vector<Recovery::Unit>> Recovery::choose(const Standings& all, std::int64_t done) {
  const auto here = std::ranges::find_if(all, [](const auto& one) { return one.has_value(); });
  if (here == all.end()) return cut_short();
  std::vector<Unit> units((*here)->versions.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    unit.version = Recoverable::kNothing;
    for (std::size_t member = 0; member < all.size(); ++member) {
      if (!all[member]) continue;
      const std::int64_t version = all[member]->versions[u];
      const bool fetches = version == Recoverable::kOnServers && all[member]->done == done &&
                           unit.version == Recoverable::kNothing;
      if (!fetches && (version < 0 || version <= unit.version)) continue;
      unit = {.source = member, .version = fetches ? done : version, .is_fetched = fetches};
    }
    if (unit.version == Recoverable::kNothing) return nobody_has_params();
    if (unit.version < 0 || unit.version > done)
      return Error{Code::kInternal, str("after a loss no worker has part ", u, " of the params of ",
                                        done, " iterations; the newest is of ", unit.version)};
  }
  return units;
}

// Appends what the leading member needs of this one. That itself needs its own part, too.
Status Recovery::give(const std::vector<Unit>& units, std::int64_t done, std::string& bytes) {
  const auto self = static_cast<std::size_t>(team_.index());
  for (std::size_t u = 0; u < units.size(); ++u) {
    Recoverable& updater = *updater_.recoverable();
    std::string piece;
    if (units[u].source == self) TRY(updater.fetch_unit(u));
    if (units[u].source == self && !leads_) {
      updater.give_unit(u, piece);
      put_piece(piece, bytes);
    }
    for (std::int64_t at = units[u].version; at < done; ++at) {
      piece.clear();
      updater.give_part(u, at, piece);
      put_piece(piece, bytes);
    }
  }
  return {};
}

// Makes this member's params and histories those of `done` iterations.
Status Recovery::take(const std::vector<Unit>& units, const Standings& all, std::int64_t done,
                      const std::vector<std::string>& given) {
  // By unit and iteration, then by member.
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<std::string_view>> parts;
  for (std::size_t member = 0; member < all.size(); ++member) {
    if (!all[member]) continue;
    std::string_view rest = given.at(member);
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (units[u].source == member && member != static_cast<std::size_t>(team_.index())) {
        const Result<std::string_view> numbers = get_piece(rest);
        TRY(numbers);
        TRY(updater_.recoverable()->take_unit(u, units[u].version, numbers.value()));
      }
      for (std::int64_t at = units[u].version; at < done; ++at) {
        const Result<std::string_view> part = get_piece(rest);
        TRY(part);
        auto& of_all = parts[{u, at}];
        of_all.resize(all.size());
        of_all[member] = part.value();
      }
    }
  }
  std::int64_t first = done;
  for (const Unit& unit : units) first = std::min(first, unit.version);
  for (std::int64_t at = first; at < done; ++at) {
    double squares = 0;
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (units[u].version > at) continue;
      const Result<double> sum = updater_.recoverable()->sum_parts(u, at, parts.at({u, at}));
      TRY(sum);
      squares += sum.value();
    }
    for (std::size_t u = 0; u < units.size(); ++u)
      if (units[u].version <= at) updater_.recoverable()->update_unit(u, squares);
  }
  return {};
}

// Gives what this member has, if it leads, to those that lead if it is lost.
Status Recovery::hand_on(std::size_t units, std::int64_t done) {
  std::string bytes;
  for (std::size_t u = 0; u < units && leads_; ++u) {
    std::string piece;
    updater_.recoverable()->give_unit(u, piece);
    put_piece(piece, bytes);
  }
  const Result<std::string> given = team_.hand_on(std::move(bytes));
  TRY(given);
  if (leads_ || !team_.may_lead()) return {};
  std::string_view rest = given.value();
  for (std::size_t u = 0; u < units; ++u) {
    const Result<std::string_view> numbers = get_piece(rest);
    TRY(numbers);
    TRY(updater_.recoverable()->take_unit(u, done, numbers.value()));
  }
  return {};
}

void Recovery::report(const std::vector<Unit>& units, std::int64_t done,
                      const Standings& all) const {
  std::int64_t others = 0, summed = 0, dropped = 0;
  for (const Unit& unit : units) {
    others += unit.source != static_cast<std::size_t>(team_.index());
    summed += unit.version < done;
  }
  for (const auto& one : all) dropped += one ? one->done - done : 0;
  LOG(INFO) << "Iteration " << done << ": after a loss " << units.size()
            << " parts of the params go on, " << others
            << " of them with another worker's numbers, " << summed
            << " summed again without the lost worker; " << dropped
            << " iterations of single workers are made again";
}

}  // namespace shoal
