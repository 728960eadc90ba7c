// Scales the loss: gradients are larger while a net computes them, so that they do not vanish in a
// type of 16 bits.
#pragma once

#include <memory>

#include "shoal/solver/updater.h"

namespace shoal {

class Context;
class SolverParameter;

// Returns whether a solver that computes with this context scales its loss: in FLOAT16 on a device.
bool scales_loss(const SolverParameter& param, const Context& context);
// Returns whether it then skips steps. It may learn that only when all layers have their gradients.
bool skips_steps(const SolverParameter& param, const Context& context);

// Wraps `inner`, which updates `net` and sees its gradients unscaled. The scale begins with
// global_grad_scale. Unless global_grad_scale_adaptive is false, a gradient that is not finite
// halves the scale, down to 1, and the step is skipped; 1000 steps without one double it. A
// snapshot holds the scale. Source: Micikevicius et al., Mixed Precision Training, ICLR 2018.
std::unique_ptr<Updater> make_loss_scaling(const SolverParameter& param, Net& net,
                                           std::unique_ptr<Updater> inner);

}  // namespace shoal
