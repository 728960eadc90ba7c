// The sum of a vector over all workers, of which the matrices travel as factors of low rank
// (table/codecs/low_rank.h) in two rounds, and the rest whole. What the factors leave out of a
// worker's matrices is added to its next ones.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shoal/parallel/sums/vector_sum.h"
#include "shoal/table/codecs/low_rank.h"

namespace shoal::parallel {

// A matrix in the vector: its first number's place and its size.
struct MatrixPlace {
  std::size_t first = 0;
  table::LowRankShape shape{};
  std::size_t count() const { return shape.rows * shape.columns; }
};

class LowRankSum final : public VectorSum {
 public:
  // A plain sum, and the number behind that of its last row.
  struct Inner {
    std::unique_ptr<VectorSum> sum;
    table::RowId end = 0;
  };
  // Makes a plain sum of so many numbers, with rows of its own behind those of the last.
  using MakeSum = std::function<Inner(std::size_t count)>;
  // `matrices`: one at least, in rising order, of a vector of `count` numbers. Before the clock
  // `start` the vector travels whole.
  LowRankSum(const std::vector<MatrixPlace>& matrices, std::size_t count, table::Clock start,
             const MakeSum& make);

  std::span<float> numbers() override { return numbers_; }
  table::Destination destination(table::RowId row) override;
  Status expect(table::Clock clock, RowWaits& waits) override;
  void start() override;
  void progress() override;
  bool is_done() const override { return stage_ == Stage::kDone; }
  Status wait(RowWaits& waits) override;

  // The state that lasts from clock to clock: what was left out, then each Q.
  std::vector<float> state() const;
  void set_state(std::span<const float> state);

 private:
  enum class Stage { kDone, kWhole, kLeft, kRight };
  struct Matrix {
    MatrixPlace place;
    table::LowRank low_rank;
    std::size_t left = 0, right = 0;  // where P is in left_, and Q in right_
  };
  // Calls visit(first, count) for each stretch of numbers between the matrices.
  void each_rest(const std::function<void(std::size_t first, std::size_t count)>& visit) const;
  static std::span<float> of(const Matrix& matrix, std::vector<float>& vector) {
    return std::span(vector).subspan(matrix.place.first, matrix.place.count());
  }
  std::size_t rest_begins() const {  // in left_
    return matrices_.back().left + matrices_.back().low_rank.left_length();
  }
  void begin_right();
  void finish();

  const table::Clock start_;
  std::vector<Matrix> matrices_;
  std::vector<float> numbers_;   // the summand, then the sum
  std::vector<float> left_out_;  // by place in the vector
  std::vector<float> sent_;      // the summand with what was left out, while a sum is under way
  std::vector<float> own_right_;
  Inner whole_, left_, right_;
  table::Clock clock_ = 0;
  Stage stage_ = Stage::kDone;
};

}  // namespace shoal::parallel
