// The base of layers that go through sequences step by step: LSTM and RNN.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/gemm.h"

namespace shoal {

// T steps of N sequences side by side, with D = num_output units each.
//   bottom[0] x (T, N, A...)   bottom[1] cont (T, N): 0 where a sequence begins, 1 where it goes on
//   bottom[2] (N, B...), optional: the same in every step
//   top[0] (T, N, D)
// Step t's input is (N, K): W_x x[t] + b, + W_static bottom[2], + W_h (cont[t] h[t - 1]), and goes
// to a cell, which makes the states (N, D) of t, h first, and the output. The states of the last
// step are those before the first of the next batch, zeros at first; a snapshot holds them. With
// expose_hidden they come instead from the last bottoms (1, N, D), and go to the last tops; no
// gradient goes through these, nor from one batch to the one before.
//   params: W_x (K, A), b (K), W_static (K, B) if there is bottom[2], W_h (K, D), the cell's
// Source: Caffe's RecurrentLayer, whose unrolled net computes the same.
class Recurrent : public Layer {
 public:
  Arity arity() const override;
  Propagates propagates(int bottom) const override;
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }
  std::vector<ops::Choice> choices() const override { return from_x_.choices(); }
  std::int64_t multiply_adds() const override;

  void setup(Context& ctx, Bottoms bottoms, Tops) override;
  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override;
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override;
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override;

  std::span<Tensor> carried() override { return final_; }
  std::string save_state() const override;
  // Starts from zeros if the state is of another number of sequences.
  Status load_state(std::string_view state) override;

 protected:
  // The numbers of a step that backward reads.
  struct Step {
    Tensor cont;                 // (1, N)
    Tensor h_before;             // (1, N, D), times cont
    Tensor in;                   // (1, N, K)
    std::vector<Tensor> states;  // each (1, N, D)
    Tensor out;                  // (1, N, D); unused where the output is a state
  };

  // K = `gates` D; `states` go from step to step.
  Recurrent(const LayerParameter& param, int gates, int states);
  std::int64_t units() const { return units_; }
  std::int64_t sequences() const { return sequences_; }
  // Is called by setup.
  virtual void add_cell_params(Context&) {}
  // Makes the step's states of its input and of those before. Returns the output.
  virtual Tensor& forward_cell(Context& ctx, Step& step, const std::vector<Tensor>& before) = 0;
  // Overwrites the gradient of the input from that of the output, and of h by the next step (null:
  // there is none). Steps come from the last to the first. May change out_grad.
  virtual void backward_cell(Context& ctx, const Step& step, const std::vector<Tensor>& before,
                             Tensor& out_grad, const Tensor* h_grad, Tensor& in_grad) = 0;
  // Products of one step of the cell.
  virtual std::int64_t cell_multiply_adds() const { return 0; }
  // Returns a param's gradient; null if it does not learn.
  Tensor* gradient(int param) const;
  int cell_params() const { return has_static_ ? 4 : 3; }  // the index of the first

 private:
  bool exposes() const;
  std::size_t first_exposed() const { return has_static_ ? 3 : 2; }  // of the bottoms
  const std::vector<Tensor>& before(std::int64_t step) const;        // the states

  const int gates_, states_;
  std::int64_t units_ = 0, steps_count_ = 0, sequences_ = 0, static_inputs_ = 0;
  bool has_static_ = false;
  SelectedKernel<ops::DenseDesc, ops::DenseKernel> from_x_;
  std::deque<Step> steps_;
  std::vector<Tensor> initial_, final_;  // states before the first step and after the last
  Tensor in_, in_grad_;                  // (T, N, K)
  Tensor from_static_, static_grad_;     // (1, N, K)
  Tensor step_in_grad_;                  // (1, N, K)
  Tensor out_grad_, h_grad_;             // (1, N, D)
};

}  // namespace shoal
