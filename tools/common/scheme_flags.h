// The flags of a tool that say the scheme of a job, for the one file of it that includes this:
// every field of SchemeParameter, under its own name and under those that SpeeDO, MXNet-G and ESync
// have for it. docs/consistency.md explains them.
#pragma once

#include <gflags/gflags.h>

#include <algorithm>
#include <string>

#include "common/job.h"
#include "shoal/parallel/merge_scheme.h"

DEFINE_string(scheme, "",
              "when workers wait for each other: bsp, ssp, async, and those of "
              "docs/consistency.md; default: the solver's, or bsp");
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

// name, field, what it is
#define SCHEME_FIELDS(FLAG)                                                                   \
  FLAG(payload, "payload", "gradient, delta or weights: what workers send")                   \
  FLAG(local_steps, "local_steps", "steps of a worker's own solver in a clock")               \
  FLAG(train, "local_steps", "SpeeDO's --local_steps")                                        \
  FLAG(factor, "factor", "what one worker's update is divided by; 0: the number of workers")  \
  FLAG(momentum_policy, "momentum_policy",                                                    \
       "keep, reset or average a worker's own momentum when it exchanged")                    \
  FLAG(moving_rate, "moving_rate", "elastic averaging's alpha")                               \
  FLAG(movingRate, "moving_rate", "SpeeDO's --moving_rate")                                   \
  FLAG(exchange_order, "exchange_order", "elastic: after the steps, or before the first")     \
  FLAG(aggregation, "aggregation",                                                            \
       "uniform, samples or steps: how workers count in a mean of deltas")                    \
  FLAG(global_rate, "global_rate", "the rate of a mean of deltas")                            \
  FLAG(gl, "global_rate", "ESync's --global_rate")                                            \
  FLAG(global_momentum, "global_momentum", "the momentum of the moves by means of deltas")    \
  FLAG(global_nesterov, "global_nesterov", "true: that momentum looks ahead")                 \
  FLAG(backup, "backup", "sync_backup: late gradients done without")                          \
  FLAG(max_version_lag, "max_version_lag",                                                    \
       "weed_out: updates that a contribution may have missed")                               \
  FLAG(weedout, "weedout", "weed_out: completions by others that a task may see")             \
  FLAG(drop, "weedout", "SpeeDO's other name of --weedout")                                   \
  FLAG(merge_every, "merge_every",                                                            \
       "weedout: of what is always late, every so many-th counts; 0: none")                   \
  FLAG(max_advance, "max_advance", "drift_barrier: the drift at which all meet")              \
  FLAG(maxAdvance, "max_advance", "SpeeDO's --max_advance")                                   \
  FLAG(groups, "groups", "grouped: workers by number, \"0,2|1,3\"")                           \
  FLAG(groups_file, "groups_file", "grouped: a file with a group a line")                     \
  FLAG(group_by, "group_by", "grouped: given, or speed: found from measured speeds")          \
  FLAG(profile_iterations, "profile_iterations",                                              \
       "grouped by speed: iterations in which speeds are measured")                           \
  FLAG(min_group_size, "min_group_size", "grouped by speed: workers in a group, at least")    \
  FLAG(regroup_interval, "regroup_interval",                                                  \
       "grouped by speed: iterations until speeds are looked at again; 0: never")             \
  FLAG(weighting, "weighting.function",                                                       \
       "none, inverse, polynomial, exponential or cutoff: weight of stale updates")           \
  FLAG(weighting_definition, "weighting.definition", "counter or version: what staleness is") \
  FLAG(weighting_a, "weighting.a", "its parameter")                                           \
  FLAG(weighting_floor, "weighting.floor", "the least staleness that counts")                 \
  FLAG(weighting_cap, "weighting.cap", "the greatest; 0: none")                               \
  FLAG(weighting_on, "weighting.on", "gradient or rate: what is weighed")                     \
  FLAG(share_iterations, "share_iterations",                                                  \
       "true: workers share their iterations, and who is fast does more")                     \
  FLAG(compensation, "compensation", "lambda of delay compensation")                          \
  FLAG(epsilon, "epsilon", "esync: seconds")                                                  \
  FLAG(min_steps, "min_steps", "esync: least steps of a worker in a round")                   \
  FLAG(max_steps, "max_steps", "esync: most steps of a worker in a round")                    \
  FLAG(mode, "mode",                                                                          \
       "esync: steps are assigned at the start of a round, or pull: asked for one by one")

#define DEFINE_SCHEME_FIELD(name, field, what) DEFINE_string(name, "", what);
SCHEME_FIELDS(DEFINE_SCHEME_FIELD)
#undef DEFINE_SCHEME_FIELD

namespace shoal {

inline parallel::SchemeFlags scheme_flags() {
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
#define ADD_SCHEME_FIELD(name, field, what) add({#name, field, FLAGS_##name});
  SCHEME_FIELDS(ADD_SCHEME_FIELD)
#undef ADD_SCHEME_FIELD
  return flags;
}

}  // namespace shoal
