// Low rank: sends a matrix V (n x m) as the factors of P Q^T, P (n x r) and Q (m x r), in two
// rounds among workers that sum. It is no Codec, which turns a row into one payload. In an
// iteration each of the workers does:
//   P_i = left(V_i);             the workers sum P_i;  P = orthonormalise(the sum)
//   Q_i = right(V_i, P);         the workers sum Q_i;  keep(the mean of Q_i)
//   product(P, mean of Q_i, G);  G is in place of the mean of V_i; V_i - G is added to the next V_i
// Sums need no decoding, since left and right are linear. Source: Vogels et al., "PowerSGD:
// practical low-rank gradient compression for distributed optimization", NeurIPS 2019.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shoal::table {

struct LowRankShape {
  std::size_t rows = 0, columns = 0;  // n, m of the matrix
  std::size_t rank = 1;               // r; of a matrix with fewer rows or columns, as many as those
};

// A matrix is a span with its rows one after the other; of P and Q the columns are one after the
// other. Each result is the same bits on every machine. A LowRank belongs to one thread.
class LowRank {
 public:
  // All workers draw the same first Q from the same seed. `epsilon` is added to the lengths by
  // which P is divided, so that vanishing gradients give zeros.
  LowRank(const LowRankShape& shape, std::uint64_t seed, float epsilon = 1e-8f);

  const LowRankShape& shape() const { return shape_; }
  std::size_t left_length() const { return shape_.rows * shape_.rank; }      // of P
  std::size_t right_length() const { return shape_.columns * shape_.rank; }  // of Q

  // Returns the Q of which the next left() makes use: the state to save.
  std::span<const float> kept() const { return q_; }
  // Sets it, as kept() was.
  void set_kept(std::span<const float> q);
  // Keeps Q for the next iteration (the warm start), with orthogonal columns of length 1: that
  // leaves the next P as it is, but for its length, which would be the square of the gradients'
  // otherwise. A column of zeros, which would stay zeros for ever, is drawn anew.
  void keep(std::span<const float> q);

  // P = V Q, of the Q that is kept.
  void left(std::span<const float> v, std::span<float> p) const;
  // Makes the columns of P orthogonal and of length 1, in place, by the modified method of Gram and
  // Schmidt, each column twice: what rounding leaves of a column that depends on those before it is
  // no longer orthogonal to them after one time.
  void orthonormalise(std::span<float> p) const;
  // Q = V^T P.
  void right(std::span<const float> v, std::span<const float> p, std::span<float> q) const;
  // out = P Q^T.
  void product(std::span<const float> p, std::span<const float> q, std::span<float> out) const;

 private:
  void draw(std::size_t column);

  const LowRankShape shape_;
  const std::uint64_t seed_;
  const float epsilon_;
  std::vector<float> q_;
};

}  // namespace shoal::table
