#include "support/simulated_worker.h"

#include <chrono>
#include <utility>

#include "shoal/base/try.h"
#include "shoal/table/scheme.h"
#include "support/twice_codec.h"

namespace shoal::table {

using namespace std::chrono_literals;

namespace {

constexpr Instant kRetireAgain = 500ms;

}  // namespace

Values numbers_of(const Payload& payload) {
  if (payload.codec == CodecId::kFloat32) return {payload.floats(), payload.owner};
  const test::TwiceCodec twice;
  return twice.decode(payload, payload.bytes.size() / twice.bound(1)).value();
}

SimulatedWorker::SimulatedWorker(Surroundings around, int id)
    : around_(std::move(around)),
      id_(id),
      plan_(job().plan),
      kind_(plan_.scheme.make().value()->contribution()),
      client_({.worker = id, .order = job().order, .codecs = test::make_test_codec}, plan_,
              [this](RowId row, Part part) {
                return std::span<float>(part == Part::kWeights ? weights_[row] : histories_[row]);
              }),
      random_(job().seed, 1000 + static_cast<std::uint64_t>(id)),
      clock_(plan_.start_of(id)) {
  for (const Row& row : plan_.rows) {
    weights_.emplace_back(row.length);
    gradients_.emplace_back(row.length);
    histories_.emplace_back(row.length);
  }
}

void SimulatedWorker::read() {
  reading_ = 0;
  for (RowId row = 0; row < weights_.size(); ++row) {
    client_.get(row, clock_, Part::kWeights, now());
    if (has_read_twice_) client_.get(row, clock_, Part::kHistory, now());
  }
  for (int server = 0; server < plan_.servers; ++server) link(server).wake(0);
  keep_time();
}

Status SimulatedWorker::fail_over(int server, const std::function<int(int)>& heir_of) {
  TRY(client_.lose_server(server, heir_of));
  for (int other = 0; other < plan_.servers; ++other) link(other).wake(0);
  forward();
  return {};
}

void SimulatedWorker::forward() {
  if (computing_ || done_ || dead_) return;
  for (; reading_ < weights_.size() && client_.arrived(reading_); ++reading_)
    if (!is_lost_) around_.history->read(id_, reading_, clock_, weights_[reading_]);
  if (reading_ < weights_.size()) return;
  if (clock_ == job().stops[static_cast<std::size_t>(id_)]) {
    done_ = true;
    return job().retires ? retire() : void();
  }
  if (!std::exchange(has_read_twice_, true) && job().reads_twice.contains({id_, clock_}))
    return read();
  computing_ = true;
  backward(reading_);
}

// The gradients of the rows before `behind` are still to come.
void SimulatedWorker::backward(RowId behind) {
  const Instant takes(static_cast<std::int64_t>(
      random_.below(static_cast<std::uint64_t>(job().compute.count()) + 1)));
  around_.time.after(takes, [this, behind] {
    if (dead_) return;
    push(behind - 1);
    if (behind > 1) return backward(behind - 1);
    ++clock_;
    reading_ = 0;
    computing_ = has_read_twice_ = false;
    forward();
  });
}

void SimulatedWorker::push(RowId row) {
  std::vector<float>& gradient = gradients_[row];
  make_gradient(job().seed, id_, clock_, row, plan_.start, gradient);
  around_.history->pushed(id_, row, clock_);
  const bool skips = job().skipped.contains({id_, clock_});
  client_.push({.row = row,
                .clock = clock_,
                .kind = kind_,
                .weight = skips ? 0.f : 1.f,
                .rate = 1,
                .payload = as_payload({skips ? std::span<float>() : gradient, nullptr})},
               now());
  if (const int server = client_.server_of(row); server != Client::kNoServer) link(server).wake(0);
  keep_time();
}

void SimulatedWorker::retire() {
  for (int server = 0; server < plan_.servers; ++server)
    link(server).send(0, Retire{clock_, plan_.generation});
  around_.time.after(kRetireAgain, [this] { retire(); });
}

void SimulatedWorker::received(int server, const Message& message) {
  if (dead_) return;
  const auto* row = std::get_if<RowMessage>(&message);
  if (row != nullptr && row->part == Part::kWeights && row->generation == plan_.generation)
    around_.history->answered(row->row, row->version, numbers_of(row->payload).data);
  RowMessage placed = row == nullptr ? RowMessage() : *row;
  const bool is_placed =
      row != nullptr && !client_.place(placed, row->payload.bytes.size()).empty();
  const Result<bool> taken = client_.take(server, message);
  if (!taken.ok()) return around_.history->say(taken.error().message);
  if (taken.value() != is_placed) around_.history->say("place() and take() do not agree");
  link(server).wake(0);
  keep_time();
  forward();
}

void SimulatedWorker::link_up(int server) {
  if (dead_) return;
  client_.link_up(server);
  if (done_ && job().retires) link(server).send(0, Retire{clock_, plan_.generation});
  keep_time();
}

void SimulatedWorker::on_time() {
  const auto overdue = client_.overdue();
  if (overdue && !is_lost_ && now() - overdue->since > job().limit) {
    around_.history->say(str("I6: worker ", id_, " waits since ",
                             overdue->since.count() / 1'000'000, " ms for row ", overdue->row,
                             " at clock ", overdue->clock));
  }
  keep_time();
}

// Lets the client ask again for overdue answers, and sets the time of the next call.
void SimulatedWorker::keep_time() {
  const Instant due = asks_again_.keep(client_, plan_.servers, now());
  for (int server = 0; server < plan_.servers; ++server) link(server).wake(0);
  if (due >= alarm_) return;
  alarm_ = due;
  around_.time.at(due, [this, due] {
    if (due != alarm_ || forgotten_ || dead_) return;  // an earlier one was set meanwhile
    alarm_ = Instant::max();
    on_time();
  });
}

}  // namespace shoal::table
