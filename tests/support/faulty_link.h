// A TCP proxy on this machine that forwards bytes until it is told to do worse: cut, hold back,
// delay, damage, swallow.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace shoal::test {

class FaultyLink {
 public:
  // Listens on a port of its own on 127.0.0.1; connections are forwarded to `target` there.
  explicit FaultyLink(std::uint16_t target);
  ~FaultyLink();
  FaultyLink(const FaultyLink&) = delete;

  std::uint16_t port() const;
  // Resets all connections. New ones are forwarded.
  void cut();
  void shut();  // and new ones are reset, too
  // Moves no byte any more, and holds new connections, too.
  void hold();
  void hold_forward();  // only those to the target stay where they are
  void go_on();
  void delay(std::chrono::milliseconds each);  // of each piece that is read from now on
  // Once so many more bytes have been forwarded, either way:
  void cut_after(std::uint64_t bytes);
  void damage_after(std::uint64_t bytes, int bit = 4);  // of the next one

  // Returns the first MiB of what came from those who connect (0), or from the target (1).
  std::string came_from(std::size_t side) const;
  // Waits until so many were accepted; false if that takes a minute.
  bool wait_for_connections(int count) const;

 private:
  struct State;
  // Tells the thread what has changed.
  template <class Change>
  void wish(Change change);

  std::unique_ptr<State> state_;
};

}  // namespace shoal::test
