// Implements what Data, ImageData and WindowData share: batches made ahead, parts, and saved
// positions.
#include "shoal/layers/prefetching.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/base/bytes.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/parts.h"
#include "shoal/ops/images.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/parts.pb.h"

namespace shoal {
namespace {

constexpr std::uint64_t kLabelsChecked = 1000;
constexpr std::int64_t kMostAhead = 1024;

// Makes the tensor, and all that share its bytes, look at `memory`.
void show(const std::shared_ptr<Memory>& memory, Tensor& tensor) {
  tensor.storage()->bind(memory, 0);
  tensor.host_out();
}

}  // namespace

TransformationParameter PrefetchingLayer::transformation() const {
  return param().transform_param();
}

OnBadRecord PrefetchingLayer::on_bad(int policy) const {
  if (policy == DataParameter::SKIP) return OnBadRecord::kSkip;
  return policy == DataParameter::REPLACE ? OnBadRecord::kReplace : OnBadRecord::kStop;
}

std::string PrefetchingLayer::part_suffix() const {
  return share_.suffix.empty() ? std::to_string(share_.client) : share_.suffix;
}

// With one client that is the part of client 0 where only that exists: what is left of a set that
// was cut up for several.
std::string PrefetchingLayer::whole_source() const {
  const std::string& source = feed_.source;
  if (share_.clients > 1 && !feed_.why_not_shared.empty())
    throw config_error(param(), "shared_file_system is true and ", share_.clients,
                       " clients would read ", source, "; ", feed_.why_not_shared);
  const std::string part = part_path(source, "0");
  if (share_.clients > 1 || file_exists(source) || !file_exists(part)) return source;
  LOG(INFO) << "layer '" << name() << "': " << source << " does not exist; reading " << part
            << ", the part of client 0";
  return part;
}

std::string PrefetchingLayer::own_part() const {
  const std::string part = part_path(feed_.source, part_suffix());
  if (file_exists(part)) return part;
  throw config_error(
      Code::kData, param(), part, ", the part of client ", share_.client, " of ", share_.clients,
      ", does not exist; make the parts with partition_data --num_partitions=", share_.clients, " ",
      feed_.source, ", or set shared_file_system: true if every client can read ", feed_.source);
}

// One net of the job speaks for all.
void PrefetchingLayer::compare_parts() const {
  if (share_.index() != 0) return;
  PartsManifest manifest;
  const Result<bool> found = read_parts_manifest(feed_.source, manifest);
  if (!found.ok()) LOG(WARNING) << "layer '" << name() << "': " << found.error().message;
  if (found.ok() && found.value() && manifest.part_size() > 0) warn_of_parts(manifest);
}

void PrefetchingLayer::warn_of_parts(const PartsManifest& manifest) const {
  if (manifest.part_size() != share_.clients)
    LOG(WARNING) << "layer '" << name() << "': " << feed_.source << " was cut into "
                 << manifest.part_size() << " parts, and " << share_.clients
                 << " clients read one each";
  const auto by_count = [](const PartsManifest::Part& a, const PartsManifest::Part& b) {
    return a.count() < b.count();
  };
  const auto [least, most] = std::ranges::minmax_element(manifest.part(), by_count);
  if (least->count() < most->count())
    LOG(INFO) << "layer '" << name() << "': the parts of " << feed_.source << " hold from "
              << std::uint64_t(least->count()) << " to " << std::uint64_t(most->count())
              << " records; a client at the end of a smaller one starts it again, and sees its "
                 "records more often";
}

SequenceOptions PrefetchingLayer::sequence() const {
  Random order(order_);
  if (reads_part() && share_.client > 0) order = order.fork(str("part of client ", share_.client));
  SequenceOptions sequence{order.state().seed, order.state().stream, feed_.shuffle,
                           feed_.rand_skip};
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

std::vector<std::int64_t> PrefetchingLayer::slices() const {
  std::vector<std::int64_t> lengths = share_.test_batches;
  for (std::int64_t& length : lengths) length *= feed_.batch_size;
  return lengths.empty() && share_.in_step ? share_.batches : lengths;
}

std::uint64_t PrefetchingLayer::used_by_all() const {
  if (by_parts())
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(n_) / own_part_of_epoch()));
  const std::vector<std::int64_t> lengths = slices();
  const std::int64_t all =
      std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) * share_.replicas;
  const std::int64_t own = lengths[static_cast<std::size_t>(share_.client)];
  return base_ + n_ / static_cast<std::uint64_t>(own) * static_cast<std::uint64_t>(all);
}

