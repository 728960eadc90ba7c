// Finds the part of a source of records that a net reads, and keeps how far it is in it: for the
// data layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/data/sequence.h"
#include "shoal/layers/layer.h"

namespace shoal {

class PartsManifest;

// With several clients each client reads its own part, <source>_<client> (or the suffix that its
// Share names), and its replicas take the part's records in turn. With shared_file_system all read
// <source>, and of P nets number i takes the records at the places i, i + P, i + 2 P ... of one row
// of epochs: in an epoch each record is used once, by one of them.
class SourcePlace {
 public:
  struct Source {
    std::string path;
    bool shared = false;         // shared_file_system
    std::string why_not_shared;  // by several processes; empty: they may
    std::string how_to_cut;      // makes the parts; empty: partition_data does
    std::int64_t batch_size = 1;
    bool shuffle = false;
    bool whole_batches = false;  // the n of a batch's first record is a multiple of batch_size
    std::uint64_t rand_skip = 0;
  };
  // Begins the reading of a layer, which outlives this, in a net with this context. Throws
  // ConfigError.
  void begin(const Layer& layer, const Context& ctx, const Source& source);

  // Returns the source or this net's part of it. Throws ConfigError if it is not there.
  std::string path() const { return reads_part() ? own_part() : whole_source(); }
  SequenceOptions sequence() const;
  std::uint64_t n() const { return n_; }  // of the first record that the net has not used
  void use_until(std::uint64_t n) { n_ = n; }

  // Returns u64 n, the records used so far; u64 seed, u64 stream of the job's order and crops; u64
  // how many nets share the data, u64 base, the records that nets together had used before they
  // were so many; the last is left out if it is 0, and so is the one before if it is 1 then.
  // Little-endian. load in a job of P nets makes n * (how many) / P, rounded down, of n; where
  // there is a base already, base + n * (how many) of it. Where the nets' parts of an epoch differ,
  // n is what all together have used when this one has used so many, and neither is there.
  std::string save() const;
  // Both return whether the sequence is another than before.
  Result<bool> load(std::string_view state);
  // With a shared source, base becomes the number of records that all have used: if the nets were
  // in step, no record is used twice in an epoch or left out. If one was ahead of the others, as
  // many of its records are used again as are left out of theirs. A client with a part of its own
  // goes on in it, or begins it.
  Result<bool> load_all(std::string_view own, const std::vector<std::string_view>& all);

 private:
  bool reads_part() const { return (share_.clients > 1 || share_.in_parts) && !source_.shared; }
  struct Place {
    std::uint64_t n = 0, base = 0, nets = 1;
    Random::State order{};
    std::uint64_t whole() const { return base + n * nets; }  // of all nets, if they are in step
  };
  Result<Place> read(std::string_view state) const;
  bool go_to(std::uint64_t n, std::uint64_t base, const Random::State& order);
  bool go_to(std::uint64_t whole, const Random::State& order);
  std::string part_suffix() const;
  std::string whole_source() const;
  std::string own_part() const;  // throws ConfigError if it is not there
  void compare_parts() const;
  void warn_of_parts(const PartsManifest& manifest) const;
  // Nets that share a source take its records in turn, in slices of a batch of all, or each a part
  // of every epoch.
  bool by_slices() const {
    const std::vector<std::int64_t> lengths = slices();
    return !reads_part() &&
           std::ranges::adjacent_find(lengths, std::not_equal_to()) != lengths.end();
  }
  std::vector<std::int64_t> slices() const;  // records, by client
  bool by_parts() const { return !reads_part() && !by_slices() && !share_.weights.empty(); }
  bool in_turn() const { return !by_slices() && !by_parts(); }
  double own_part_of_epoch() const;   // of by_parts(); in (0, 1]
  std::uint64_t used_by_all() const;  // records of the source, unless they are taken in turn
  const Layer* layer_ = nullptr;
  Source source_;
  Share share_;
  // Names the stream of the order and the crops, the same for all nets of the job.
  Random::State order_;
  std::uint64_t n_ = 0, base_ = 0;  // base as in Sequence
};

}  // namespace shoal
