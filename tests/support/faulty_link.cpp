#include "support/faulty_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/base/log.h"
#include "support/ports.h"

namespace shoal::test {
namespace {

using Moment = std::chrono::steady_clock::time_point;

int listen_on(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  PCHECK(fd >= 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in address = loopback(port);
  PCHECK(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  PCHECK(listen(fd, 64) == 0);
  return fd;
}

// Bytes on their way from one socket to another.
struct Way {
  int from = -1, to = -1;
  struct Piece {
    std::string bytes;
    Moment due;
  };
  std::deque<Piece> pieces{};
  bool ended = false;  // the one end will send no more
  bool told = false;   // and the other knows
};

struct Pair {
  std::array<Way, 2> ways;
  bool dead = false;
};

void reset(int fd) {
  const linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(fd);
}

}  // namespace

struct FaultyLink::State {
  ReservedPorts ports;
  std::uint16_t target = 0;
  int listener = -1;
  std::array<int, 2> wake{};

  std::mutex mutex;  // guards the wishes
  bool ended = false, cut = false, shut = false;
  std::array<bool, 2> held{};  // by way
  std::uint64_t bytes = 0;     // forwarded so far
  std::chrono::milliseconds delay{0};
  std::optional<std::uint64_t> cut_at, damage_at;  // of `bytes`
  int damaged_bit = 0;
  int connections = 0;
  std::condition_variable connected;
  std::array<std::string, 2> kept;  // of what came, by way

  std::list<Pair> pairs;  // the thread's own
  std::thread thread;

  void run();
  void accept_one();
  void read(Pair& pair, Way& way);
  void write(Pair& pair, Way& way);
  void cut_all();
  std::vector<pollfd> wanted(const std::array<bool, 2>& holding);
  int patience() const;
};

void FaultyLink::State::accept_one() {
  const int one = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (one < 0) return;
  {
    std::lock_guard lock(mutex);
    ++connections;
    connected.notify_all();
  }
  const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(target);
  std::unique_lock lock(mutex);
  const bool refused = shut;
  lock.unlock();
  if (refused || connect(other, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    reset(one);
    close(other);
    return;
  }
  fcntl(other, F_SETFL, O_NONBLOCK);
  const int yes = 1;
  for (const int fd : {one, other}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  pairs.push_back({{Way{.from = one, .to = other}, Way{.from = other, .to = one}}});
}

void FaultyLink::State::read(Pair& pair, Way& way) {
  std::string piece(64 * 1024, '\0');
  const ssize_t count = ::read(way.from, piece.data(), piece.size());
  if (count == 0) way.ended = true;
  if (count < 0 && errno != EAGAIN) pair.dead = true;
  if (count <= 0) return;
  piece.resize(static_cast<std::size_t>(count));
  std::lock_guard lock(mutex);
  std::string& came = kept[&way == &pair.ways[0] ? 0 : 1];
  came += piece.substr(0, (1u << 20) - came.size());
  way.pieces.push_back({std::move(piece), std::chrono::steady_clock::now() + delay});
}

void FaultyLink::State::write(Pair& pair, Way& way) {
  std::string& piece = way.pieces.front().bytes;
  {
    std::lock_guard lock(mutex);
    if (cut_at && bytes >= *cut_at) {
      cut = true;
      cut_at.reset();
      return;
    }
    std::size_t most = piece.size();
    if (cut_at) most = std::min<std::size_t>(most, *cut_at - bytes);
    if (damage_at && bytes + piece.size() > *damage_at) {
      piece[*damage_at > bytes ? *damage_at - bytes : 0] ^= static_cast<char>(1 << damaged_bit);
      damage_at.reset();
    }
    const ssize_t count = ::send(way.to, piece.data(), most, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN) pair.dead = true;
    if (count <= 0) return;
    bytes += static_cast<std::uint64_t>(count);
    piece.erase(0, static_cast<std::size_t>(count));
  }
  if (piece.empty()) way.pieces.pop_front();
}

void FaultyLink::State::cut_all() {
  for (const Pair& pair : pairs)
    for (const Way& way : pair.ways) reset(way.from);
  pairs.clear();
}

std::vector<pollfd> FaultyLink::State::wanted(const std::array<bool, 2>& holding) {
  constexpr std::size_t kAhead = 16;
  const auto watch = [](int fd, short events, bool wanted) {
    return pollfd{wanted ? fd : -1, events, 0};
  };
  std::vector<pollfd> all{watch(wake[0], POLLIN, true), watch(listener, POLLIN, !holding[1])};
  const Moment now = std::chrono::steady_clock::now();
  for (const Pair& pair : pairs)
    for (const Way& way : pair.ways) {
      const bool moves = !holding[&way == &pair.ways[0] ? 0 : 1];
      const bool due = !way.pieces.empty() && way.pieces.front().due <= now;
      all.push_back(watch(way.from, POLLIN, moves && !way.ended && way.pieces.size() < kAhead));
      all.push_back(watch(way.to, POLLOUT, moves && due));
    }
  return all;
}

// Returns the milliseconds until the next piece is due.
int FaultyLink::State::patience() const {
  Moment first = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const Pair& pair : pairs)
    for (const Way& way : pair.ways)
      if (!way.pieces.empty()) first = std::min(first, way.pieces.front().due);
  return static_cast<int>(std::max<std::int64_t>(
      0, std::chrono::ceil<std::chrono::milliseconds>(first - std::chrono::steady_clock::now())
             .count()));
}

void FaultyLink::State::run() {
  for (;;) {
    std::array<bool, 2> holding{};
    {
      std::lock_guard lock(mutex);
      if (ended) return;
      if (std::exchange(cut, false)) cut_all();
      holding = held;
    }
    std::vector<pollfd> all = wanted(holding);
    poll(all.data(), all.size(), holding[0] ? 20 : patience());
    char sink[64];
    if (all[0].revents) (void)!::read(wake[0], sink, sizeof sink);
    std::size_t at = 2;
    for (Pair& pair : pairs)
      for (Way& way : pair.ways) {
        if (all[at].revents) read(pair, way);
        if (all[at + 1].revents) write(pair, way);
        at += 2;
        if (way.ended && way.pieces.empty() && !std::exchange(way.told, true))
          shutdown(way.to, SHUT_WR);
      }
    if (all[1].revents) accept_one();
    std::erase_if(pairs, [](const Pair& pair) {
      const bool gone = pair.dead || (pair.ways[0].told && pair.ways[1].told);
      if (gone)
        for (const Way& way : pair.ways)
          pair.dead ? reset(way.from) : static_cast<void>(close(way.from));
      return gone;
    });
  }
}

FaultyLink::FaultyLink(std::uint16_t target) : state_(std::make_unique<State>()) {
  state_->target = target;
  state_->listener = listen_on(port());
  PCHECK(pipe2(state_->wake.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  state_->thread = std::thread([this] { state_->run(); });
}

FaultyLink::~FaultyLink() {
  wish([](State& state) { state.ended = true; });
  state_->thread.join();
  state_->cut_all();
  for (const int fd : {state_->listener, state_->wake[0], state_->wake[1]}) close(fd);
}

template <class Change>
void FaultyLink::wish(Change change) {
  {
    std::lock_guard lock(state_->mutex);
    change(*state_);
  }
  (void)!write(state_->wake[1], "x", 1);
}

std::uint16_t FaultyLink::port() const { return state_->ports[0]; }
void FaultyLink::cut() {
  wish([](State& state) { state.cut = true; });
}
void FaultyLink::shut() {
  wish([](State& state) { state.cut = state.shut = true; });
}
void FaultyLink::hold() {
  wish([](State& state) { state.held = {true, true}; });
}
void FaultyLink::hold_forward() {
  wish([](State& state) { state.held[0] = true; });
}
void FaultyLink::go_on() {
  wish([](State& state) { state.held = {}; });
}
void FaultyLink::delay(std::chrono::milliseconds each) {
  wish([&](State& state) { state.delay = each; });
}
void FaultyLink::cut_after(std::uint64_t bytes) {
  wish([&](State& state) { state.cut_at = state.bytes + bytes; });
}
void FaultyLink::damage_after(std::uint64_t bytes, int bit) {
  wish([&](State& state) { state.damage_at = state.bytes + bytes, state.damaged_bit = bit; });
}
std::string FaultyLink::came_from(std::size_t side) const {
  std::lock_guard lock(state_->mutex);
  return state_->kept[side];
}
bool FaultyLink::wait_for_connections(int count) const {
  std::unique_lock lock(state_->mutex);
  return state_->connected.wait_for(lock, std::chrono::minutes(1),
                                    [&] { return state_->connections >= count; });
}

}  // namespace shoal::test
