#include "shoal/table/link/batch.h"

#include <algorithm>

namespace shoal::table {

void Batch::add(Frame frame) {
  unsent_ += frame.bytes();
  frames_.push_back(std::move(frame));
}

std::size_t Batch::pieces(Pieces& out, std::size_t limit) const {
  std::size_t count = 0, skip = offset_;
  const auto add = [&](std::string_view piece) {
    const std::size_t skipped = std::min(skip, piece.size());
    skip -= skipped;
    piece = piece.substr(skipped, limit);
    limit -= piece.size();
    if (!piece.empty()) out[count++] = piece;
  };
  for (std::size_t i = first_; i < frames_.size() && limit > 0; ++i) {
    const std::span<const std::byte> bytes = frames_[i].payload.bytes;
    add(frames_[i].head);
    add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return count;
}

std::size_t Batch::sent(std::size_t bytes) {
  std::size_t whole = 0;
  unsent_ -= bytes;
  for (offset_ += bytes; first_ < frames_.size() && offset_ >= frames_[first_].bytes(); ++whole) {
    offset_ -= frames_[first_].bytes();
    frames_[first_++] = {};
  }
  if (first_ == frames_.size()) *this = {};
  return whole;
}

void Batch::own() {
  for (Frame& frame : frames_) frame.payload = owned(frame.payload);
}

}  // namespace shoal::table
