// Chooses, for each layer of a net, the codecs in which its numbers travel to the servers and back.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/exchange/way.h"
#include "shoal/parallel/rates.h"
#include "shoal/table/codec_spec.h"
#include "shoal/table/codecs/low_rank.h"
#include "shoal/table/scheme.h"

namespace shoal {
struct Blob;
class Net;
class SolverParameter;
}  // namespace shoal

namespace shoal::parallel {

// The codecs of a layer's params: of pushes, and of the weights that answer them; and, where
// workers send each other factors or sums, of these: bf16, since what one worker hands on must be
// what it got, lowrank of sums, or float32.
struct LayerCodecs {
  table::CodecSpec push{}, pull{}, sum{};
  std::string push_why{}, pull_why{};  // "least time"
  bool is_float32() const { return push == table::CodecSpec() && pull == table::CodecSpec(); }
};

// Returns the codecs by layer of the net, float32 for layers without params that learn and for jobs
// of one worker. AUTO is the codec, of those in the class that the solver names, with the fewest
// seconds to encode, send and decode; another than float32 only if it takes a hundredth less, and
// if the rates are known. Throws ConfigError where the solver asks for what makes no sense; `name`,
// the prototxt's, stands in front.
std::vector<LayerCodecs> choose_codecs(const Net& net, const SolverParameter& solver,
                                       const std::string& name, const table::Scheme& scheme,
                                       std::int64_t workers, const Rates& rates);
// Returns whether AUTO is asked for somewhere.
bool needs_codec_rates(const SolverParameter& solver);

// The codecs whose speeds are measured, since AUTO chooses among them.
std::span<const table::CodecSpec> candidate_codecs();
// Throws ConfigError where a solver says a way for a layer, and a codec that cannot go it.
void check_sum_codec(const LayerCodecs& codecs, Way way, const std::string& layer,
                     const std::string& name);
// Returns the bytes of a layer's number in what workers send each other.
double sum_bytes_of(const Net& net, int layer, const LayerCodecs& codecs);
// Returns the shape in which lowrank sends a param; nothing if it travels whole, since it is no
// matrix, or factors would not be half as many numbers.
std::optional<table::LowRankShape> low_rank_shape(const Blob& param, const table::CodecSpec& spec);
// Returns the seconds that a number takes to be encoded and decoded, by candidate.
std::vector<double> measure_codecs();

// Returns the bytes of a number in the codec, in a param of so many numbers.
double bytes_a_number(const table::CodecSpec& spec, std::int64_t count);
// The bytes, at most, of a layer's params that learn, and those of what pushes leave out.
struct CodecBytes {
  std::int64_t numbers = 0;
  double push = 0, pull = 0, kept = 0;
};
CodecBytes bytes_of(const Net& net, int layer, const LayerCodecs& codecs, std::int64_t least);
// Returns the seconds that a number takes to be encoded and decoded, both ways together, as far as
// the rates tell.
double seconds_a_number(const LayerCodecs& codecs, const Rates& rates);
// Returns the least numbers of a param that a codec other than float32 is for.
std::int64_t least_coded(const SolverParameter& solver);

// Returns one line for the log, "" where all is float32; and a table with a line a layer.
std::string summary_of(const Net& net, const std::vector<LayerCodecs>& codecs,
                       const SolverParameter& solver);
std::string table_of(const Net& net, const std::vector<LayerCodecs>& codecs,
                     const SolverParameter& solver);

}  // namespace shoal::parallel
