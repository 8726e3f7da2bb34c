// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Future<T> and Work: the result of something that was started and will be complete later.
#pragma once

#include <shardgrad/core/error.hpp>

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardgrad {

namespace detail {

struct Nothing {};

/// What carries on the operations behind a future when nobody else does (a lane), so that waiting threads can help.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Does some of the outstanding work on the calling thread, perhaps after a short sleep. False when another thread
  /// does it all and the caller may sleep until it is told.
  virtual bool help() = 0;
  /// As help() for a caller that must not block.
  virtual void poll() = 0;
};

/// True on a thread that runs the operations of a communicator: waiting there for a later operation would never end.
bool& on_lane_thread();

/// What a future and the promise behind it share. Thread safe.
template <class T>
struct FutureState {
  using Continuation = std::function<void(FutureState&)>;

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;     // value or error is there
  bool drained = false;  // and the continuations that were added before have run
  std::exception_ptr error;
  std::optional<T> value;
  std::vector<Continuation> continuations;
  std::weak_ptr<Driver> driver;  // set before the future is shared

  void finish(std::optional<T> result, std::exception_ptr failure) {
    std::unique_lock lock(mutex);
    value = std::move(result);
    error = std::move(failure);
    done = true;
    changed.notify_all();
    // Those that are added meanwhile run here too, after the ones before them.
    while (!continuations.empty()) {
      std::vector<Continuation> batch;
      batch.swap(continuations);
      lock.unlock();
      for (auto& continuation : batch) continuation(*this);
      batch.clear();
      lock.lock();
    }
    drained = true;
  }

  void wait() {
    const std::shared_ptr<Driver> helper = driver.lock();
    std::unique_lock lock(mutex);
    if (!done && on_lane_thread())
      throw InvalidState(
          "Future::wait: called on the progress thread for an operation that is not complete; use then() there");
    while (!done && helper) {
      lock.unlock();
      const bool again = helper->help();
      lock.lock();
      if (!again) break;
    }
    changed.wait(lock, [&] { return done; });
  }

  bool test() {
    {
      const std::lock_guard lock(mutex);
      if (done || on_lane_thread()) return done;
    }
    if (const std::shared_ptr<Driver> helper = driver.lock()) helper->poll();
    const std::lock_guard lock(mutex);
    return done;
  }
};

}  // namespace detail

template <class T>
class Promise;

/// A value that will be there later, or the error that took its place. Copies share one state. A default-constructed
/// future is empty: every call but valid() throws InvalidState.
/// Thread rule: all members may be called from any thread.
template <class T>
class Future {
  using Stored = std::conditional_t<std::is_void_v<T>, detail::Nothing, T>;
  using State = detail::FutureState<Stored>;

 public:
  Future() = default;

  bool valid() const noexcept { return state_ != nullptr; }

  /// Blocks until complete, then returns the value (a copy) or throws the error. May be called again. The waiting
  /// thread may run operations that are due on the communicator. Called on a thread that runs a communicator's
  /// operations (inside of one, or of a continuation) for something not complete yet, it throws InvalidState instead of
  /// waiting for ever.
  T wait() const {
    auto& state = checked();
    state.wait();
    if (state.error) std::rethrow_exception(state.error);
    if constexpr (!std::is_void_v<T>) return *state.value;
  }

  /// True when complete, with a value or an error. Never blocks, never throws the carried error.
  bool test() const { return checked().test(); }

  /// A future of f(value) (f() for void). f runs on the thread that completes this future, at once if it is complete
  /// already; several continuations run in the order in which they were added. If this future carries an error, f is
  /// not called and the error goes on. f must be copyable.
  template <class F>
  auto then(F f) const {
    using Result = typename decltype(call(f))::type;
    auto& state = checked();
    Promise<Result> promise(state.driver);
    auto next = promise.future();
    auto run = [promise, f = std::move(f)](State& source) mutable {
      if (source.error) return promise.set_error(source.error);
      std::optional<typename Promise<Result>::Stored> result;
      try {
        // Gone before anybody learns of the result: f may hold the last handle of a communicator, which must not
        // outlive what the waiting thread believes to be over.
        F once = std::move(f);
        if constexpr (std::is_void_v<Result>) {
          if constexpr (std::is_void_v<T>)
            once();
          else
            once(*source.value);
          result.emplace();
        } else {
          if constexpr (std::is_void_v<T>)
            result.emplace(once());
          else
            result.emplace(once(*source.value));
        }
      } catch (...) {
        return promise.set_error(std::current_exception());
      }
      promise.finish(std::move(result), nullptr);
    };
    {
      const std::lock_guard lock(state.mutex);
      if (!state.drained) {
        state.continuations.emplace_back(std::move(run));
        return next;
      }
    }
    run(state);
    return next;
  }

 private:
  friend class Promise<T>;
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}

  State& checked() const {
    if (!state_) throw InvalidState("Future: used while empty");
    return *state_;
  }

  template <class F>
  static auto call(F&) {
    if constexpr (std::is_void_v<T>)
      return std::type_identity<std::invoke_result_t<F&>>{};
    else
      return std::type_identity<std::invoke_result_t<F&, T&>>{};
  }

  std::shared_ptr<State> state_;
};

/// The writing end of a Future: exactly one of set_value and set_error is called, once. Copies share one state.
template <class T>
class Promise {
  using Stored = std::conditional_t<std::is_void_v<T>, detail::Nothing, T>;

 public:
  Promise() : state_(std::make_shared<detail::FutureState<Stored>>()) {}
  /// `driver` is asked to go on while somebody waits for the future.
  explicit Promise(std::weak_ptr<detail::Driver> driver) : Promise() { state_->driver = std::move(driver); }

  Future<T> future() const { return Future<T>(state_); }
  void set_value() const
    requires std::is_void_v<T>
  {
    finish(detail::Nothing{}, nullptr);
  }
  void set_value(Stored value) const
    requires(!std::is_void_v<T>)
  {
    finish(std::move(value), nullptr);
  }
  void set_error(std::exception_ptr error) const { finish(std::nullopt, std::move(error)); }

 private:
  template <class U>
  friend class Future;

  void finish(std::optional<Stored> result, std::exception_ptr error) const {
    const auto state = state_;  // this promise may be destroyed by a continuation
    state->finish(std::move(result), std::move(error));
  }

  std::shared_ptr<detail::FutureState<Stored>> state_;
};

/// The future of a collective: wait(), test(), then(f). A buffer that was handed to the collective belongs to it until
/// the work is complete.
using Work = Future<void>;

/// A future that is complete already.
inline Work completed_work() {
  const Promise<void> promise;
  promise.set_value();
  return promise.future();
}

}  // namespace shardgrad