double PrefetchingLayer::own_part_of_epoch() const {
  const double all = std::accumulate(share_.weights.begin(), share_.weights.end(), 0.0);
  return share_.weights[static_cast<std::size_t>(share_.client)] / all / share_.replicas;
}

void PrefetchingLayer::open_items() {
  Result<Transform> transform = Transform::create(transformation(), training());
  if (!transform.ok())
    throw config_error(transform.error().code, param(), transform.error().message);
  scale_ = transform.value().scale();
  mean_ = transform.value().mean();
  items_ =
      open(reads_part() ? own_part() : whole_source(), sequence(), std::move(transform).value());
}

void PrefetchingLayer::setup(Context& ctx, Bottoms, Tops tops) {
  feed_ = feed();
  if (feed_.batch_size < 1 || feed_.batch_size > Shape::kMaxCount)
    throw config_error(param(), "batch_size is ", feed_.batch_size, "; it must be from 1 to ",
                       Shape::kMaxCount);
  if (feed_.depth < 1 || feed_.depth > kMostAhead)
    throw config_error(param(), "prefetch is ", feed_.depth, "; it must be from 1 to ", kMostAhead);
  if (feed_.source.empty()) throw config_error(param(), "no source is given");
  share_ = ctx.share();
  order_ = ctx.common().fork("data of " + name()).state();
  if (reads_part()) compare_parts();
  open_items();
  const Result<ItemKind> kind = probe(*items_, n_, feed_.on_bad);
  if (!kind.ok()) throw config_error(kind.error().code, param(), kind.error().message);
  choose_form(ctx, kind.value());
  if (feed_.threads == 0) feed_.threads = default_decode_threads(kind.value().picture);
  reshape_data(*tops[0], kind.value().size);
  if (tops.size() > 1) tops[1]->reshape(Shape{feed_.batch_size});
}

// The first record speaks for all: a batch with a record that is no bytes goes as numbers.
void PrefetchingLayer::choose_form(const Context& ctx, const ItemKind& kind) {
  ops::Why why;
  if (ctx.device().is_host())
    why = "its memory is the host's, where the threads that decode a record transform it at once";
  else if (!feed_.why_numbers.empty())
    why = feed_.why_numbers;
  else if (!kind.bytes)
    why = "the first record holds floats, not bytes";
  form_ = why.empty() ? PixelForm::kBytes : PixelForm::kNumbers;
  transform_ = {"transform", why.empty() ? "device" : "host", {}, {}};
  if (!why.empty()) transform_.refused.push_back({"device", why});
}

void PrefetchingLayer::reshape_data(Blob& top, const ImageSize& size) const {
  try {
    top.reshape(Shape{feed_.batch_size, size.channels, size.height, size.width});
  } catch (const ConfigError& error) {
    throw config_error(param(), error.what());
  }
}

void PrefetchingLayer::start(const Device& device, std::size_t least_bytes) {
  PrefetchOptions options;
  options.device = &device;
  options.batch_size = static_cast<int>(feed_.batch_size);
  options.depth = static_cast<int>(feed_.depth);
  options.threads = feed_.threads;
  options.on_bad = feed_.on_bad;
  options.form = form_;
  options.start = n_;
  options.least_bytes = least_bytes;
  batches_ = std::make_unique<BatchCopies>(*items_, options);
}

bool PrefetchingLayer::follow_input(Context& ctx, Tops tops) {
  if (!batches_) start(ctx.device(), tops[0]->data.storage()->required());
  // A device may still be reading the batch that goes back now.
  for (Blob* top : tops) top->data.storage()->finish_copies();
  Result<BatchCopies::Taken> taken = batches_->next(*ctx.stream());
  taken_ = taken.ok() ? taken.value() : BatchCopies::Taken();
  if (!taken.ok()) {
    ctx.fail(taken.error());
    return false;
  }
  const Shape before = tops[0]->shape();
  try {
    reshape_data(*tops[0], taken_.batch->size());
  } catch (const ConfigError& error) {
    ctx.fail(error.error());
  }
  return tops[0]->shape() != before;
}

void PrefetchingLayer::forward(Context& ctx, Bottoms, Tops tops) {
  CHECK(taken_.batch != nullptr) << "layer '" << name() << "' was run without follow_input";
  n_ = taken_.batch->end;
  taken_.block ? transform(ctx, tops) : show_numbers(tops);
  if (tops.size() > 1 && training() && !feed_.shuffle && labels_seen_ < kLabelsChecked)
    look_for_order(*taken_.batch);
}

void PrefetchingLayer::show_numbers(Tops tops) {
  show(taken_.batch->numbers(), tops[0]->data);
  if (tops.size() > 1) show(taken_.batch->labels(), tops[1]->data);
}

