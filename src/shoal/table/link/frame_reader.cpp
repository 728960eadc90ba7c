#include "shoal/table/link/frame_reader.h"

#include <algorithm>

#include "shoal/base/bytes.h"
#include "shoal/base/try.h"

namespace shoal::table {
namespace {

constexpr std::size_t kStrangersBuffer = 8 * 1024, kBuffer = 64 * 1024;
// Bytes read beyond a row: the next header, but few bytes that are then copied to their place.
constexpr std::size_t kBehindNumbers = 4 * 1024;
// Short enough that the checksum finds the bytes in a cache.
constexpr std::size_t kLongestRead = 256 * 1024;

}  // namespace

FrameReader::Room FrameReader::room() {
  const std::size_t size = std::max(stage_ == Stage::kPeer ? kBuffer : kStrangersBuffer,
                                    part_ == Part::kFields ? header_.field_bytes() : 0);
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == 0 && buffer_.size() > size) buffer_ = std::vector<char>();  // after long fields
  if (begin_ > 0 && buffer_.size() - end_ < size / 2) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < size) buffer_.resize(size);
  const std::span<char> free =
      std::span(buffer_).subspan(end_, std::min(buffer_.size() - end_, size));
  if (direct_.empty()) return {{}, free};
  if (direct_.size() > kLongestRead) return {direct_.first(kLongestRead), {}};
  return {direct_, free.first(std::min(free.size(), kBehindNumbers))};
}

Status FrameReader::took(std::size_t bytes) {
  const std::size_t placed = std::min(bytes, direct_.size());
  crc_ = crc32c({direct_.data(), placed}, crc_);
  direct_ = direct_.subspan(placed);
  left_ -= placed;
  end_ += bytes - placed;
  for (;;) {
    const Result<bool> more = part_ == Part::kHeader   ? read_header()
                              : part_ == Part::kFields ? read_fields()
                                                       : read_numbers();
    TRY(more);
    if (!more.value()) return {};
  }
}

Result<bool> FrameReader::read_header() {
  const std::string_view bytes = waiting();
  if (bytes.size() >= 4) TRY(check_magic(bytes));
  if (bytes.size() < kHeaderSize) return false;
  const Result<Header> header = decode_header(bytes, stage_);
  TRY(header);
  header_ = header.value();
  crc_ = crc_of_header(bytes);
  begin_ += kHeaderSize;
  part_ = Part::kFields;
  return true;
}

std::string_view FrameReader::use(std::size_t most) {
  const std::string_view used = waiting().substr(0, most);
  crc_ = crc32c(used, crc_);
  begin_ += used.size();
  return used;
}

Result<bool> FrameReader::read_fields() {
  const std::size_t size = header_.lent ? header_.length : header_.field_bytes();
  if (waiting().size() < size) return false;
  const std::string_view bytes = use(size);
  // Fields without numbers behind them are not read before their checksum was; those with numbers
  // say where they go.
  left_ = header_.length - size;
  if (left_ == 0) TRY(check_crc(header_, crc_));
  Result<Message> message = decode_fields(header_, bytes.substr(0, header_.field_bytes()));
  TRY(message);
  message_ = std::move(message).value();
  part_ = Part::kNumbers;
  if (header_.lent) return read_lent(bytes.substr(header_.field_bytes()));
  if (left_ == 0) return true;
  const std::span<std::byte> place = place_of(header_.payload_bytes());
  if (place.empty()) return true;
  // Takes the bytes that are in the buffer already; the rest is read straight to its place.
  const std::string_view here = use(place.size());
  direct_ = {reinterpret_cast<char*>(place.data()), place.size()};
  std::copy(here.begin(), here.end(), direct_.begin());
  direct_ = direct_.subspan(here.size());
  left_ -= here.size();
  return true;
}

std::span<std::byte> FrameReader::place_of(std::size_t bytes) {
  const std::span<std::byte> place = this->place(message_, bytes);
  if (place.size() < bytes) return {};
  Payload& payload = *payload_of(message_);
  if (payload.bytes.empty()) payload.bytes = place.first(bytes);
  return place.first(bytes);
}

Result<bool> FrameReader::read_lent(std::string_view where) {
  const Result<std::span<const std::byte>> lent = borrow(decode_lent(where));
  TRY(lent);
  const std::span<const std::byte> bytes = lent.value();
  Payload* const payload = payload_of(message_);
  if (keeps(message_)) {
    payload->bytes = bytes;
    payload->owner = kept();
    return true;
  }
  if (const std::span<std::byte> place = place_of(bytes.size()); !place.empty())
    std::memcpy(place.data(), bytes.data(), bytes.size());
  return true;
}

Result<bool> FrameReader::read_numbers() {
  if (direct_.empty()) left_ -= use(left_).size();  // they are not wanted
  if (left_ > 0) return false;
  if (header_.payload_bytes() > 0) TRY(check_crc(header_, crc_));
  part_ = Part::kHeader;
  TRY(frame(std::move(message_)));
  return true;
}

}  // namespace shoal::table
