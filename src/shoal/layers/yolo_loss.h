// Base class of YOLO's losses.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/layers/loss.h"
#include "shoal/layers/yolo_boxes.h"

namespace shoal {

// A loss of boxes that cells of an image stand for.
//   bottom[0] (N, boxes * numbers, H, W): of each of a place's boxes x, y, w, h, of an object, and
//   one number a class
//   bottom[1] (N, T * 5) in any axes: of each box that is there its class (counted from 0), centre
//   and size as parts of the image; the first with a width of 0 ends the list
//   top[0] one number
// forward computes, on the host, a step for each number of bottom[0], and a loss over N; backward
// overwrites bottom[0].grad with the steps over N. The steps are what MobileNet-YOLO's fork, the
// source, goes by; the loss, of which they are not the slope, is there to be watched. A class that
// is none, or a centre outside the image, ends the pass.
class YoloLoss : public LossLayer {
 public:
  using LossLayer::LossLayer;
  Reads reads() const final { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const final { return {.forward = false, .backward = false}; }
  void reshape(Context& ctx, Bottoms bottoms, Tops tops) final;
  void forward(Context& ctx, Bottoms bottoms, Tops tops) final;
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate, Bottoms bottoms) final;

 protected:
  static constexpr std::int64_t kObject = 4, kFirstClass = 5;
  // One item of bottom[0].
  struct Grid {
    const float* x;
    float* step;
    std::int64_t height, width, boxes, classes;
    std::int64_t places() const { return height * width; }
    // Returns the place in x and step of number `i` of a box at a place.
    std::int64_t at(std::int64_t box, std::int64_t place, std::int64_t i) const {
      return (box * (kFirstClass + classes) + i) * places() + place;
    }
    MapCell cell(std::int64_t place) const { return {place / width, place % width, height, width}; }
    // Returns the box that a place has, of those with this bias.
    CentredBox box_at(std::int64_t box, std::int64_t place, const CentredBox& bias) const {
      const auto number = [&](std::int64_t i) { return x[at(box, place, i)]; };
      return box_in_cell(cell(place), {number(0), number(1), number(2), number(3)}, bias);
    }
  };
  struct Truth {
    CentredBox box;
    std::int64_t label = 0;
    // Returns the place of the cell that the centre lies in.
    std::int64_t place(const Grid& grid) const {
      return cell(box.y, grid.height) * grid.width + cell(box.x, grid.width);
    }
    static std::int64_t cell(float at, std::int64_t cells) {
      const auto cell = static_cast<std::int64_t>(at * static_cast<float>(cells));
      return cell < cells ? cell : cells - 1;
    }
  };
  // Throws ConfigError unless there are `pairs` pairs of biases, all above 0.
  void check_biases(const google::protobuf::RepeatedField<float>& biases, int pairs) const;

 private:
  virtual std::int64_t boxes() const = 0;
  virtual std::int64_t classes() const = 0;
  // Sets all steps of an item, which are 0 before.
  virtual void step(const Grid& grid, const std::vector<Truth>& truths) = 0;
  // Forgets what was collected for the loss: a pass begins.
  virtual void begin() {}
  // Returns the loss of this pass, not divided.
  virtual double loss_of(std::span<const float> steps) const = 0;

  std::vector<Truth> truths_of(Context& ctx, const Blob& labels, std::int64_t item) const;
  Tensor steps_;
};

}  // namespace shoal
