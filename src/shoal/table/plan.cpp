#include <algorithm>

#include "shoal/base/error.h"
#include "shoal/table/messages.h"

namespace shoal::table {
namespace {

std::string validate(const Row& row, std::uint16_t workers, std::uint16_t servers,
                     std::size_t codecs) {
  if (row.length < 1 || row.length > kMaxRowFloats)
    return str("has ", row.length, " numbers; 1 to ", kMaxRowFloats, " are allowed");
  if (row.server >= servers)
    return str("is on server ", row.server, ", but there are ", servers, ", numbered from 0");
  if (row.writer < kEveryWorker || row.writer >= workers)
    return str("is written by worker ", row.writer, ", but there are ", workers,
               ", numbered from 0");
  if (row.writer != kEveryWorker && (row.learns || row.push_codec != row.pull_codec))
    return str("is written by worker ", row.writer, " alone, and ",
               row.learns ? "learns" : "is read in another codec than it is pushed in");
  if (row.reader < kEveryWorker || row.reader >= workers)
    return str("is read by worker ", row.reader, ", but there are ", workers, ", numbered from 0");
  if (row.reader != kEveryWorker && (row.writer == kEveryWorker || row.writer == row.reader))
    return str("is read by worker ", row.reader, " alone, and ",
               row.writer == kEveryWorker ? "all workers write it" : "it writes it too");
  if (const std::uint8_t last = std::max(row.push_codec, row.pull_codec); last > codecs)
    return str("is in codec ", int{last}, ", but there are ", codecs, ", numbered from 1");
  if (!std::isfinite(row.lr_mult)) return str("has lr_mult ", row.lr_mult, "; it must be finite");
  if (!std::isfinite(row.decay_mult))
    return str("has decay_mult ", row.decay_mult, "; it must be finite");
  return "";
}

std::string wrong_ranks(const std::vector<Rank>& ranks, std::size_t of, const char* whose) {
  if (!ranks.empty() && ranks.size() != of)
    return str("there are ", of, ' ', whose, ", but ", ranks.size(), " ranks of ", whose);
  return std::ranges::adjacent_find(ranks, std::ranges::greater_equal()) == ranks.end()
             ? ""
             : str("the ranks of the ", whose, " are not in rising order");
}

}  // namespace

bool has_messages(const Plan& plan) {
  return std::ranges::any_of(plan.rows, [](const Row& row) { return row.writer != kEveryWorker; });
}

std::string validate(const Plan& plan) {
  if (plan.workers < 1) return "there are 0 workers; at least one is needed";
  if (plan.servers < 1) return "there are 0 servers; at least one is needed";
  if (plan.start < 0) return str("the start is clock ", plan.start, "; it must not be negative");
  if (std::string wrong = optim::validate(plan.rule); !wrong.empty()) return wrong;
  if (!std::isfinite(plan.weight_decay))
    return str("weight_decay is ", plan.weight_decay, "; it must be finite");
  if (!std::isfinite(plan.clip))
    return str("clip_gradients is ", plan.clip, "; it must be finite (below 0: none)");
  if (plan.iter_size < 1) return "iter_size is 0; it must be at least 1";
  if (plan.scheme.name.empty()) return "the scheme has no name";
  if (const std::size_t letters = plan.scheme.words().size(); letters > kMaxSchemeBytes)
    return str("the scheme's name has ", letters, " letters; at most ", kMaxSchemeBytes,
               " are allowed");
  if (plan.copies < 1 || plan.copies > 2)
    return str("there are ", int{plan.copies}, " copies of each row; 1 or 2 are allowed");
  if (plan.copies == 2 && plan.workers > kMaxCopiedWorkers)
    return str("there are ", plan.workers, " workers; rows have two copies with at most ",
               kMaxCopiedWorkers);
  if (plan.rows.empty()) return "there are no rows";
  if (plan.rows.size() > kMaxRows)
    return str("there are ", plan.rows.size(), " rows; at most ", kMaxRows, " are allowed");
  if (plan.codecs.size() > kMaxCodecs)
    return str("there are ", plan.codecs.size(), " codecs; at most ", kMaxCodecs, " are allowed");
  for (std::size_t i = 0; i < plan.rows.size(); ++i)
    if (std::string wrong = validate(plan.rows[i], plan.workers, plan.servers, plan.codecs.size());
        !wrong.empty())
      return str("row ", i, " ", wrong);
  if (std::string wrong = wrong_ranks(plan.ranks, plan.workers, "workers"); !wrong.empty())
    return wrong;
  if (std::string wrong = wrong_ranks(plan.server_ranks, plan.servers, "servers"); !wrong.empty())
    return wrong;
  if (!plan.clocks.empty() && plan.clocks.size() != plan.workers)
    return str("there are ", plan.workers, " workers, but ", plan.clocks.size(),
               " clocks of workers");
  if (!plan.clocks.empty() && std::ranges::min(plan.clocks) != plan.start)
    return str("the start is clock ", plan.start, ", but the least clock of a worker is ",
               std::ranges::min(plan.clocks));
  return "";
}

Urgency urgency_of(const Message& message, const Plan& plan) {
  const auto* row = std::get_if<RowMessage>(&message);
  if (row == nullptr || row->row >= plan.rows.size()) return {};
  return {row->clock, plan.rows[row->row].priority};
}

}  // namespace shoal::table
