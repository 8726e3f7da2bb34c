// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The lane's state machine: a queue, a flag that says that somebody runs an operation, and messages that were started.
#include "lane.hpp"

#include "backoff.hpp"

#include <shardgrad/core/profiling.hpp>

#include <utility>

namespace shardgrad::detail {

namespace {

class OnLane {
 public:
  OnLane() : before_(std::exchange(on_lane_thread(), true)) {}
  ~OnLane() { on_lane_thread() = before_; }
  OnLane(const OnLane&) = delete;
  OnLane& operator=(const OnLane&) = delete;

 private:
  bool before_;
};

void require_label(const std::string& label) {
  if (!label.starts_with("shardgrad::"))
    throw InvalidArgument("Communicator: the label '" + label + "' of an operation must start with 'shardgrad::'");
}

}  // namespace

bool& on_lane_thread() {
  thread_local bool flag = false;
  return flag;
}

Lane::Lane(std::unique_ptr<CountingTransport> transport, bool threaded, std::chrono::milliseconds timeout)
    : transport_(std::move(transport)), threaded_(threaded), timeout_(timeout) {}

Lane::~Lane() { finish_inline(); }

Work Lane::enqueue(std::string label, Operation operation) {
  require_label(label);
  return push(Task{std::move(label), std::move(operation), {}, {}, {}, {}, Promise<void>(weak_from_this())});
}

Work Lane::start(std::string label, Start start, std::function<void()> finish) {
  require_label(label);
  return push(Task{std::move(label), {}, std::move(start), std::move(finish), {}, {}, Promise<void>(weak_from_this())});
}

Work Lane::push(Task task) {
  Work work = task.promise.future();
  std::unique_lock lock(mutex_);
  queue_.push_back(std::move(task));
  if (threaded_) {
    if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->loop(); });
    work_.notify_one();
  } else {
    const auto self = shared_from_this();  // an operation may drop the last handle of the communicator
    drain_inline(lock);
  }
  return work;
}

void Lane::run(const std::string& label, const Operation& operation) {
  require_label(label);
  if (on_lane_thread())
    throw InvalidState("Communicator::run: '" + label +
                       "' was called inside of an operation or continuation of a communicator, where waiting for a "
                       "later one would never end; use enqueue() there");
  const auto self = shared_from_this();
  std::unique_lock lock(mutex_);
  while (running_ && queue_.empty()) {
    ++waiting_for_free_;
    free_.wait(lock);
    --waiting_for_free_;
  }
  if (!queue_.empty()) {
    lock.unlock();
    enqueue(label, [&operation](Transport& transport) { operation(transport); }).wait();
    return;
  }
  acquire();
  lock.unlock();
  std::exception_ptr error;
  {
    const OnLane flag;
    try {
      throw_if_aborted();
      const ScopedRegion region(label);
      operation(*transport_);
    } catch (...) {
      error = std::current_exception();
      abort_after(error);
    }
  }
  lock.lock();
  release();
  if (!threaded_) drain_inline(lock);
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void Lane::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    abort_reason_ = reason;
  }
  transport_->abort(reason);
}

void Lane::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  const auto me = std::this_thread::get_id();
  // The last handle may go away inside of one of the lane's own operations or continuations. Whoever runs it then goes
  // on to the end of the queue, and the lane is freed there.
  const bool inside = running_ && runner_ == me;
  if (thread_.joinable()) {
    work_.notify_one();
    if (inside) return thread_.detach();
    std::thread thread = std::move(thread_);
    lock.unlock();
    thread.join();
  } else if (!inside) {
    lock.unlock();
    finish_inline();
  }
}

void Lane::finish_inline() {
  Backoff backoff;
  std::unique_lock lock(mutex_);
  while (!queue_.empty() || has_outstanding_) {
    drain_inline(lock);
    if (has_outstanding_ && !poll_outstanding(lock)) {
      lock.unlock();
      backoff.pause();
      lock.lock();
    }
  }
}

void Lane::loop() {
  Backoff backoff;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (running_) {
      ++waiting_for_free_;
      free_.wait(lock);
      --waiting_for_free_;
    } else if (!queue_.empty()) {
      run_front(lock);
      backoff.reset();
    } else if (has_outstanding_) {
      if (poll_outstanding(lock)) {
        backoff.reset();
      } else {
        lock.unlock();
        backoff.pause();
        lock.lock();
      }
    } else if (stopping_) {
      return;
    } else {
      work_.wait(lock);
    }
  }
}

