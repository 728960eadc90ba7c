// One step of a long short-term memory, for all sequences of a batch.
#pragma once

#include "shoal/tensor/context.h"

namespace shoal::ops {

// N sequences of D units. For each unit, of the four numbers of `gates` (N, 4, D) and of its
// sequence's number of `cont` (N), which is 0 where a sequence begins and else 1:
//   i, f, o = sigmoid of the first three, g = tanh of the fourth
//   c = cont f c_before + i g,   h = o tanh(c)
// Overwrites c and h. All other tensors are (N, D); counts must agree (CHECK). Source: Hochreiter
// and Schmidhuber 1997 with the gates of Caffe's LSTMUnit.
void lstm_step(Context& ctx, const Tensor& cont, const Tensor& gates, const Tensor& c_before,
               Tensor& c, Tensor& h);
// Overwrites the gradients of gates and of c_before from those of h and c; dc null: c's is 0, as
// after the last step. dc_before may be dc.
void lstm_step_backward(Context& ctx, const Tensor& cont, const Tensor& gates,
                        const Tensor& c_before, const Tensor& c, const Tensor* dc, const Tensor& dh,
                        Tensor& dgates, Tensor& dc_before);

}  // namespace shoal::ops
