// Flags of Poseidon's caffe_main that tune what Shoal has not got: taken, so that its command lines
// run unchanged, and named once in the log. For the one file of a tool that includes this.
#pragma once

#include <gflags/gflags.h>

#include <string>
#include <vector>

#define IGNORED_BOOL(name) DEFINE_bool(name, false, "Poseidon's; without effect here")
#define IGNORED(name) DEFINE_string(name, "", "Poseidon's; without effect here")
// clang-format off
#define POSEIDON_FLAGS(BOOL, WORD)                                                                 \
  BOOL(svb)                                                                                        \
  WORD(svb_timeout_ms)                                                                             \
  WORD(num_rows_per_table)                                                                         \
  BOOL(init_thread_access_table)                                                                   \
  WORD(num_comm_channels_per_client) WORD(client_bandwidth_mbps) WORD(server_bandwidth_mbps)       \
      WORD(bg_idle_milli) WORD(server_idle_milli) WORD(thread_oplog_batch_size)                    \
          WORD(row_candidate_factor) WORD(update_sort_policy) BOOL(use_approx_sort) BOOL(          \
              naive_table_oplog_meta) BOOL(suppression_on) WORD(snapshot_clock) WORD(snapshot_dir) \
              WORD(resume_clock) WORD(resume_dir) WORD(stats_path) WORD(num_zmq_threads)           \
                  BOOL(numa_opt) WORD(numa_index) WORD(numa_policy) WORD(row_type)                 \
                      WORD(row_oplog_type) BOOL(oplog_dense_serialized) WORD(oplog_type)           \
                          WORD(append_only_oplog_type) WORD(append_only_buffer_capacity)           \
                              WORD(append_only_buffer_pool_size) WORD(bg_apply_append_oplog_freq)  \
                                  WORD(process_storage_type) BOOL(no_oplog_replay)                 \
                                      WORD(server_push_row_upper_bound)                            \
                                          WORD(client_send_oplog_upper_bound)                      \
                                              WORD(server_table_logic) BOOL(version_maintain)      \
                                                  WORD(init_step_size) WORD(old_grad_upper_bound)  \
                                                      WORD(random_init)
// clang-format on

#define DEFINE_IGNORED_BOOL(name) IGNORED_BOOL(name);
#define DEFINE_IGNORED(name) IGNORED(name);
POSEIDON_FLAGS(DEFINE_IGNORED_BOOL, DEFINE_IGNORED)

namespace shoal {

// Those that were given, as "--svb".
inline std::vector<std::string> ignored_flags() {
  std::vector<std::string> given;
#define NOTE_IGNORED(name) \
  if (!gflags::GetCommandLineFlagInfoOrDie(#name).is_default) given.push_back("--" #name);
  POSEIDON_FLAGS(NOTE_IGNORED, NOTE_IGNORED)
  return given;
}

}  // namespace shoal
