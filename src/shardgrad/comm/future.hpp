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

/// What a future and the promise behind it share. Thread safe.
template <class T>
struct FutureState {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  std::optional<T> value;
  std::vector<std::function<void()>> continuations;

  void finish(std::optional<T> result, std::exception_ptr failure) {
    std::vector<std::function<void()>> run;
    {
      const std::lock_guard lock(mutex);
      value = std::move(result);
      error = std::move(failure);
      done = true;
      run.swap(continuations);
    }
    changed.notify_all();
    for (auto& continuation : run) continuation();
  }
};

/// True on a thread that runs the operations of a communicator: waiting there for a later operation would never end.
bool& on_lane_thread();

}  // namespace detail

template <class T>
class Promise;

/// A value that will be there later, or the error that took its place. Copies share one state. A default-constructed future is empty: every call
/// but valid() throws InvalidState.
/// Thread rule: all members may be called from any thread.
template <class T>
class Future {
  using Stored = std::conditional_t<std::is_void_v<T>, detail::Nothing, T>;

 public:
  Future() = default;

  bool valid() const noexcept { return state_ != nullptr; }

  /// Blocks until complete, then returns the value (a copy) or throws the error. May be called again. Called on a communicator's own
  /// progress thread for something not complete yet, it throws InvalidState instead of waiting for ever.
  T wait() const {
    auto& state = checked();
    std::unique_lock lock(state.mutex);
    if (!state.done && detail::on_lane_thread())
      throw InvalidState("Future::wait: called on the progress thread for an operation that is not complete; use then() there");
    state.changed.wait(lock, [&] { return state.done; });
    if (state.error) std::rethrow_exception(state.error);
    if constexpr (!std::is_void_v<T>) return *state.value;
  }

  /// True when complete, with a value or an error. Never blocks, never throws the carried error.
  bool test() const {
    auto& state = checked();
    const std::lock_guard lock(state.mutex);
    return state.done;
  }

  /// A future of f(value) (f() for void). f runs on the thread that completes this future, at once if it is complete already; several continuations
  /// run in the order in which they were added. If this future carries an error, f is not called and the error goes on.
  template <class F>
  auto then(F f) const {
    using Result = typename decltype(call(f))::type;
    Promise<Result> promise;
    auto next = promise.future();
    auto source = state_;
    auto run = [source, promise, f = std::move(f)]() mutable {
      if (source->error) return promise.set_error(source->error);
      try {
        if constexpr (std::is_void_v<Result>) {
          if constexpr (std::is_void_v<T>) f(); else f(*source->value);
          promise.set_value();
        } else {
          if constexpr (std::is_void_v<T>) promise.set_value(f()); else promise.set_value(f(*source->value));
        }
      } catch (...) {
        promise.set_error(std::current_exception());
      }
    };
    auto& state = checked();
    {
      const std::lock_guard lock(state.mutex);
      if (!state.done) {
        state.continuations.emplace_back(std::move(run));
        return next;
      }
    }
    run();
    return next;
  }

 private:
  friend class Promise<T>;
  explicit Future(std::shared_ptr<detail::FutureState<Stored>> state) : state_(std::move(state)) {}

  detail::FutureState<Stored>& checked() const {
    if (!state_) throw InvalidState("Future: used while empty");
    return *state_;
  }

  template <class F>
  static auto call(F& f) {
    if constexpr (std::is_void_v<T>) return std::type_identity<std::invoke_result_t<F&>>{};
    else return std::type_identity<std::invoke_result_t<F&, T>>{};
  }

  std::shared_ptr<detail::FutureState<Stored>> state_;
};

/// The writing end of a Future: exactly one of set_value and set_error is called, once. Copies share one state.
template <class T>
class Promise {
  using Stored = std::conditional_t<std::is_void_v<T>, detail::Nothing, T>;

 public:
  Promise() : state_(std::make_shared<detail::FutureState<Stored>>()) {}

  Future<T> future() const { return Future<T>(state_); }
  void set_value() const requires std::is_void_v<T> { state_->finish(detail::Nothing{}, nullptr); }
  void set_value(Stored value) const requires(!std::is_void_v<T>) { state_->finish(std::move(value), nullptr); }
  void set_error(std::exception_ptr error) const { state_->finish(std::nullopt, std::move(error)); }

 private:
  std::shared_ptr<detail::FutureState<Stored>> state_;
};

/// The future of a collective: wait(), test(), then(f). A buffer that was handed to the collective belongs to it until the work is complete.
using Work = Future<void>;

/// A future that is complete already.
inline Work completed_work() {
  const Promise<void> promise;
  promise.set_value();
  return promise.future();
}

}  // namespace shardgrad
