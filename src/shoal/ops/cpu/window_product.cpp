#include "shoal/ops/cpu/window_product.h"

#include <array>

#include "shoal/ops/cpu/columns.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/relu.h"

namespace shoal::ops::cpu {

WindowProduct::WindowProduct(WindowTables windows, std::int64_t planes, std::int64_t columns,
                             std::int64_t groups)
    : windows_(std::move(windows)), planes_(planes), groups_(groups), panels_{columns} {
  for (const Phase& phase : windows_.phases) {
    std::vector<std::int32_t>& offsets = offsets_.emplace_back();
    for (std::int64_t plane = 0; plane < planes; ++plane)
      for (const std::int32_t at : phase.offset)
        offsets.push_back(static_cast<std::int32_t>(plane * windows_.border.plane() + at));
    terms_ += static_cast<std::int64_t>(offsets.size());
    made_ += static_cast<std::int64_t>(phase.places.size());
  }
}

void WindowProduct::pack(int threads, const Weights& w, float* packed) const {
  parallel_for(
      threads, groups_ * panels_.count(), 1, [&](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t group = i / panels_.count(), panel = i % panels_.count(),
                             width = panels_.width(panel);
          const float* from = w.data + group * w.group_stride + panel * kPanel * w.column_stride;
          float* phase_begin = packed + group * terms_ * panels_.total();
          for (std::size_t p = 0; p < windows_.phases.size(); ++p) {
            float* to = phase_begin + panel * kPanel * terms(p);
            for (std::int64_t plane = 0; plane < planes_; ++plane)
              for (const std::int32_t tap : windows_.phases[p].taps)
                for (std::int64_t column = 0; column < width; ++column)
                  *to++ = column < panels_.valid(panel)
                              ? from[plane * w.plane_stride + column * w.column_stride + tap]
                              : 0.0f;
            phase_begin += panels_.total() * terms(p);
          }
        }
      });
}

void WindowProduct::run(std::int64_t images, const float* in, std::int64_t in_stride,
                        const float* packed, const float* bias, std::optional<float> relu,
                        std::int64_t first, std::int64_t step, float* out, std::int64_t out_stride,
                        float* sums) const {
  for (std::size_t p = 0; p < windows_.phases.size(); ++p) {
    const Phase& phase = windows_.phases[p];
    const std::int64_t places = static_cast<std::int64_t>(phase.places.size());
    for (std::int64_t begin = 0; begin < images * places; begin += kChunk) {
      const std::int64_t rows = std::min(kChunk, images * places - begin);
      std::array<const float*, kChunk + kRows> base;
      for (std::int64_t row = 0; row < round_up(rows, kRows); ++row) {
        const std::int64_t at = begin + std::min(row, rows - 1);
        base[row] = in + at / places * in_stride + phase.base[at % places];
      }
      for (std::int64_t panel = first; panel < panels_.count(); panel += step) {
        sum_panel(p, panel, rows, base.data(), packed + panel * kPanel * terms(p), bias, sums);
        if (relu) relu_in_place(*relu, sums, rows * panels_.width(panel));
        put(phase, begin, rows, panel, sums, out, out_stride);
      }
    }
    packed += panels_.total() * terms(p);
  }
}

void WindowProduct::sum_panel(std::size_t phase, std::int64_t panel, std::int64_t rows,
                              const float* const* base, const float* b, const float* bias,
                              float* sums) const {
  const std::int64_t width = panels_.width(panel);
  float start[kPanel] = {};
  if (bias != nullptr) std::copy_n(bias + panel * kPanel, panels_.valid(panel), start);
  for (std::int64_t row = 0; row < round_up(rows, kRows); ++row)
    std::copy(start, start + width, sums + row * width);
  for (std::int64_t t = 0; t < terms(phase); t += kDepth)
    for (std::int64_t row = 0; row < rows; row += kRows)
      add_tile(width, std::min(kDepth, terms(phase) - t), base + row, offsets_[phase].data() + t,
               b + t * width, sums + row * width);
}

void WindowProduct::put(const Phase& phase, std::int64_t begin, std::int64_t rows,
                        std::int64_t panel, const float* sums, float* out,
                        std::int64_t out_stride) const {
  const std::int64_t places = static_cast<std::int64_t>(phase.places.size()),
                     width = panels_.width(panel);
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t place = (begin + done) % places,
                       count = std::min(rows - done, places - place);
    float* to = out + (begin + done) / places * out_stride + panel * kPanel * made_;
    const float* from = sums + done * width;
    if (phase.contiguous)
      transpose(count, panels_.valid(panel), from, width, to + place, made_, Into::kOverwrite);
    else
      for (std::int64_t column = 0; column < panels_.valid(panel); ++column)
        for (std::int64_t i = 0; i < count; ++i)
          to[column * made_ + phase.places[place + i]] = from[i * width + column];
    done += count;
  }
}

}  // namespace shoal::ops::cpu
