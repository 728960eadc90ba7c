// The plan of a generation, on which workers and servers agree.
#pragma once

#include "shoal/optim/rule.h"
#include "shoal/table/codec_spec.h"
#include "shoal/table/scheme_spec.h"

namespace shoal::table {

inline constexpr std::size_t kMaxSchemeBytes = 64u << 10;  // of a scheme's words
inline constexpr std::size_t kMaxCopiedWorkers = 4096;     // where rows have two copies
inline constexpr std::size_t kMaxCodecs = 255;             // of a plan

// The plan that all workers and servers must agree on before the first push. The same on every
// worker: it is computed from the net, the solver and the number of servers, and its digest is
// compared. A job may have several, one after the other, each of the next generation: with another
// scheme, other workers, other clocks. Messages about rows belong to a generation, and are ignored
// in a later one.
struct Plan {
  std::uint16_t workers = 1, servers = 1;
  // The clock at which every worker begins, unless `clocks` is given, and the first version of
  // every row.
  Clock start = 0;
  optim::RuleOptions rule;
  optim::Regularization regularization = optim::Regularization::kL2;
  float weight_decay = 0;
  // The limit of the norm of the mean gradient of all rows; below 0: none.
  float clip = -1;
  std::uint32_t iter_size = 1;  // passes whose gradients a push sums
  SchemeSpec scheme{};
  Rows rows;
  // The codecs that rows have besides float32, by Row::push_codec and Row::pull_codec from 1.
  std::vector<CodecSpec> codecs{};
  Generation generation = 0;
  // The ranks of the workers' processes, by worker; none: as in the job's first roster.
  std::vector<Rank> ranks{};
  // The clocks at which the workers begin, by worker, `start` the least; none: all at `start`.
  std::vector<Clock> clocks{};
  // The ranks of the servers' processes, by server; none: as in the job's first roster.
  std::vector<Rank> server_ranks{};
  // The number of servers that have each row which all workers push: 1; or 2, its own and copy_of()
  // that one.
  std::uint8_t copies = 1;
  // Returns the server that has a copy of this server's rows, if copies is 2.
  std::uint16_t copy_of(int server) const {
    return static_cast<std::uint16_t>((server + 1) % servers);
  }
  // Says why no process may be lost while this plan holds; "": some may. Not on the wire.
  std::string why_none{};
  bool is_copied(int server) const { return copies == 2 && copy_of(server) != server; }
  Clock start_of(int worker) const { return clocks.empty() ? start : clocks.at(worker); }
  bool operator==(const Plan&) const = default;
};
// Returns whether workers write rows of the plan for each other.
bool has_messages(const Plan& plan);
// Returns "", or the first thing wrong, in words.
std::string validate(const Plan& plan);

}  // namespace shoal::table
