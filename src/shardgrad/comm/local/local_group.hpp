// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// LocalGroup: where the threads of one process that act as ranks meet. Each collective call is a Meeting; whoever comes
// last starts the copying, and the waiting threads help when there is much to copy.
#pragma once

#include <shardgrad/comm/transport.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// What one rank brings to a collective call.
struct LocalCall {
  enum class Kind { all_reduce, all_gather, all_gather_v, all_to_all_v, broadcast, barrier, split };

  Kind kind{};
  ConstBuffer send{};
  Buffer receive{};
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::vector<std::size_t> send_counts{};  // all_to_all_v
  std::vector<std::size_t> send_offsets{};
  std::vector<std::size_t> receive_counts{};  // all_to_all_v, all_gather_v
  std::vector<std::size_t> receive_offsets{};
  int color = 0;
  int key = 0;
};

class LocalGroup;

/// One collective call of the whole group. Guarded by the group's mutex, but for the copying.
struct Meeting {
  std::vector<LocalCall> calls;  // by rank
  std::vector<bool> present;
  std::size_t arrived = 0;
  bool broken = false;  // a rank gave up before all were there: never complete
  bool done = false;
  std::string mismatch;  // the error of all ranks, if not empty

  // Once all are there: the pieces of one stage may be taken by any thread, the next stage begins when all are done.
  std::size_t stage = 0;
  std::size_t pieces = 0;
  std::size_t next_piece = 0;
  std::size_t finished_pieces = 0;
  std::vector<std::byte> scratch;
  std::vector<std::unique_ptr<Transport>> parts;  // of a split
};

/// One end of a message.
struct LocalMessage {
  bool is_send = false;
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::uint8;
  int source = 0;
  int destination = 0;
  int tag = 0;
  bool matched = false;
  bool done = false;
  std::string mismatch{};
};

class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
 public:
  LocalGroup(std::string name, int size, std::chrono::milliseconds timeout);

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  /// The next collective call of `rank`.
  std::shared_ptr<Meeting> arrive(int rank, LocalCall call);
  std::shared_ptr<LocalMessage> post(LocalMessage message);

  /// True when complete; helps. Throws the mismatch, or InvalidState on a rank that has aborted.
  bool test(int rank, Meeting& meeting);
  void wait(int rank, Meeting& meeting);
  bool test(int rank, const LocalMessage& message);
  void wait(int rank, const LocalMessage& message);

  /// For a request that is destroyed before it is complete: after this nobody touches its buffers.
  void give_up(int rank, Meeting& meeting);
  void give_up(const std::shared_ptr<LocalMessage>& message);

  void abort(int rank, const std::string& reason);
  bool aborted(int rank);
  void throw_if_aborted(int rank);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Rank {
    std::condition_variable changed;  // something that this rank may wait for
    std::uint64_t calls = 0;
    bool aborted = false;
    std::string abort_reason;
  };

  void throw_if_aborted(const Rank& rank) const;
  template <class Done>
  bool wait_until(int rank, Lock& lock, const Done& done);
  [[noreturn]] void give_up_waiting(int rank, Lock& lock, const std::string& text);
  void help(Lock& lock, Meeting& meeting);
  void begin(Lock& lock, Meeting& meeting);
  void begin_stage(Meeting& meeting);
  void split(Meeting& meeting);
  void notify_all();

  const std::string name_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::deque<Rank> ranks_;
  std::map<std::uint64_t, std::shared_ptr<Meeting>> open_;  // by number of the call: not all ranks have come
  std::vector<std::shared_ptr<LocalMessage>> messages_;     // the other end has not come
};

/// "all_gather": as in error texts.
std::string_view name_of(LocalCall::Kind kind);
/// Why these calls do not fit together; empty when they do.
std::string find_mismatch(const std::vector<LocalCall>& calls);
/// Stages and pieces of the copying of one meeting.
std::size_t stage_count(LocalCall::Kind kind);
void run_piece(const std::vector<LocalCall>& calls, std::span<std::byte> scratch, std::size_t stage, std::size_t piece);

}  // namespace shardgrad::detail
