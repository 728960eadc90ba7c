// Base class of the layers that make boxes of what YOLO's nets compute.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/layers/yolo_boxes.h"

namespace shoal {

struct FoundObject {
  CentredBox box;
  std::int64_t label = 0;  // counted from 0
  float score = 0;
};

// Rows of boxes with their labels and scores.
//   bottom[i] (N, boxes a cell * numbers a box, H, W)
//   top[0] (1, 1, K, 7): image, label (counted from 1), score, xmin, ymin, xmax, ymax, corners as
//   parts of the image; the images in turn, of each the best first. If nothing was found K is N,
//   and a row is the image and six times -1.
// A box goes, whatever its label, if it overlaps a better one of its image by nms_threshold or
// more. If scores are equal, the first of bottoms, cells, boxes and labels is better. No bottom has
// a gradient. K follows the numbers; the host decides, on a GPU too. MobileNet-YOLO's fork, the
// source of these layers, treats a batch as one image, numbered 0.
class YoloOutput : public Layer {
 public:
  using Layer::Layer;
  Propagates propagates(int) const final { return Propagates::kRefuses; }
  Reads reads() const final { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const final { return {.forward = false}; }
  bool sizes_tops() const final { return true; }
  void reshape(Context&, Bottoms bottom, Tops top) final;
  void size_tops(Context&, Bottoms bottom, Tops top) final;
  void forward(Context&, Bottoms bottom, Tops top) final;
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) final {}

 protected:
  // The numbers of one box at one place; number i lies i * stride from the first.
  struct Cell {
    const float* first;
    std::int64_t stride;
    MapCell at;
    float operator[](std::int64_t i) const { return first[i * stride]; }
  };

  // Boxes a place, numbers a box, and how many objects a box can be.
  struct Sizes {
    std::int64_t boxes, numbers, labels;
    float nms_threshold;
  };

 private:
  virtual Sizes sizes() const = 0;
  // Adds what box `box` of bottom `bottom` found at a cell.
  virtual void find(const Cell& cell, std::size_t bottom, std::int64_t box,
                    std::vector<FoundObject>& found) const = 0;

  std::vector<FoundObject> find_all(Bottoms bottom, std::int64_t image) const;
  std::vector<float> rows_;  // of this pass
};

}  // namespace shoal
