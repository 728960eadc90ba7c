// Softmax regression on all records of a source in order, in double precision: what a net of one
// inner product is to learn, by the book.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "shoal/proto/blob.pb.h"
#include "support/data_files.h"
#include "support/job.h"

namespace shoal::test {

class Regression {
 public:
  static constexpr std::size_t kClasses = 4, kPixels = 36;

  // Pixels are multiplied by `scale`.
  Regression(const std::string& path, std::size_t batch, double scale) : batch_(batch) {
    for (const auto& [key, value] : or_throw(read_all(*or_throw(open_source("DATUMFILE", path))))) {
      Datum datum;
      EXPECT_TRUE(datum.ParseFromString(value));
      labels_.push_back(static_cast<std::size_t>(datum.label()));
      for (const char pixel : datum.data())
        pixels_.push_back(scale * static_cast<unsigned char>(pixel));
    }
  }

  // Returns the params after so many iterations from `start`, in a net's order. Gradients are those
  // of the params so many iterations before.
  Weights train(const Weights& start, std::size_t iterations, double rate, double momentum,
                double decay, std::size_t staleness = 0) const {
    std::vector<std::vector<double>> all{{start.begin(), start.end()}};
    std::vector<double> h(start.size());
    for (std::size_t t = 0; t < iterations; ++t) {
      std::vector<double> g(h.size()), w = all.back();
      for (std::size_t b = 0; b < batch_; ++b)
        add_gradient((t * batch_ + b) % labels_.size(), all[t - std::min(t, staleness)], g);
      for (std::size_t i = 0; i < w.size(); ++i)
        w[i] -= h[i] = momentum * h[i] + rate * (g[i] / static_cast<double>(batch_) + decay * w[i]);
      all.push_back(std::move(w));
    }
    return {all.back().begin(), all.back().end()};
  }

 private:
  void add_gradient(std::size_t record, const std::vector<double>& w,
                    std::vector<double>& g) const {
    const double* x = &pixels_[record * kPixels];
    double p[kClasses], total = 0;
    for (std::size_t c = 0; c < kClasses; ++c)
      total += p[c] =
          std::exp(std::inner_product(x, x + kPixels, &w[c * kPixels], w[kClasses * kPixels + c]));
    for (std::size_t c = 0; c < kClasses; ++c) {
      const double d = p[c] / total - (c == labels_[record] ? 1 : 0);
      for (std::size_t i = 0; i < kPixels; ++i) g[c * kPixels + i] += d * x[i];
      g[kClasses * kPixels + c] += d;
    }
  }

  const std::size_t batch_;
  std::vector<double> pixels_;
  std::vector<std::size_t> labels_;
};

}  // namespace shoal::test
