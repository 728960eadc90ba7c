// A coroutine that is suspended while virtual time passes. Awaiting a Coroutine runs it to its end.
#pragma once

#include <coroutine>
#include <utility>

namespace shoal::simulate {

class [[nodiscard]] Coroutine {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  // Resumes the coroutine that awaited this one.
  struct Return {
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle ended) noexcept { return ended.promise().caller; }
    void await_resume() noexcept {}
  };
  struct promise_type {
    std::coroutine_handle<> caller = std::noop_coroutine();
    Coroutine get_return_object() { return Coroutine(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Return final_suspend() noexcept { return {}; }
    void return_void() {}
    // What a coroutine throws comes out of the call that resumed it.
    void unhandled_exception() { throw; }
  };

  Coroutine(Coroutine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Coroutine& operator=(Coroutine&&) = delete;
  ~Coroutine() {
    if (handle_) handle_.destroy();
  }

  // Runs it until it is suspended for the first time.
  void start() { handle_.resume(); }
  bool ended() const { return handle_.done(); }

  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().caller = caller;
    return handle_;
  }
  void await_resume() {}

 private:
  explicit Coroutine(Handle handle) : handle_(handle) {}
  Handle handle_;
};

}  // namespace shoal::simulate
