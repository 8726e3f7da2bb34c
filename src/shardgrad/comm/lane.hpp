// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lane: runs the operations of one communicator in the order in which they were issued, on a progress thread or inline.
#pragma once

#include "counting_transport.hpp"

#include <shardgrad/comm/future.hpp>
#include <shardgrad/comm/reduce.hpp>

#include <chrono>
#include <deque>
#include <string>
#include <thread>

namespace shardgrad::detail {

/// One operation runs at a time (`running_`); whoever runs it holds no lock meanwhile. That is usually the progress
/// thread, but a thread that would only wait for it does it itself: short blocking collectives then cost no change of
/// thread. Thread rule: all members may be called from any thread.
class Lane final : public Driver, public std::enable_shared_from_this<Lane> {
 public:
  using Operation = std::function<void(Transport&)>;
  using Start = std::function<RequestPtr(Transport&)>;

  /// Without a thread (`threaded` false), enqueue() runs the operation to its end before it returns.
  Lane(std::unique_ptr<CountingTransport> transport, bool threaded, std::chrono::milliseconds timeout);
  ~Lane() override;

  CountingTransport& transport() const { return *transport_; }
  bool threaded() const { return threaded_; }
  /// Scratch of the reductions that run on this lane.
  ReduceWorkspace& workspace() { return workspace_; }

  /// Communicator::enqueue and ::run.
  Work enqueue(std::string label, Operation operation);
  void run(const std::string& label, const Operation& operation);

  /// As enqueue for a point-to-point message: `start` is called in order, but the operations behind it do not wait for
  /// its request (the other side may need them first). `finish` runs when the request is complete.
  Work start(std::string label, Start start, std::function<void()> finish);

  /// Communicator::abort. The first reason stays.
  void abort(const std::string& reason);

  /// Ends all operations that were issued, then the thread. Nothing may be issued afterwards.
  void stop();

  bool help() override;
  void poll() override;

 private:
  struct Task {
    std::string label;
    Operation operation;  // either this
    Start start;          // or this
    std::function<void()> finish;
    RequestPtr request;
    std::chrono::steady_clock::time_point deadline;
    Promise<void> promise;
  };

  Work push(Task task);
  void loop();
  void finish_inline();
  // The following are called with `lock` held on mutex_ and running_ false; they release it while they run something.
  void run_front(std::unique_lock<std::mutex>& lock);
  bool poll_outstanding(std::unique_lock<std::mutex>& lock);
  void drain_inline(std::unique_lock<std::mutex>& lock);
  void acquire();
  void release();
  // Called by the thread that has set running_.
  void execute(Task task);
  bool poll_messages();
  void complete(Task task, std::exception_ptr error);
  void throw_if_aborted();
  void abort_after(const std::exception_ptr& error);

  const std::unique_ptr<CountingTransport> transport_;
  const bool threaded_;
  const std::chrono::milliseconds timeout_;
  ReduceWorkspace workspace_;

  std::mutex mutex_;
  std::condition_variable work_;  // the progress thread sleeps here while there is nothing to do
  std::condition_variable free_;  // those who wait for running_ to become false
  int waiting_for_free_ = 0;
  bool running_ = false;
  std::thread::id runner_;
  bool stopping_ = false;
  bool aborted_ = false;
  std::string abort_reason_;
  std::deque<Task> queue_;
  std::thread thread_;  // started with the first operation that needs it

  std::vector<Task> outstanding_;  // messages that were started; touched by the runner only
  bool has_outstanding_ = false;   // the same, as of the last release()
};

}  // namespace shardgrad::detail
