#include "shoal/tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/tensor/context.h"

namespace shoal {
namespace {

constexpr const char* kConverted = "a tensor is converted";

}  // namespace

// A device that has failed says so to the next that uses it.
Storage::~Storage() {
  try {
    finish_copies();
  } catch (const DeviceError&) {
  }
}

void Storage::bind(std::shared_ptr<Memory> memory, std::size_t offset, const LayoutPtr& layout,
                   std::optional<std::size_t> room) {
  const std::size_t bytes = room.value_or(required_);
  CHECK(memory && offset + bytes <= memory->bytes())
      << bytes << " bytes at " << offset << " of the plan";
  finish_copies();
  const Home home{memory->device(), layout};
  const bool on_host = home.is_host();
  Copy &bound = on_host ? host_ : away_, &other = on_host ? away_ : host_;
  bound = {std::move(memory), offset, bytes, true, on_host};
  if (!on_host) spare_ = {};
  if (other.planned) other = {};  // by an earlier plan, whose memory is others' now
  if (spare_.planned) spare_ = {};
  other.current = false;
  if (!on_host) home_ = home;
}

void Storage::bind_copies(std::shared_ptr<Memory> host, std::size_t host_offset,
                          std::shared_ptr<Memory> home, std::size_t home_offset) {
  CHECK(host_offset + required_ <= host->bytes() && home_offset + required_ <= home->bytes())
      << required_ << " bytes at " << host_offset << " and " << home_offset;
  finish_copies();
  home_ = {home->device(), nullptr};
  host_ = {std::move(host), host_offset, required_, true, true};
  away_ = {std::move(home), home_offset, required_, true, true};
  spare_ = {};
  ++version_;
}

void Storage::unbind() {
  finish_copies();
  if (host_.planned) host_ = {};
  if (away_.planned) away_ = {};
  if (spare_.planned) spare_ = {};
}

std::byte* Storage::bytes_of(Copy& copy, std::size_t bytes, const Device& device) const {
  if (!copy.memory || bytes > copy.room) {
    CHECK(!copy.planned) << "a planned tensor grew to " << bytes << " bytes without a new plan";
    copy.memory = device.allocate(bytes);
    copy.offset = 0;
    copy.room = bytes;
  }
  return copy.memory->data() + copy.offset;
}

void Storage::finish_copies() {
  const auto is_under_way = [this](const auto& copy) { return copy && *copy == stream_->waits(); };
  if (is_under_way(uploading_) || is_under_way(downloading_)) stream_->synchronize();
  if (downloading_ && downloads_newest_) host_.current = true;
  uploading_.reset();
  downloading_.reset();
}

void Storage::begin_download() {
  if (host_.current || !away_.current || home_.device == nullptr) return;
  if (downloading_ && downloads_newest_) return;
  const std::byte* const from = home_.layout ? convert_at_home(nullptr, home_shape_) : home_bytes();
  if (from == nullptr) return;
  if (required_ > host_.room) {
    finish_copies();
    CHECK(!host_.planned) << "memory of a plan stays";
    // A GPU's copy to other memory would have to be waited for.
    host_ = {home_.device->allocate_on_host(required_), 0, required_, false, false};
  }
  stream_->not_recording(kConverted);
  ++stream_->conversions.downloads;
  stream_->download(host_.memory->data() + host_.offset, from, required_);
  downloading_ = stream_->waits();
  downloads_newest_ = true;
}

void Storage::pin(const Device& device) {
  CHECK(!host_.planned) << "memory of a plan stays";
  finish_copies();
  std::shared_ptr<Memory> memory = device.allocate_on_host(required_);
  if (host_.memory)
    std::memcpy(memory->data(), host_.memory->data() + host_.offset,
                std::min(required_, host_.room));
  else
    std::memset(memory->data(), 0, required_);
  host_ = {std::move(memory), 0, required_, false, host_.current};
}

void Storage::fetch_from_home() {
  finish_copies();
  if (host_.current) return;
  std::byte* const to = bytes_of(host_, required_, cpu_device());
  if (away_.current && stream_) stream_->not_recording(kConverted);
  host_.current = true;
  if (!away_.current) return;
  const bool elsewhere = home_.device != nullptr;
  std::vector<std::byte> packed;
  const std::byte* from = away_.memory->data() + away_.offset;
  if (elsewhere) {
    ++stream_->conversions.downloads;
    if (home_.layout) packed.resize(home_.layout->bytes(home_shape_));
    stream_->download(home_.layout ? packed.data() : to, from,
                      home_.layout ? packed.size() : required_);
    stream_->synchronize();
    from = packed.data();
  }
  if (!home_.layout) return;
  ++stream_->conversions.reorders;
  home_.layout->unpack(home_shape_, from, reinterpret_cast<float*>(to));
}

// Makes of the copy at home, which is current, one in another layout without leaving the device: in
// spare_. Null, and nothing is done: a layout cannot do that.
std::byte* Storage::convert_at_home(const LayoutPtr& layout, const Shape& shape) {
  if (home_.device == nullptr) return nullptr;
  stream_->not_recording(kConverted);
  const Layout* const own = layout ? layout.get() : home_.layout.get();
  std::byte* const to = bytes_of(spare_, layout ? layout->bytes(shape) : required_, *home_.device);
  if (!own->convert_on(*stream_, layout ? shape : home_shape_, home_.layout.get(), home_bytes(),
                       layout.get(), to))
    return nullptr;
  ++stream_->conversions.reorders;
  spare_layout_ = layout;
  return to;
}

// Does what convert_at_home does; the result takes the copy's place.
bool Storage::reorder_at_home(const LayoutPtr& layout, const Shape& shape) {
  if (convert_at_home(layout, shape) == nullptr) return false;
  std::swap(away_, spare_);
  away_.current = true;
  spare_layout_ = std::exchange(home_.layout, layout);
  home_shape_ = shape;
  return true;
}

void Storage::send_home(const Shape& shape) {
  const std::size_t bytes = home_.layout ? home_.layout->bytes(shape) : required_;
  const bool first = away_.memory == nullptr;
  std::byte* const to = bytes_of(away_, bytes, home_.device ? *home_.device : cpu_device());
  if (host_.current && stream_) stream_->not_recording(kConverted);
  away_.current = true;
  home_shape_ = shape;
  if (!host_.current) return;  // new: nothing to keep
  const std::byte* from = bytes_of(host_, required_, cpu_device());
  // Numbers that come once are not worth memory for a copy in plain order.
  if (home_.device && home_.layout && !first) {
    std::byte* const plain = bytes_of(spare_, required_, *home_.device);
    spare_layout_ = nullptr;
    stream_->upload(plain, from, required_);
    if (home_.layout->convert_on(*stream_, shape, nullptr, plain, home_.layout.get(), to)) {
      ++stream_->conversions.uploads;
      ++stream_->conversions.reorders;
      uploading_ = stream_->waits();
      return;
    }
    stream_->synchronize();
  }
  std::vector<std::byte> packed;
  if (home_.layout) {
    ++stream_->conversions.reorders;
    packed.resize(home_.device ? bytes : 0);
    std::byte* const ordered = home_.device ? packed.data() : to;
    home_.layout->pack(shape, reinterpret_cast<const float*>(from), ordered);
    from = packed.data();
  }
  if (home_.device == nullptr) return;
  ++stream_->conversions.uploads;
  stream_->upload(to, from, bytes);
  if (home_.layout)
    stream_->synchronize();
  else
    uploading_ = stream_->waits();
}

std::byte* Storage::host(Access access) {
  if (!host_.current && access != Access::kWrite) fetch_from_home();
  if (access != Access::kRead) finish_copies();
  std::byte* const bytes = bytes_of(host_, required_, cpu_device());
  if (access == Access::kRead) return bytes;
  ++version_;
  host_.current = true;
  away_.current = false;
  return bytes;
}

std::byte* Storage::at(const Home& home, const Shape& shape, const std::shared_ptr<Stream>& stream,
                       Access access) {
  if (home.is_host()) return host(access);
  if (stream_ && stream_ != stream) {
    stream_->synchronize();
    finish_copies();
  }
  stream_ = stream;
  const bool keep = access != Access::kWrite && away_.current && home.device == home_.device;
  if (keep && !same_layout(home.layout, home_.layout)) reorder_at_home(home.layout, shape);
  const bool reshaped =
      home.layout && away_.current && shape != home_shape_ && home.layout->depends_on_shape();
  if (!(home == home_) || reshaped) {
    if (access != Access::kWrite && !host_.current) fetch_from_home();
    // Each layout stays in its copy, so that every pass finds the same memory.
    if (spare_.memory && home.device == home_.device && same_layout(home.layout, spare_layout_)) {
      std::swap(away_, spare_);
      spare_layout_ = home_.layout;
    }
    const bool has_room =
        !away_.planned || (home.layout ? home.layout->bytes(shape) : required_) <= away_.room;
    if (home.device != home_.device) spare_ = {};
    if (home.device != home_.device || !has_room) away_ = {};
    away_.current = false;
    home_ = home;
  }
  if (!away_.current && access != Access::kWrite) send_home(shape);
  const std::size_t bytes = home_.layout ? home_.layout->bytes(shape) : required_;
  std::byte* const there = bytes_of(away_, bytes, home_.device ? *home_.device : cpu_device());
  if (access == Access::kRead) return there;
  ++version_;
  away_.current = true;
  host_.current = downloads_newest_ = false;
  home_shape_ = shape;
  return there;
}

Tensor::Tensor() : storage_(std::make_shared<Storage>()) {}
Tensor::Tensor(const Shape& shape) : Tensor() { reshape(shape); }
Tensor::Tensor(const Shape& shape, std::shared_ptr<Memory> memory, std::size_t offset)
    : Tensor(shape) {
  storage_->bind(std::move(memory), offset);
}

void Tensor::reshape(const Shape& shape) {
  shape_ = shape;
  storage_->require(bytes());
}

void Tensor::share(const Tensor& other) {
  storage_ = other.storage_;
  storage_->require(bytes());
}

std::span<const float> Tensor::host() const {
  return {reinterpret_cast<const float*>(storage_->host(Storage::Access::kRead)),
          static_cast<std::size_t>(count())};
}
std::span<float> Tensor::host_mut() {
  return {reinterpret_cast<float*>(storage_->host(Storage::Access::kMut)),
          static_cast<std::size_t>(count())};
}
std::span<float> Tensor::host_out() {
  return {reinterpret_cast<float*>(storage_->host(Storage::Access::kWrite)),
          static_cast<std::size_t>(count())};
}

std::byte* Tensor::use(Context& ctx, const LayoutPtr& layout, Storage::Access access) const {
  const Home home{ctx.device().is_host() ? nullptr : &ctx.device(), layout};
  if (ctx.uses() == nullptr) return storage_->at(home, shape_, ctx.stream(), access);
  const LayoutPtr before = storage_->layout();
  const Conversions conversions = ctx.stream()->conversions;
  std::byte* const bytes = storage_->at(home, shape_, ctx.stream(), access);
  const bool converted = !(ctx.stream()->conversions == conversions);
  ctx.uses()->push_back({storage_, home, shape_, access, before, bytes, converted});
  return bytes;
}
const std::byte* Tensor::read(Context& ctx, const LayoutPtr& layout) const {
  return use(ctx, layout, Storage::Access::kRead);
}
std::byte* Tensor::mut(Context& ctx, const LayoutPtr& layout) {
  return use(ctx, layout, Storage::Access::kMut);
}
std::byte* Tensor::write(Context& ctx, const LayoutPtr& layout) {
  return use(ctx, layout, Storage::Access::kWrite);
}

}  // namespace shoal
