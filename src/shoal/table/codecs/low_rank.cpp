#include "shoal/table/codecs/low_rank.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/base/numbers.h"
#include "shoal/base/random.h"

namespace shoal::table {
namespace {

// Sums lanes of float32, in one order on every machine.
float dot(const float* a, const float* b, std::size_t n) {
  float lanes[kLanes] = {}, sum = 0;
  const auto term = [&](std::int64_t i) { return a[i] * b[i]; };
  const auto end = static_cast<std::int64_t>(n);
  for (std::int64_t i = add_in_lanes(lanes, 0, end, term); i < end; ++i) lanes[0] += term(i);
  for (const float lane : lanes) sum += lane;
  return sum;
}

// In double, where no square of a float32 is 0 or infinite.
double dot_in_double(const float* a, const float* b, std::size_t n) {
  return sum_in_lanes(0, static_cast<std::int64_t>(n), [&](std::int64_t i) {
    return static_cast<double>(a[i]) * static_cast<double>(b[i]);
  });
}

void add_scaled(float scale, const float* from, float* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

// Does as LowRank::orthonormalise does, with columns of n numbers.
void make_orthonormal(std::span<float> columns, std::size_t n, double epsilon) {
  for (float* own = columns.data(); own != columns.data() + columns.size(); own += n) {
    const auto project = [&] {
      for (const float* other = columns.data(); other != own; other += n)
        add_scaled(static_cast<float>(-dot_in_double(own, other, n)), other, own, n);
      return std::sqrt(dot_in_double(own, own, n));
    };
    const auto scale = [&](double factor) {
      for (std::size_t i = 0; i < n; ++i)
        own[i] = static_cast<float>(factor * static_cast<double>(own[i]));
    };
    const double length = project();
    if (length == 0) continue;
    scale(1 / (length + epsilon));
    const double wanted = length / (length + epsilon), left = project();
    // A column that loses nearly all of its length now has no direction of its own.
    scale(left > 1e-3 * wanted ? wanted / left : 0);
  }
}

LowRankShape limited(LowRankShape shape) {
  shape.rank = std::min({shape.rank, shape.rows, shape.columns});
  return shape;
}

}  // namespace

LowRank::LowRank(const LowRankShape& shape, std::uint64_t seed, float epsilon)
    : shape_(limited(shape)), seed_(seed), epsilon_(epsilon), q_(right_length()) {
  for (std::size_t column = 0; column < shape_.rank; ++column) draw(column);
}

void LowRank::draw(std::size_t column) {
  Random random = Random(seed_, column).fork("low rank");
  for (std::size_t i = 0; i < shape_.columns; ++i)
    q_[column * shape_.columns + i] = random.gaussian(0, 1);
}

void LowRank::set_kept(std::span<const float> q) {
  CHECK(q.size() == q_.size()) << q.size() << " numbers of Q, which has " << q_.size();
  std::ranges::copy(q, q_.begin());
}

void LowRank::keep(std::span<const float> q) {
  set_kept(q);
  make_orthonormal(q_, shape_.columns, 0);
  for (std::size_t column = 0; column < shape_.rank; ++column) {
    const auto numbers = std::span(q_).subspan(column * shape_.columns, shape_.columns);
    if (std::ranges::all_of(numbers, [](float number) { return number == 0; })) draw(column);
  }
}

void LowRank::left(std::span<const float> v, std::span<float> p) const {
  const std::size_t n = shape_.rows, m = shape_.columns;
  CHECK(v.size() == n * m && p.size() == left_length())
      << v.size() << " numbers of V and " << p.size() << " of P; the matrix is " << n << " x " << m
      << ", the rank " << shape_.rank;
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t column = 0; column < shape_.rank; ++column)
      p[column * n + row] = dot(&v[row * m], &q_[column * m], m);
}

void LowRank::orthonormalise(std::span<float> p) const {
  CHECK(p.size() == left_length()) << p.size() << " numbers of P, which has " << left_length();
  make_orthonormal(p, shape_.rows, static_cast<double>(epsilon_));
}

void LowRank::right(std::span<const float> v, std::span<const float> p, std::span<float> q) const {
  const std::size_t n = shape_.rows, m = shape_.columns;
  CHECK(v.size() == n * m && p.size() == left_length() && q.size() == right_length())
      << v.size() << ", " << p.size() << " and " << q.size()
      << " numbers of V, P and Q; the matrix is " << n << " x " << m << ", the rank "
      << shape_.rank;
  std::ranges::fill(q, 0.0f);
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t column = 0; column < shape_.rank; ++column)
      add_scaled(p[column * n + row], &v[row * m], &q[column * m], m);
}

void LowRank::product(std::span<const float> p, std::span<const float> q,
                      std::span<float> out) const {
  const std::size_t n = shape_.rows, m = shape_.columns;
  CHECK(out.size() == n * m && p.size() == left_length() && q.size() == right_length())
      << out.size() << ", " << p.size() << " and " << q.size()
      << " numbers of the product, P and Q; the matrix is " << n << " x " << m << ", the rank "
      << shape_.rank;
  std::ranges::fill(out, 0.0f);
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t column = 0; column < shape_.rank; ++column)
      add_scaled(p[column * n + row], &q[column * m], &out[row * m], m);
}

}  // namespace shoal::table
