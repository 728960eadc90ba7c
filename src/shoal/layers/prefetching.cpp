// Implements what layers of records and pictures share: batches made ahead, parts, and saved
// positions.
#include "shoal/layers/prefetching.h"

#include <algorithm>

#include "shoal/base/beside.h"
#include "shoal/base/log.h"
#include "shoal/ops/images.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

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

// Only pictures with boxes are changed by these fields.
void PrefetchingLayer::refuse_changes() const {
  const TransformationParameter transform = transformation();
  const std::pair<bool, const char*> changes[] = {
      {transform.resize_param_size() > 0, "resize_param"},
      {transform.has_noise_param(), "noise_param"},
      {transform.has_distort_param(), "distort_param"},
      {transform.has_expand_param(), "expand_param"},
      {transform.has_emit_constraint(), "emit_constraint"}};
  for (const auto& [given, field] : changes)
    if (given)
      throw config_error(param(), "transform_param has ", field,
                         ", which an AnnotatedData layer alone follows; leave it out");
}

void PrefetchingLayer::open_items() {
  if (!changes_pictures()) refuse_changes();
  Result<Transform> transform = Transform::create(transformation(), training(), sizes());
  if (!transform.ok())
    throw config_error(transform.error().code, param(), transform.error().message,
                       beside(transformation().mean_file(),
                              param().origin().substr(0, param().origin().rfind(':'))));
  scale_ = transform.value().scale();
  mean_ = transform.value().mean();
  items_ = open(place_.path(), place_.sequence(), std::move(transform).value());
}

void PrefetchingLayer::setup(Context& ctx, Bottoms, Tops tops) {
  feed_ = feed();
  if (feed_.depth < 1 || feed_.depth > kMostAhead)
    throw config_error(param(), "prefetch is ", feed_.depth, "; it must be from 1 to ", kMostAhead);
  place_.begin(*this, ctx, feed_);
  open_items();
  const Result<ItemKind> kind = probe(*items_, place_.n(), feed_.on_bad);
  if (!kind.ok()) throw config_error(kind.error().code, param(), kind.error().message);
  choose_form(ctx, kind.value());
  if (feed_.threads == 0) feed_.threads = default_decode_threads(kind.value().picture);
  reshape(tops, kind.value().size, nullptr);
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

void PrefetchingLayer::reshape(Tops tops, const ImageSize& size, const Batch* batch) const {
  try {
    tops[0]->reshape(Shape{feed_.batch_size, size.channels, size.height, size.width});
    for (std::size_t i = 1; i < tops.size(); ++i)
      tops[i]->reshape(makes_tops() ? top_shape(i, size, batch) : Shape{feed_.batch_size});
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
  options.start = place_.n();
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
  std::vector<Shape> before;
  for (const Blob* top : tops) before.push_back(top->shape());
  try {
    reshape(tops, taken_.batch->size(), taken_.batch);
  } catch (const ConfigError& error) {
    ctx.fail(error.error());
  }
  return !std::ranges::equal(before, tops, {}, {}, &Blob::shape);
}

void PrefetchingLayer::forward(Context& ctx, Bottoms, Tops tops) {
  CHECK(taken_.batch != nullptr) << "layer '" << name() << "' was run without follow_input";
  place_.use_until(taken_.batch->end);
  taken_.block ? transform(ctx, tops) : show_numbers(tops);
  if (makes_tops()) {
    for (std::size_t i = 1; i < tops.size(); ++i)
      put_top(i, *taken_.batch, tops[i]->data.host_out());
    return;
  }
  if (tops.size() > 1 && training() && !feed_.shuffle && labels_seen_ < kLabelsChecked)
    look_for_order(*taken_.batch);
}

void PrefetchingLayer::show_numbers(Tops tops) {
  show(taken_.batch->numbers(), tops[0]->data);
  if (tops.size() > 1 && !makes_tops()) show(taken_.batch->labels(), tops[1]->data);
}

void PrefetchingLayer::transform(Context& ctx, Tops tops) {
  const ByteImages images = taken_.batch->images();
  tops[0]->data.storage()->unbind();  // from a batch of numbers before
  ops::transform_images(ctx, images, taken_.block, mean_, scale_, tops[0]->data);
  if (tops.size() > 1 && !makes_tops())
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

Status PrefetchingLayer::load_state(std::string_view state) { return go_on(place_.load(state)); }

Status PrefetchingLayer::load_states(std::string_view own,
                                     const std::vector<std::string_view>& all) {
  return go_on(place_.load_all(own, all));
}

// Reads on from the place that was loaded.
Status PrefetchingLayer::go_on(const Result<bool>& in_another_order) {
  if (!in_another_order.ok()) return in_another_order.error();
  waited_before_ = seconds_waited();
  batches_.reset();
  taken_ = {};
  if (!in_another_order.value()) return {};
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