void PrefetchingLayer::transform(Context& ctx, Tops tops) {
  const ByteImages images = taken_.batch->images();
  tops[0]->data.storage()->unbind();  // from a batch of numbers before
  ops::transform_images(ctx, images, taken_.block, mean_, scale_, tops[0]->data);
  if (tops.size() > 1)
    tops[1]->data.storage()->bind_copies(taken_.batch->block(), images.labels_at(), taken_.block,
                                         images.labels_at());
}

// Sets that were written class by class train badly, and the loss does not say why.
void PrefetchingLayer::look_for_order(const Batch& batch) {
  for (const Sample& sample : batch.samples) {
    const float label = sample.label;
    if (labels_seen_++ == 0) first_label_ = last_label_ = label;
    rising_ = rising_ && label >= last_label_;
    last_label_ = label;
  }
  if (labels_seen_ >= kLabelsChecked && rising_ && first_label_ != last_label_)
    LOG(WARNING)
        << "layer '" << name() << "': the first " << labels_seen_ << " labels of " << items_->path()
        << " are sorted; training wants them mixed: convert with shuffling, or set shuffle: true";
}

std::string PrefetchingLayer::save_state() const {
  std::string state;
  put_le(state, in_turn() ? n_ : used_by_all());
  put_le(state, order_.seed);
  put_le(state, order_.stream);
  if (!in_turn()) return state;
  if (share_.count() > 1 || base_ > 0) put_le(state, static_cast<std::uint64_t>(share_.count()));
  if (base_ > 0) put_le(state, base_);
  return state;
}

Result<PrefetchingLayer::Place> PrefetchingLayer::read_place(std::string_view state) const {
  if (state.size() != 24 && state.size() != 32 && state.size() != 40)
    return Error{Code::kConfig, str("layer '", name(), "': the saved state has ", state.size(),
                                    " bytes; a data layer's has 24, 32 or 40")};
  Place place{.n = get_le<std::uint64_t>(state),
              .order = {get_le<std::uint64_t>(state.substr(8)),
                        get_le<std::uint64_t>(state.substr(16)), 0}};
  if (state.size() > 24) place.nets = get_le<std::uint64_t>(state.substr(24));
  if (state.size() > 32) place.base = get_le<std::uint64_t>(state.substr(32));
  return place;
}

Status PrefetchingLayer::load_state(std::string_view state) {
  const Result<Place> read = read_place(state);
  if (!read.ok()) return read.error();
  const Place& place = read.value();
  if (!in_turn()) return go_to(place.whole(), place.order);
  const auto nets = static_cast<std::uint64_t>(share_.count());
  if (place.nets == nets || place.base == 0)
    return go_to(place.n * place.nets / nets, place.base, place.order);
  return go_to(place.whole(), place.order);
}

Status PrefetchingLayer::load_states(std::string_view own,
                                     const std::vector<std::string_view>& all) {
  std::uint64_t used = 0;  // as many times as there are states
  Place place;
  for (const std::string_view state : all) {
    const Result<Place> read = read_place(state);
    if (!read.ok()) return read.error();
    place = read.value();
    used += place.whole();
  }
  if (!reads_part()) return go_to(used / all.size(), place.order);
  if (own.empty()) return go_to(0, 0, place.order);
  const Result<Place> mine = read_place(own);
  return mine.ok() ? go_to(mine.value().n, 0, place.order) : Status(mine.error());
}

// Where all nets together have used `whole` records of a shared source.
Status PrefetchingLayer::go_to(std::uint64_t whole, const Random::State& order) {
  if (!by_parts()) return go_to(0, whole, order);
  return go_to(
      static_cast<std::uint64_t>(std::llround(static_cast<double>(whole) * own_part_of_epoch())), 0,
      order);
}

Status PrefetchingLayer::go_to(std::uint64_t n, std::uint64_t base, const Random::State& order) {
  waited_before_ = seconds_waited();
  batches_.reset();
  taken_ = {};
  const auto batch = static_cast<std::uint64_t>(feed_.batch_size);
  n_ = feed_.whole_batches ? (n + batch - 1) / batch * batch : n;
  if (order == order_ && base == base_) return {};
  order_ = order;
  base_ = base;
  try {
    open_items();
  } catch (const ConfigError& error) {
    return error.error();
  }
  return {};
}

std::string PrefetchingLayer::record_name(std::int64_t item) const {
  const Batch* const batch = taken_.batch;
  if (!batch || item < 0 || item >= static_cast<std::int64_t>(batch->samples.size())) return {};
  return str(batch->samples[static_cast<std::size_t>(item)].name, " of ", items_->path());
}

}  // namespace shoal
