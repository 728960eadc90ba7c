// Implements a net's part of a source, and the saved place in it.
#include "shoal/layers/source_place.h"

#include <cmath>
#include <numeric>

#include "shoal/base/beside.h"
#include "shoal/base/bytes.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/parts.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/parts.pb.h"

namespace shoal {

namespace {

// "nets/a.prototxt:12" comes from nets/a.prototxt.
std::string file_of(const LayerParameter& layer) {
  return layer.origin().substr(0, layer.origin().rfind(':'));
}

void check_place(const LayerParameter& layer, const char* field, const std::string& path) {
  if (file_exists(part_path(path, "0"))) return;
  if (const std::string hint = beside(path, file_of(layer)); !hint.empty())
    throw config_error(Code::kData, layer, field, ": there is no ", path, hint);
}

}  // namespace

void SourcePlace::begin(const Layer& layer, const Context& ctx, const Source& source) {
  layer_ = &layer;
  source_ = source;
  if (source_.batch_size < 1 || source_.batch_size > Shape::kMaxCount)
    throw config_error(layer.param(), "batch_size is ", source_.batch_size,
                       "; it must be from 1 to ", Shape::kMaxCount);
  if (source_.path.empty()) throw config_error(layer.param(), "no source is given");
  check_place(layer.param(), "source", source_.path);
  share_ = ctx.share();
  order_ = ctx.common().fork("data of " + layer.name()).state();
  if (reads_part()) compare_parts();
}

std::string SourcePlace::part_suffix() const {
  return share_.suffix.empty() ? std::to_string(share_.client) : share_.suffix;
}

// One client reads the part of client 0 where only that exists: what is left of a set that was cut
// up for several.
std::string SourcePlace::whole_source() const {
  const std::string& source = source_.path;
  if (share_.clients > 1 && !source_.why_not_shared.empty())
    throw config_error(layer_->param(), "shared_file_system is true and ", share_.clients,
                       " clients would read ", source, "; ", source_.why_not_shared);
  const std::string part = part_path(source, "0");
  if (share_.clients > 1 || file_exists(source) || !file_exists(part)) return source;
  LOG(INFO) << "layer '" << layer_->name() << "': " << source << " does not exist; reading " << part
            << ", the part of client 0";
  return part;
}

std::string SourcePlace::own_part() const {
  const std::string part = part_path(source_.path, part_suffix());
  if (file_exists(part)) return part;
  const std::string how =
      source_.how_to_cut.empty()
          ? str("make the parts with partition_data --num_partitions=", share_.clients, " ",
                source_.path)
          : source_.how_to_cut;
  throw config_error(Code::kData, layer_->param(), part, ", the part of client ", share_.client,
                     " of ", share_.clients, ", does not exist; ", how,
                     ", or set shared_file_system: true if every client can read ", source_.path);
}

// One net of the job speaks for all.
void SourcePlace::compare_parts() const {
  if (share_.index() != 0) return;
  PartsManifest manifest;
  const Result<bool> found = read_parts_manifest(source_.path, manifest);
  if (!found.ok()) LOG(WARNING) << "layer '" << layer_->name() << "': " << found.error().message;
  if (found.ok() && found.value() && manifest.part_size() > 0) warn_of_parts(manifest);
}

void SourcePlace::warn_of_parts(const PartsManifest& manifest) const {
  if (manifest.part_size() != share_.clients)
    LOG(WARNING) << "layer '" << layer_->name() << "': " << source_.path << " was cut into "
                 << manifest.part_size() << " parts, but " << share_.clients
                 << " clients read one part each";
  const auto by_count = [](const PartsManifest::Part& a, const PartsManifest::Part& b) {
    return a.count() < b.count();
  };
  const auto [least, most] = std::ranges::minmax_element(manifest.part(), by_count);
  if (least->count() < most->count())
    LOG(INFO) << "layer '" << layer_->name() << "': the parts of " << source_.path << " hold from "
              << std::uint64_t(least->count()) << " to " << std::uint64_t(most->count())
              << " records; clients with smaller parts repeat their records more often";
}

SequenceOptions SourcePlace::sequence() const {
  Random order(order_);
  if (reads_part() && share_.client > 0) order = order.fork(str("part of client ", share_.client));
  SequenceOptions sequence{order.state().seed, order.state().stream, source_.shuffle,
                           source_.rand_skip};
  const int first = reads_part() ? share_.replica : share_.index(),
            step = reads_part() ? share_.replicas : share_.count();
  sequence.first = static_cast<std::uint64_t>(first);
  sequence.step = static_cast<std::uint64_t>(step);
  sequence.base = base_;
  const auto each = static_cast<std::size_t>(share_.replicas);  // replicas are alike
  if (by_parts())
    for (const double weight : share_.weights)
      sequence.weights.insert(sequence.weights.end(), each, weight);
  if (by_slices())
    for (const std::int64_t slice : slices())
      sequence.batches.insert(sequence.batches.end(), each, static_cast<std::uint64_t>(slice));
  return sequence;
}

std::vector<std::int64_t> SourcePlace::slices() const {
  std::vector<std::int64_t> lengths = share_.test_batches;
  for (std::int64_t& length : lengths) length *= source_.batch_size;
  return lengths.empty() && share_.in_step ? share_.batches : lengths;
}

std::uint64_t SourcePlace::used_by_all() const {
  if (by_parts())
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(n_) / own_part_of_epoch()));
  const std::vector<std::int64_t> lengths = slices();
  const std::int64_t all =
      std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) * share_.replicas;
  const std::int64_t own = lengths[static_cast<std::size_t>(share_.client)];
  if (own == 0) return base_;  // it reads nothing, and does not see what the others read
  return base_ + n_ / static_cast<std::uint64_t>(own) * static_cast<std::uint64_t>(all);
}

