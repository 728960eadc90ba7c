#include "shoal/parallel/sums/low_rank_sum.h"

#include <algorithm>
#include <functional>

#include "shoal/base/log.h"
#include "shoal/base/try.h"

namespace shoal::parallel {

constexpr std::uint64_t kSeed = 20190519;  // of the first Q, which all workers draw alike

LowRankSum::LowRankSum(const std::vector<MatrixPlace>& matrices, std::size_t count,
                       table::Clock start, const MakeSum& make)
    : start_(start), numbers_(count), left_out_(count), sent_(count) {
  std::size_t left = 0, right = 0, rest = count;
  for (const MatrixPlace& place : matrices) {
    Matrix& matrix = matrices_.emplace_back(
        Matrix{place, table::LowRank(place.shape, kSeed + place.first), left, right});
    left += matrix.low_rank.left_length();
    right += matrix.low_rank.right_length();
    rest -= place.count();
  }
  whole_ = make(count);
  left_ = make(left + rest);
  right_ = make(right);
  own_right_.resize(right);
}

table::Destination LowRankSum::destination(table::RowId row) {
  for (const Inner* const inner : {&whole_, &left_, &right_})
    if (row < inner->end) return inner->sum->destination(row);
  LOG(FATAL) << "row " << row << " is of no sum";
  return std::span<float>();
}

Status LowRankSum::expect(table::Clock clock, RowWaits& waits) {
  clock_ = clock;
  if (clock < start_) return whole_.sum->expect(clock, waits);
  TRY(left_.sum->expect(clock, waits));
  return right_.sum->expect(clock, waits);
}

void LowRankSum::each_rest(
    const std::function<void(std::size_t first, std::size_t count)>& visit) const {
  std::size_t at = 0;
  for (const Matrix& matrix : matrices_) {
    if (matrix.place.first > at) visit(at, matrix.place.first - at);
    at = matrix.place.first + matrix.place.count();
  }
  visit(at, numbers_.size() - at);
}

// Sends P of each matrix with what was left out before, and behind them the rest.
void LowRankSum::start() {
  if (clock_ < start_) {
    std::ranges::copy(numbers_, whole_.sum->numbers().begin());
    stage_ = Stage::kWhole;
    whole_.sum->start();
    return progress();
  }
  const std::span<float> sent = left_.sum->numbers();
  for (const Matrix& matrix : matrices_) {
    const std::span<float> v = of(matrix, sent_);
    std::ranges::transform(of(matrix, left_out_), of(matrix, numbers_), v.begin(), std::plus());
    matrix.low_rank.left(v, sent.subspan(matrix.left, matrix.low_rank.left_length()));
  }
  std::size_t at = rest_begins();
  each_rest([&](std::size_t first, std::size_t count) {
    std::copy_n(numbers_.begin() + static_cast<std::ptrdiff_t>(first), count,
                sent.begin() + static_cast<std::ptrdiff_t>(at));
    at += count;
  });
  stage_ = Stage::kLeft;
  left_.sum->start();
  progress();
}

void LowRankSum::progress() {
  if (stage_ == Stage::kWhole) {
    whole_.sum->progress();
    if (!whole_.sum->is_done()) return;
    std::ranges::copy(whole_.sum->numbers(), numbers_.begin());
    stage_ = Stage::kDone;
  }
  if (stage_ == Stage::kLeft) {
    left_.sum->progress();
    if (left_.sum->is_done()) begin_right();
  }
  if (stage_ == Stage::kRight) {
    right_.sum->progress();
    if (right_.sum->is_done()) finish();
  }
}

void LowRankSum::begin_right() {
  const std::span<float> sums = left_.sum->numbers(), sent = right_.sum->numbers();
  for (const Matrix& matrix : matrices_) {
    const auto p = sums.subspan(matrix.left, matrix.low_rank.left_length());
    const auto q = sent.subspan(matrix.right, matrix.low_rank.right_length());
    matrix.low_rank.orthonormalise(p);
    matrix.low_rank.right(of(matrix, sent_), p, q);
  }
  std::ranges::copy(sent, own_right_.begin());
  stage_ = Stage::kRight;
  right_.sum->start();
}

// Makes the sum of P and Q, and leaves out what this worker's own part of it lacks.
void LowRankSum::finish() {
  const std::span<float> p_sums = left_.sum->numbers(), q_sums = right_.sum->numbers();
  std::vector<float> own;
  for (Matrix& matrix : matrices_) {
    const auto p = p_sums.subspan(matrix.left, matrix.low_rank.left_length());
    const auto q = q_sums.subspan(matrix.right, matrix.low_rank.right_length());
    own.resize(matrix.place.count());
    matrix.low_rank.product(p, std::span(own_right_).subspan(matrix.right, q.size()), own);
    std::ranges::transform(of(matrix, sent_), own, of(matrix, left_out_).begin(), std::minus());
    matrix.low_rank.product(p, q, of(matrix, numbers_));
    matrix.low_rank.keep(q);
  }
  std::size_t at = rest_begins();
  each_rest([&](std::size_t first, std::size_t count) {
    std::copy_n(p_sums.begin() + static_cast<std::ptrdiff_t>(at), count,
                numbers_.begin() + static_cast<std::ptrdiff_t>(first));
    at += count;
  });
  stage_ = Stage::kDone;
}

Status LowRankSum::wait(RowWaits& waits) {
  VectorSum& awaited = stage_ == Stage::kWhole  ? *whole_.sum
                       : stage_ == Stage::kLeft ? *left_.sum
                                                : *right_.sum;
  return awaited.wait(waits);
}

std::vector<float> LowRankSum::state() const {
  std::vector<float> state = left_out_;
  for (const Matrix& matrix : matrices_) {
    const std::span<const float> q = matrix.low_rank.kept();
    state.insert(state.end(), q.begin(), q.end());
  }
  return state;
}

void LowRankSum::set_state(std::span<const float> state) {
  std::size_t length = left_out_.size();
  for (const Matrix& matrix : matrices_) length += matrix.low_rank.kept().size();
  if (state.size() != length) return;  // another net's, or of other buckets
  std::ranges::copy(state.first(left_out_.size()), left_out_.begin());
  state = state.subspan(left_out_.size());
  for (Matrix& matrix : matrices_) {
    const std::size_t count = matrix.low_rank.kept().size();
    matrix.low_rank.set_kept(state.first(count));
    state = state.subspan(count);
  }
}

}  // namespace shoal::parallel
