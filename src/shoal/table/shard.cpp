#include "shoal/table/shard.h"

#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

// Returns the message's generation, or nothing if it has none.
std::optional<Generation> generation_of(const Message& message) {
  return std::visit(
      []<class M>(const M& m) -> std::optional<Generation> {
        if constexpr (requires { m.generation; })
          return m.generation;
        else if constexpr (requires { m.plan; })
          return m.plan->generation;
        else
          return std::nullopt;
      },
      message);
}

}  // namespace

Status Shard::handle(int worker, const Message& message, Outbox& out) {
  const char* name = name_of(message);
  const std::optional<Generation> generation = generation_of(message);
  // The worker that sent it may have had another number then.
  if (rows_ && generation && *generation < rows_->plan().generation) {
    ++keeps_.counters.late;
    return {};
  }
  if (const auto* total = std::get_if<NormTotal>(&message))
    return rows_ && rows_->plan().clip >= 0
               ? rows_->total(*total, out)
               : broken("the coordinator sends the norm of clock ", total->clock,
                        ", but the plan has no clip_gradients");
  const auto wrong = broken_with("worker ", worker, " sends a ", name);
  if (worker < 0 || (rows_ && worker >= workers()))
    return wrong(", but there are ", workers(), " workers, numbered from 0");
  const auto* plan = std::get_if<PlanMessage>(&message);
  const bool is_next = plan && (!rows_ || plan->plan->generation > rows_->plan().generation);
  // The chief of the next plan is worker 0 by that plan.
  if (!is_next && rows_ && rows_->is_gone(worker))
    return wrong(", but it was lost and has no part in the job any more");
  const bool is_chiefs = plan || std::holds_alternative<Init>(message);
  if (is_chiefs && worker != 0) return wrong(", which only worker 0 may send");
  if (plan) return handle_plan(*plan, out);
  if (!rows_) return wrong(" before worker 0 sent the plan");
  if (generation && *generation > rows_->plan().generation)
    return wrong(" of generation ", *generation, ", and this server is in generation ",
                 rows_->plan().generation);
  if (const auto* init = std::get_if<Init>(&message)) return rows_->init(*init, out);
  if (const auto* push = std::get_if<Push>(&message)) return rows_->push(worker, *push, out);
  if (const auto* get = std::get_if<Get>(&message)) return rows_->get(worker, *get, out);
  if (const auto* retire = std::get_if<Retire>(&message))
    return rows_->retire(worker, *retire, out);
  return wrong(", which is not for servers");
}

Status Shard::hear_server(const Message& message, Outbox& out) {
  const std::optional<Generation> generation = generation_of(message);
  if (!rows_ || !generation || *generation > rows_->plan().generation)
    return broken("a server sends a ", name_of(message), " before worker 0 sent the plan");
  if (*generation < rows_->plan().generation) {
    ++keeps_.counters.late;
    return {};
  }
  return rows_->hear_server(message, out);
}

Status Shard::handle_plan(const PlanMessage& message, Outbox& out) {
  const Plan& said = *message.plan;
  const auto wrong = broken_with("worker 0's plan");
  if (rows_ && said.generation == rows_->plan().generation) {
    if (said != rows_->plan())
      return broken("worker 0 sends a second plan, which differs from its first");
    rows_->begin(out);
    return {};
  }
  if (const std::string why = validate(said); !why.empty()) return wrong(": ", why);
  for (const CodecSpec& codec : said.codecs)
    if (!keeps_.codecs(codec))
      return wrong(" has rows in ", name_of(codec.id), ", which this build does not have");
  if (keeps_.server >= said.servers)
    return wrong(" is for ", said.servers, " servers, numbered from 0, but this is server ",
                 keeps_.server);
  auto made = maker_(said.scheme);
  if (!made.ok()) return wrong(": ", made.error().message);
  if (const std::string unfit = made.value()->unfit(said.workers); !unfit.empty())
    return wrong(": scheme '", said.scheme.words(), "': ", unfit);
  if (said.clip >= 0 && !made.value()->lockstep)
    return wrong(": clip_gradients needs all workers' gradients at once, but under scheme '",
                 said.scheme.words(), "' they come one by one");
  // A generation that began in vain has no rows here, or some of them.
  if (const std::string why = ready() ? rows_->why_not_over() : ""; !why.empty())
    return wrong(" of generation ", said.generation, " comes ", why);
  rows_.reset();  // there is not always memory for both generations
  rows_ = std::make_unique<ShardRows>(said, std::move(made).value(), message.in_place, keeps_);
  rows_->begin(out);
  return {};
}

}  // namespace shoal::table
