// Frames that are handed to the system together, in one gather write or as many as it takes.
#pragma once

#include <algorithm>

#include "shoal/table/wire.h"

namespace shoal::table {

class Batch {
 public:
  static constexpr std::size_t kMostPieces = 64;  // of a gather write: as many as Asio passes on

  bool empty() const { return frames_.empty(); }
  bool has_room(std::size_t limit) const {
    return unsent_ < limit && frames_.size() < kMostPieces / 2;
  }
  void add(Frame frame) {
    unsent_ += frame.bytes();
    frames_.push_back(std::move(frame));
  }
  std::size_t unsent() const { return unsent_; }  // bytes
  // Gathers the pieces not sent yet, up to `limit` bytes of them. Good until the batch changes.
  // Returns their number.
  template <class Piece>
  std::size_t pieces(std::array<Piece, kMostPieces>& out, std::size_t limit) const {
    std::size_t count = 0, skip = offset_;
    const auto add = [&](std::string_view piece) {
      const std::size_t skipped = std::min(skip, piece.size());
      skip -= skipped;
      piece = piece.substr(skipped, limit);
      limit -= piece.size();
      if (!piece.empty()) out[count++] = {piece.data(), piece.size()};
    };
    for (std::size_t i = first_; i < frames_.size() && limit > 0; ++i) {
      const std::span<const std::byte> bytes = frames_[i].payload.bytes;
      add(frames_[i].head);
      add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return count;
  }
  // Counts so many bytes as sent. Returns how many frames are whole with them; when all are, the
  // batch is empty.
  std::size_t sent(std::size_t bytes) {
    std::size_t whole = 0;
    unsent_ -= bytes;
    for (offset_ += bytes; first_ < frames_.size() && offset_ >= frames_[first_].bytes(); ++whole) {
      offset_ -= frames_[first_].bytes();
      frames_[first_++] = {};
    }
    if (first_ == frames_.size()) *this = {};
    return whole;
  }
  // Copies numbers without an owner: their memory is not touched any more.
  void own() {
    for (Frame& frame : frames_) frame.payload = owned(frame.payload);
  }

 private:
  std::vector<Frame> frames_;
  // The first frame that was not sent whole, and how many bytes of it were sent.
  std::size_t first_ = 0, offset_ = 0;
  std::size_t unsent_ = 0;
};

}  // namespace shoal::table
