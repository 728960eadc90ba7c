#include "shoal/solver/idle_fields.h"

#include <algorithm>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/ops/backend.h"

namespace shoal {
namespace {

// Returns the field without which the rate of this policy stays the same for ever; "" if it is
// given.
std::string missing_for_a_change(const SolverParameter& param) {
  const std::string& policy = param.lr_policy();
  if (policy == "multistep" && param.stepvalue_size() == 0) return "stepvalue";
  if (policy == "plateau" && param.plateau_winsize_size() == 0) return "plateau_winsize";
  if ((policy == "inv" || policy == "sigmoid") && !param.has_gamma()) return "gamma";
  if ((policy == "inv" || policy == "poly") && !param.has_power()) return "power";
  return "";
}

}  // namespace

void warn_of_idleness(const SolverParameter& param, const std::string& name) {
  const auto warn = [&](const std::string& what) { LOG(WARNING) << name << ": " << what; };
  const std::string& policy = param.lr_policy();
  const bool falls = policy == "step" || policy == "exp" ||
                     (policy == "multistep" && param.stepvalue_size() > 0) ||
                     (policy == "plateau" && param.plateau_winsize_size() > 0);
  if (!param.has_max_iter()) warn("max_iter is not given: nothing is trained");
  if (!param.has_base_lr()) warn("base_lr is not given: the rate is 0, and nothing is learned");
  if (falls && !param.has_gamma()) warn("gamma is not given: the rate is 0 from its first fall on");
  if (const std::string missing = missing_for_a_change(param); !missing.empty())
    warn(str(missing, " is not given: with lr_policy \"", policy, "\" the rate never changes"));
  if (param.test_interval() > 0 &&
      param.test_iter_size() + param.test_net_size() + param.test_net_param_size() == 0)
    warn("test_interval is given, but test_iter is not: there are no tests");
  if (!param.layer_wise_reduce())
    warn("layer_wise_reduce: false has no effect: gradients leave during the backward pass");
}

void warn_of_no_loss(const Net& net, const std::string& name) {
  for (int layer = 0; layer < static_cast<int>(net.layers().size()); ++layer)
    for (const Blob* top : net.tops(layer))
      if (net.loss_weight(*top) != 0) return;
  LOG(WARNING) << name << ": net '" << net.name()
               << "' has no loss in phase TRAIN: nothing is learned. A loss layer, such as "
                  "SoftmaxWithLoss, or a loss_weight makes one";
}

void warn_of_gpu_fields(const SolverParameter& param, const std::string& name) {
  std::vector<std::string> given;
  const auto note = [&](bool is_given, const char* field) {
    if (is_given) given.push_back(field);
  };
  note(param.precision() != SolverParameter::FLOAT32 &&
           !(param.precision() == SolverParameter::BFLOAT16 && ops::cpu_has_short_images()),
       "precision");
  note(param.has_global_grad_scale(), "global_grad_scale");
  note(param.has_device_list(), "device_list");
  note(param.device_id() > 0, "device_id");
  note(param.has_cuda_graphs(), "cuda_graphs");
  if (!given.empty())
    LOG(WARNING) << name << ": " << join(given)
                 << " has no effect on the CPU; solver_mode: GPU or --gpu=0 trains on a GPU";
}

}  // namespace shoal
