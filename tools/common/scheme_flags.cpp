#include "common/scheme_flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <string>

#include "common/job.h"
#include "common/tool.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/compat/flag_names.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/table/scheme_spec.h"

DEFINE_string(scheme, "",
              "when workers wait for each other: bsp, ssp, async, and those of "
              "docs/choosing-a-scheme.md; default: the solver's, or bsp");
DEFINE_string(consistency_model, "",
              "Poseidon's name of a scheme: SSP, SSPPush and SSPAggr are ssp");
DEFINE_string(kv_store, "",
              "MXNet-G's name of a scheme: dist_sync, dist_async, dist_ssync, dist_gsync");
DEFINE_bool(sync, false, "SpeeDO's: --scheme=local_steps, or with --gradientOnly bsp");
DEFINE_bool(gradientOnly, false, "SpeeDO's: --payload=gradient");

#define FIELD(name, ...) DEFINE_string(name, "", shoal::table::scheme_field(#name).about.c_str());
#define SEARCH FIELD
#include "shoal/table/scheme/fields.def"
#define ALIAS(name, flag, what) DEFINE_string(name, "", what);
SHOAL_SCHEME_ALIASES(ALIAS)
#undef ALIAS

namespace shoal {
namespace {

// Calls visit(flag, the parameter that it gives, its value) with each flag.
void for_each_flag(const auto& visit) {
#define FIELD(name, ...) visit(#name, #name, FLAGS_##name);
#define SEARCH FIELD
#include "shoal/table/scheme/fields.def"
#define ALIAS(name, flag, what) visit(#name, #flag, FLAGS_##name);
  SHOAL_SCHEME_ALIASES(ALIAS)
#undef ALIAS
}

}  // namespace

std::string scheme_field_of(const std::string& flag) {
  std::string parameter;
  for_each_flag([&](const char* name, const char* gives, const std::string&) {
    if (flag == name) parameter = gives;
  });
  return parameter;
}

parallel::SchemeFlags scheme_flags() {
  parallel::SchemeFlags flags;
  flags.scheme = FLAGS_scheme;
  flags.consistency_model = FLAGS_consistency_model;
  flags.kv_store = FLAGS_kv_store;
  flags.sync = FLAGS_sync;
  flags.gradient_only = FLAGS_gradientOnly;
  for_each_flag([&](const char* name, const char* parameter, const std::string& value) {
    if (value.empty()) return;
    const auto other = std::ranges::find(flags.fields, parameter, &parallel::SchemeFlag::field);
    if (other == flags.fields.end())
      flags.fields.push_back({name, parameter, value});
    else
      one_of(other->name.c_str(), other->value, name, value);
  });
  return flags;
}

void share_max_iter(int workers, SolverParameter& param) {
  if (!given("maxIter") || workers < 2 || param.scheme_size() != 1) return;
  SchemeParameter& scheme = *param.mutable_scheme(0);
  const std::vector<std::string> owners =
      split(table::scheme_field("share_iterations").owners, ' ');
  if (scheme.type() == "ssp" || std::ranges::count(owners, scheme.type()) == 0) return;
  const bool at_ends = param.test_interval() == param.max_iter();
  const std::int32_t all = param.max_iter();
  param.set_max_iter((all + workers - 1) / workers);
  if (at_ends) param.set_test_interval(param.max_iter());
  scheme.set_share_iterations(true);
  LOG(INFO) << "--maxIter=" << all << " is the job's: " << param.max_iter() << " for each of "
            << workers << " workers, who share them";
}

}  // namespace shoal
