#include "common/scheme_flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <string>

#include "common/job.h"
#include "shoal/compat/flag_names.h"

DEFINE_string(scheme, "",
              "when workers wait for each other: bsp, ssp, async, and those of "
              "docs/choosing-a-scheme.md; default: the solver's, or bsp");
DEFINE_string(staleness, "",
              "how many clocks a worker may be ahead of the slowest, or unbounded; alone it means "
              "--scheme=ssp");
DEFINE_string(table_staleness, "", "the same as --staleness");
DEFINE_string(consistency_model, "",
              "Poseidon's name of a scheme: SSP, SSPPush and SSPAggr are ssp");
DEFINE_string(kv_store, "",
              "MXNet-G's name of a scheme: dist_sync, dist_async, dist_ssync, dist_gsync");
DEFINE_bool(sync, false, "SpeeDO's: --scheme=local_steps, or with --gradientOnly bsp");
DEFINE_bool(gradientOnly, false, "SpeeDO's: --payload=gradient");

// The fields of a scheme by name (those of weighting as in a scheme's words), and what they are.
#define SCHEME_FIELDS(FLAG)                                                                    \
  FLAG(payload, "gradient, delta or weights: what workers send")                               \
  FLAG(local_steps, "steps of a worker's own solver in a clock")                               \
  FLAG(factor, "what one worker's update is divided by; 0: the number of workers")             \
  FLAG(momentum_policy, "keep, reset or average a worker's own momentum when it exchanged")    \
  FLAG(moving_rate, "elastic averaging's alpha")                                               \
  FLAG(exchange_order, "elastic: after the steps, or before the first")                        \
  FLAG(aggregation, "uniform, samples or steps: how workers count in a mean of deltas")        \
  FLAG(global_rate, "the rate of a mean of deltas")                                            \
  FLAG(global_momentum, "the momentum of the moves by means of deltas")                        \
  FLAG(global_nesterov, "true: that momentum looks ahead")                                     \
  FLAG(backup, "sync_backup: late gradients done without")                                     \
  FLAG(max_version_lag, "weed_out: updates that a contribution may have missed")               \
  FLAG(weedout, "weed_out: completions by others that a task may see")                         \
  FLAG(merge_every, "weedout: of what is always late, every so many-th counts; 0: none")       \
  FLAG(max_advance, "drift_barrier: the drift at which all meet")                              \
  FLAG(groups, "grouped: workers by number, \"0,2|1,3\"")                                      \
  FLAG(groups_file, "grouped: a file with a group a line")                                     \
  FLAG(group_by, "grouped: given, or speed: found from measured speeds")                       \
  FLAG(profile_iterations, "grouped by speed: iterations in which speeds are measured")        \
  FLAG(min_group_size, "grouped by speed: workers in a group, at least")                       \
  FLAG(regroup_interval,                                                                       \
       "grouped by speed: iterations until speeds are looked at again; 0: never")              \
  FLAG(weighting, "none, inverse, polynomial, exponential or cutoff: weight of stale updates") \
  FLAG(weighting_definition, "counter or version: what staleness is")                          \
  FLAG(weighting_a, "its parameter")                                                           \
  FLAG(weighting_floor, "the least staleness that counts")                                     \
  FLAG(weighting_cap, "the greatest; 0: none")                                                 \
  FLAG(weighting_on, "gradient or rate: what is weighed")                                      \
  FLAG(share_iterations, "true: workers share their iterations, and who is fast does more")    \
  FLAG(compensation, "lambda of delay compensation")                                           \
  FLAG(epsilon, "esync: seconds")                                                              \
  FLAG(min_steps, "esync: least steps of a worker in a round")                                 \
  FLAG(max_steps, "esync: most steps of a worker in a round")                                  \
  FLAG(mode, "esync: steps are assigned at the start of a round, or pull: asked for one by one")

#define FLAG(name, what) DEFINE_string(name, "", what);
SCHEME_FIELDS(FLAG)
#undef FLAG
#define ALIAS(name, flag, what) DEFINE_string(name, "", what);
SHOAL_SCHEME_ALIASES(ALIAS)
#undef ALIAS

namespace shoal {
namespace {

// "moving_rate"; "weighting.a" of "weighting_a", "weighting.function" of "weighting".
std::string field_of(const std::string& flag) {
  const std::string weighting = "weighting";
  if (!flag.starts_with(weighting)) return flag;
  return weighting + "." + (flag == weighting ? "function" : flag.substr(weighting.size() + 1));
}

}  // namespace

std::string scheme_field_of(const std::string& flag) {
#define FLAG(name, what) \
  if (flag == #name) return field_of(#name);
  SCHEME_FIELDS(FLAG)
#undef FLAG
#define ALIAS(name, flag_name, what) \
  if (flag == #name) return field_of(#flag_name);
  SHOAL_SCHEME_ALIASES(ALIAS)
#undef ALIAS
  return "";
}

parallel::SchemeFlags scheme_flags() {
  parallel::SchemeFlags flags;
  flags.scheme = FLAGS_scheme;
  flags.consistency_model = FLAGS_consistency_model;
  flags.kv_store = FLAGS_kv_store;
  flags.staleness = one_of("staleness", FLAGS_staleness, "table_staleness", FLAGS_table_staleness);
  flags.sync = FLAGS_sync;
  flags.gradient_only = FLAGS_gradientOnly;
  const auto add = [&](const parallel::SchemeFlag& flag) {
    if (flag.value.empty()) return;
    const auto other = std::ranges::find(flags.fields, flag.field, &parallel::SchemeFlag::field);
    if (other == flags.fields.end())
      flags.fields.push_back(flag);
    else
      one_of(other->name.c_str(), other->value, flag.name.c_str(), flag.value);
  };
#define FLAG(name, what) add({#name, field_of(#name), FLAGS_##name});
  SCHEME_FIELDS(FLAG)
#define ALIAS(name, flag, what) add({#name, field_of(#flag), FLAGS_##name});
  SHOAL_SCHEME_ALIASES(ALIAS)
  return flags;
}

}  // namespace shoal
