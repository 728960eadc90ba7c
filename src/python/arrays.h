// NumPy arrays that look at the numbers of tensors.
#pragma once

#include <pybind11/numpy.h>

#include "shoal/net/net.h"
#include "shoal/tensor/tensor.h"

namespace shoal::python {

namespace py = pybind11;

// Says whose memory the numbers are in between passes.
enum class Numbers {
  kTensors,
  // A data layer binds the tensor to other memory in each pass, which it uses again. The array is
  // given memory of its own, to which the tensor is bound.
  kLayers,
};

// Returns the array of the tensor's numbers on the host, in plain order, float32, writable. It
// keeps its memory. All functions here need the interpreter's lock.
py::array array_of(Tensor& tensor, Numbers numbers);

// Takes note that arrays of the tensor may have been written to.
void take_writes(const Tensor& tensor);
// Brings the tensor's numbers to the arrays that look at it. An array that cannot follow, since the
// tensor has moved, can only be read from then on, and has the old numbers.
void show_numbers(const Tensor& tensor);
// Makes the arrays of the tensor so, since it gets another shape.
void leave_arrays(const Tensor& tensor);

// Do the same for all tensors of a net.
void take_writes(const Net& net);
void show_numbers(const Net& net);

}  // namespace shoal::python
