// Names of flags of other systems, as lists from which tools define them.
#pragma once

// clang-format off
// Flags of Poseidon's caffe_main that tune what Shoal has not got: SWITCH if bool, else WORD.
#define SHOAL_POSEIDON_FLAGS(SWITCH, WORD) \
  WORD(svb_timeout_ms) \
  WORD(num_rows_per_table) \
  SWITCH(init_thread_access_table) \
  WORD(num_comm_channels_per_client) \
  WORD(client_bandwidth_mbps) \
  WORD(server_bandwidth_mbps) \
  WORD(bg_idle_milli) \
  WORD(server_idle_milli) \
  WORD(thread_oplog_batch_size) \
  WORD(row_candidate_factor) \
  WORD(update_sort_policy) \
  SWITCH(use_approx_sort) \
  SWITCH(naive_table_oplog_meta) \
  SWITCH(suppression_on) \
  WORD(snapshot_clock) \
  WORD(snapshot_dir) \
  WORD(resume_clock) \
  WORD(resume_dir) \
  WORD(stats_path) \
  WORD(num_zmq_threads) \
  SWITCH(numa_opt) \
  WORD(numa_index) \
  WORD(numa_policy) \
  WORD(row_type) \
  WORD(row_oplog_type) \
  SWITCH(oplog_dense_serialized) \
  WORD(oplog_type) \
  WORD(append_only_oplog_type) \
  WORD(append_only_buffer_capacity) \
  WORD(append_only_buffer_pool_size) \
  WORD(bg_apply_append_oplog_freq) \
  WORD(process_storage_type) \
  SWITCH(no_oplog_replay) \
  WORD(server_push_row_upper_bound) \
  WORD(client_send_oplog_upper_bound) \
  WORD(server_table_logic) \
  SWITCH(version_maintain) \
  WORD(init_step_size) \
  WORD(old_grad_upper_bound) \
  WORD(random_init)

// Flags of a scheme: the name, the flag that it means, what --help says.
#define SHOAL_SCHEME_ALIASES(ALIAS) \
  ALIAS(table_staleness, staleness, "Poseidon's --staleness") \
  ALIAS(train, local_steps, "SpeeDO's --local_steps") \
  ALIAS(movingRate, moving_rate, "SpeeDO's --moving_rate") \
  ALIAS(gl, global_rate, "ESync's --global_rate") \
  ALIAS(drop, weedout, "SpeeDO's other name of --weedout") \
  ALIAS(maxAdvance, max_advance, "SpeeDO's --max_advance")
// clang-format on