bool Lane::help() {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  if (running_) {
    if (threaded_) return false;
    lock.unlock();
    std::this_thread::sleep_for(50us);
    return true;
  }
  if (!queue_.empty()) {
    run_front(lock);
    return true;
  }
  if (threaded_ || !has_outstanding_) return false;
  if (!poll_outstanding(lock)) {
    lock.unlock();
    sched_yield();
  }
  return true;
}

void Lane::poll() {
  if (threaded_) return;
  std::unique_lock lock(mutex_);
  if (!running_ && has_outstanding_) poll_outstanding(lock);
}

void Lane::acquire() {
  running_ = true;
  runner_ = std::this_thread::get_id();
}

void Lane::release() {
  running_ = false;
  has_outstanding_ = !outstanding_.empty();
  if (waiting_for_free_ > 0) free_.notify_all();
  if (has_outstanding_ && threaded_) work_.notify_one();
}

void Lane::run_front(std::unique_lock<std::mutex>& lock) {
  Task task = std::move(queue_.front());
  queue_.pop_front();
  acquire();
  lock.unlock();
  execute(std::move(task));
  lock.lock();
  release();
}

bool Lane::poll_outstanding(std::unique_lock<std::mutex>& lock) {
  acquire();
  lock.unlock();
  const bool progress = poll_messages();
  lock.lock();
  release();
  return progress;
}

void Lane::drain_inline(std::unique_lock<std::mutex>& lock) {
  while (!running_ && !queue_.empty()) run_front(lock);
}

void Lane::execute(Task task) {
  const OnLane flag;
  std::exception_ptr error;
  try {
    throw_if_aborted();
    const ScopedRegion region(task.label);
    if (task.operation) {
      task.operation(*transport_);
    } else {
      task.request = task.start(*transport_);
      task.deadline = std::chrono::steady_clock::now() + timeout_;
      if (!task.request->test()) {
        outstanding_.push_back(std::move(task));
        return;
      }
      if (task.finish) task.finish();
    }
  } catch (...) {
    error = std::current_exception();
  }
  complete(std::move(task), error);
}

bool Lane::poll_messages() {
  const OnLane flag;
  bool progress = false;
  const auto now = std::chrono::steady_clock::now();
  for (std::size_t k = 0; k < outstanding_.size();) {
    std::exception_ptr error;
    bool complete_now = true;
    try {
      complete_now = outstanding_[k].request->test();
      if (complete_now) {
        if (outstanding_[k].finish) outstanding_[k].finish();
      } else if (now > outstanding_[k].deadline) {
        throw Timeout(outstanding_[k].label + " on rank " + std::to_string(transport_->rank()) + " of " +
                      std::to_string(transport_->size()) + ": the other side did not answer within " +
                      std::to_string(static_cast<double>(timeout_.count()) / 1000.0) + " s");
      }
    } catch (...) {
      error = std::current_exception();
      complete_now = true;
    }
    if (!complete_now) {
      ++k;
      continue;
    }
    Task task = std::move(outstanding_[k]);
    outstanding_.erase(outstanding_.begin() + static_cast<std::ptrdiff_t>(k));
    complete(std::move(task), error);
    progress = true;
  }
  return progress;
}

void Lane::complete(Task task, std::exception_ptr error) {
  if (error) abort_after(error);
  // Gone before anybody learns that the operation is complete: they may hold the last handle of something.
  task.request.reset();
  task.operation = nullptr;
  task.start = nullptr;
  task.finish = nullptr;
  if (error)
    task.promise.set_error(error);
  else
    task.promise.set_value();
}

void Lane::throw_if_aborted() {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw InvalidState("the communicator was aborted: " + abort_reason_);
}

void Lane::abort_after(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Timeout& timeout) {
    abort(timeout.what());
  } catch (const TransportFailure& failure) {
    abort(failure.what());
  } catch (...) {
    // The ranks are still in step (a mismatch that all have seen), or the caller knows better.
  }
}

}  // namespace shardgrad::detail
