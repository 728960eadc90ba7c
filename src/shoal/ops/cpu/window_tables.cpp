#include "shoal/ops/cpu/window_tables.h"

#include <algorithm>
#include <numeric>

namespace shoal::ops::cpu {
namespace {

// One axis of one phase: some places and some taps, each with where it stands on the bordered axis;
// a place sees a tap at their sum.
struct Line {
  struct Item {
    std::int64_t index, at;
  };
  std::vector<Item> places, taps;
};

// All combinations of one item an axis, the last axis fastest: index in row-major order of `sizes`,
// place in the border's strides.
void combine(const std::vector<const std::vector<Line::Item>*>& axes,
             const std::vector<std::int64_t>& sizes, const Border& border,
             std::vector<std::int32_t>& index, std::vector<std::int32_t>& at) {
  index = {0};
  at = {0};
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::vector<std::int32_t> next_index, next_at;
    for (std::size_t i = 0; i < index.size(); ++i)
      for (const Line::Item& item : *axes[a]) {
        next_index.push_back(static_cast<std::int32_t>(index[i] * sizes[a] + item.index));
        next_at.push_back(static_cast<std::int32_t>(at[i] + item.at * border.stride(a)));
      }
    index = std::move(next_index);
    at = std::move(next_at);
  }
}

// Combines lines[axis][phase of the axis]; places and taps number `made` and `kernel` on each axis.
std::vector<Phase> combine_phases(const std::vector<std::vector<Line>>& lines,
                                  const std::vector<std::int64_t>& made,
                                  const std::vector<std::int64_t>& kernel, const Border& border) {
  std::vector<Phase> phases;
  std::vector<std::size_t> which(lines.size(), 0);
  for (;;) {
    std::vector<const std::vector<Line::Item>*> places, taps;
    for (std::size_t a = 0; a < lines.size(); ++a) {
      places.push_back(&lines[a][which[a]].places);
      taps.push_back(&lines[a][which[a]].taps);
    }
    Phase phase;
    combine(places, made, border, phase.places, phase.base);
    combine(taps, kernel, border, phase.taps, phase.offset);
    phase.contiguous = !phase.places.empty() &&
                       phase.places.back() + 1 == static_cast<std::int32_t>(phase.places.size());
    if (!phase.places.empty()) phases.push_back(std::move(phase));
    std::size_t a = lines.size();
    while (a > 0 && ++which[a - 1] == lines[a - 1].size()) which[--a] = 0;
    if (a == 0) return phases;
  }
}

}  // namespace

Border::Border(std::vector<Axis> axes) : axes_(std::move(axes)), strides_(axes_.size()) {
  for (std::size_t a = axes_.size(); a-- > 0;) {
    strides_[a] = plane_;
    plane_ *= axes_[a].before + axes_[a].in + axes_[a].after;
    needed_ = needed_ || axes_[a].before > 0 || axes_[a].after > 0;
  }
}

void Border::copy(const float* in, std::int64_t planes, float* out) const {
  std::fill(out, out + planes * plane_, 0.0f);
  const Axis& last = axes_.back();
  std::int64_t rows = 1;
  for (std::size_t a = 0; a + 1 < axes_.size(); ++a) rows *= axes_[a].in;
  for (std::int64_t p = 0; p < planes; ++p)
    for (std::int64_t row = 0; row < rows; ++row, in += last.in) {
      std::int64_t to = p * plane_ + last.before, rest = row;
      for (std::size_t a = axes_.size() - 1; a-- > 0; rest /= axes_[a].in)
        to += (rest % axes_[a].in + axes_[a].before) * strides_[a];
      std::copy(in, in + last.in, out + to);
    }
}

WindowTables forward_windows(const ConvDesc& desc) {
  std::vector<Border::Axis> borders;
  std::vector<std::vector<Line>> lines;
  std::vector<std::int64_t> made, kernel;
  for (const WindowAxis& axis : desc.axes) {
    const std::int64_t last =
        (axis.out - 1) * axis.stride - axis.pad + (axis.kernel - 1) * axis.dilation;
    borders.push_back({axis.in, axis.pad, std::max<std::int64_t>(0, last - axis.in + 1)});
    Line line;
    for (std::int64_t o = 0; o < axis.out; ++o) line.places.push_back({o, o * axis.stride});
    for (std::int64_t t = 0; t < axis.kernel; ++t) line.taps.push_back({t, t * axis.dilation});
    lines.push_back({std::move(line)});
    made.push_back(axis.out), kernel.push_back(axis.kernel);
  }
  WindowTables windows{Border(std::move(borders)), {}};
  windows.phases = combine_phases(lines, made, kernel, windows.border);
  return windows;
}

// Input i sees output (i + pad - t dilation) / stride where that divides. Of phase r = (i + pad) %
// stride are the taps with t dilation % stride = r; place (i + pad - r) / stride and tap (r - t
// dilation) / stride add up to the output.
WindowTables backward_windows(const ConvDesc& desc) {
  std::vector<Border::Axis> borders;
  std::vector<std::vector<Line>> lines;
  std::vector<std::int64_t> made, kernel;
  for (const WindowAxis& axis : desc.axes) {
    std::vector<Line> phases(static_cast<std::size_t>(axis.stride));
    for (std::int64_t i = 0; i < axis.in; ++i) {
      const std::int64_t r = (i + axis.pad) % axis.stride;
      phases[static_cast<std::size_t>(r)].places.push_back({i, (i + axis.pad - r) / axis.stride});
    }
    for (std::int64_t t = 0; t < axis.kernel; ++t) {
      const std::int64_t r = t * axis.dilation % axis.stride;
      phases[static_cast<std::size_t>(r)].taps.push_back(
          {t, (r - t * axis.dilation) / axis.stride});
    }
    std::int64_t first = 0, last = axis.out - 1;
    for (const Line& line : phases)
      for (const Line::Item& tap : line.taps)
        if (!line.places.empty()) {
          first = std::min(first, line.places.front().at + tap.at);
          last = std::max(last, line.places.back().at + tap.at);
        }
    for (Line& line : phases) {
      // Taps count from here: no offset is negative.
      const std::int64_t lowest = line.taps.empty() ? 0 : line.taps.back().at;
      for (Line::Item& place : line.places) place.at += lowest - first;
      for (Line::Item& tap : line.taps) tap.at -= lowest;
    }
    borders.push_back({axis.out, -first, last - (axis.out - 1)});
    lines.push_back(std::move(phases));
    made.push_back(axis.in), kernel.push_back(axis.kernel);
  }
  WindowTables windows{Border(std::move(borders)), {}};
  windows.phases = combine_phases(lines, made, kernel, windows.border);
  return windows;
}

}  // namespace shoal::ops::cpu
