// Measures how long an exchange takes a worker, how fast the servers' links are, and the rates of a
// job: bandwidth and latency at the chief's process, and its products of matrices. Predictions from
// these rates are made elsewhere (exchange/exchange_choice.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/parallel/rates.h"
#include "shoal/parallel/worker.h"
#include "shoal/solver/team.h"
#include "shoal/table/table.h"
#include "shoal/tensor/context.h"

namespace shoal::parallel {

// Rows that are read to time an exchange: a MiB, or all if there is less, of each server as much.
// `share`: their part of all numbers.
struct RowSample {
  std::vector<table::RowId> rows;
  double share = 1;
};
RowSample sample_of(std::span<const table::Row> rows, int servers);

// Measures how long an exchange takes a worker, for a pacer that plans the work until then
// (Task::is_planned): seconds of getting all rows of `plan` at the worker's first clock, whose rows
// exist. While they come, others go the other way. All workers call this when a generation begins;
// each measures in its turn, so that they do not disturb each other.
Result<double> measure_exchange(table::Table& table, const table::Plan& plan);

// Measures the speeds of a job's servers, in a generation of its own (RosterBody::measures),
// between two in which it trains.
//
// Returns, by server, the bytes a second in which a worker of another process gets rows of it; 0
// for a server that no other process has a worker for. Up to three workers measure, one after the
// other, and the fastest counts: one worker's result may be limited by its own link. All workers
// take part, with a plan of their own in the roster's generation, with this scheme and the clocks
// of the roster; 2 MiB from each server to each worker that measures.
Result<std::vector<double>> measure_servers(table::Table& table, Team& team,
                                            const table::SchemeSpec& scheme);

// Measures the rates of this job, the same on every worker: the link of the chief's process while
// all others send to it, half of the time of a question and its answer between worker 1 and the
// chief's process, and the chief's products of matrices with so many threads of its device. All
// workers take part; a few MiB from each.
Result<Rates> measure_rates(const table::Table& table, Team& team,
                            const Context::Options& computes);

}  // namespace shoal::parallel