double SourcePlace::own_part_of_epoch() const {
  const double all = std::accumulate(share_.weights.begin(), share_.weights.end(), 0.0);
  return share_.weights[static_cast<std::size_t>(share_.client)] / all / share_.replicas;
}

std::string SourcePlace::save() const {
  std::string state;
  put_le(state, in_turn() ? n_ : used_by_all());
  put_le(state, order_.seed);
  put_le(state, order_.stream);
  if (!in_turn()) return state;
  if (share_.count() > 1 || base_ > 0) put_le(state, static_cast<std::uint64_t>(share_.count()));
  if (base_ > 0) put_le(state, base_);
  return state;
}

Result<SourcePlace::Place> SourcePlace::read(std::string_view state) const {
  if (state.size() != 24 && state.size() != 32 && state.size() != 40)
    return Error{Code::kConfig, str("layer '", layer_->name(), "': the saved state has ",
                                    state.size(), " bytes; a data layer's has 24, 32 or 40")};
  Place place{.n = get_le<std::uint64_t>(state),
              .order = {get_le<std::uint64_t>(state.substr(8)),
                        get_le<std::uint64_t>(state.substr(16)), 0}};
  if (state.size() > 24) place.nets = get_le<std::uint64_t>(state.substr(24));
  if (state.size() > 32) place.base = get_le<std::uint64_t>(state.substr(32));
  return place;
}

Result<bool> SourcePlace::load(std::string_view state) {
  const Result<Place> found = read(state);
  if (!found.ok()) return found.error();
  const Place& place = found.value();
  if (!in_turn()) return go_to(place.whole(), place.order);
  const auto nets = static_cast<std::uint64_t>(share_.count());
  if (place.nets == nets || place.base == 0)
    return go_to(place.n * place.nets / nets, place.base, place.order);
  return go_to(place.whole(), place.order);
}

Result<bool> SourcePlace::load_all(std::string_view own, const std::vector<std::string_view>& all) {
  std::uint64_t used = 0, most = 0;  // used: as many times as there are states
  Place place;
  for (const std::string_view state : all) {
    const Result<Place> found = read(state);
    if (!found.ok()) return found.error();
    place = found.value();
    used += place.whole();
    most = std::max(most, place.whole());
  }
  // In a test clients are in step, or read nothing.
  const bool tests = !share_.test_batches.empty();
  if (!reads_part()) return go_to(tests ? most : used / all.size(), place.order);
  if (own.empty()) return go_to(0, 0, place.order);
  const Result<Place> mine = read(own);
  if (!mine.ok()) return mine.error();
  return go_to(mine.value().n, 0, place.order);
}

// Goes to where all nets together have used `whole` records of a shared source.
bool SourcePlace::go_to(std::uint64_t whole, const Random::State& order) {
  if (!by_parts()) return go_to(0, whole, order);
  return go_to(
      static_cast<std::uint64_t>(std::llround(static_cast<double>(whole) * own_part_of_epoch())), 0,
      order);
}

bool SourcePlace::go_to(std::uint64_t n, std::uint64_t base, const Random::State& order) {
  const auto batch = static_cast<std::uint64_t>(source_.batch_size);
  n_ = source_.whole_batches ? (n + batch - 1) / batch * batch : n;
  if (order == order_ && base == base_) return false;
  order_ = order;
  base_ = base;
  return true;
}

}  // namespace shoal
