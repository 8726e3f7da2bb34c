// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrival, matching, waiting and giving up.
#include "local_group.hpp"

#include "local_transport.hpp"

#include <shardgrad/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace shardgrad::detail {

namespace {

// Below this much, waking the others to help costs more than the copying.
constexpr std::size_t help_bytes = std::size_t{256} << 10;

std::string seconds_text(std::chrono::milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + " s";
}

}  // namespace

LocalGroup::LocalGroup(std::string name, int size, std::chrono::milliseconds timeout)
    : name_(std::move(name)), timeout_(timeout), ranks_(static_cast<std::size_t>(size)) {}

void LocalGroup::throw_if_aborted(const Rank& rank) const {
  if (rank.aborted) throw InvalidState("the communicator was aborted: " + rank.abort_reason);
}

void LocalGroup::notify_all() {
  for (Rank& rank : ranks_) rank.changed.notify_all();
}

std::shared_ptr<Meeting> LocalGroup::arrive(int rank, LocalCall call) {
  Lock lock(mutex_);
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  throw_if_aborted(mine);
  const std::uint64_t number = mine.calls++;
  std::shared_ptr<Meeting>& slot = open_[number];
  if (!slot) {
    slot = std::make_shared<Meeting>();
    slot->calls.resize(ranks_.size());
    slot->present.resize(ranks_.size());
  }
  const std::shared_ptr<Meeting> meeting = slot;
  meeting->calls[static_cast<std::size_t>(rank)] = std::move(call);
  meeting->present[static_cast<std::size_t>(rank)] = true;
  if (++meeting->arrived == ranks_.size()) {
    open_.erase(number);
    if (!meeting->broken) begin(lock, *meeting);
  }
  return meeting;
}

void LocalGroup::begin(Lock& lock, Meeting& meeting) {
  meeting.mismatch = find_mismatch(meeting.calls);
  if (!meeting.mismatch.empty()) {
    meeting.done = true;
    return notify_all();
  }
  if (meeting.calls.front().kind == LocalCall::Kind::split) split(meeting);
  if (meeting.calls.front().kind == LocalCall::Kind::all_reduce)
    meeting.scratch.resize(meeting.calls.front().send.size_bytes());
  begin_stage(meeting);
  const bool much = meeting.calls.front().receive.size_bytes() * ranks_.size() > help_bytes;
  if (much && !meeting.done) notify_all();
  help(lock, meeting);
}

void LocalGroup::begin_stage(Meeting& meeting) {
  if (meeting.stage == stage_count(meeting.calls.front().kind)) {
    meeting.done = true;
    return notify_all();
  }
  meeting.pieces = ranks_.size();
  meeting.next_piece = 0;
  meeting.finished_pieces = 0;
}

// Takes pieces until none is left to take; the last to finish a stage begins the next.
void LocalGroup::help(Lock& lock, Meeting& meeting) {
  while (!meeting.done && meeting.next_piece < meeting.pieces) {
    const std::size_t piece = meeting.next_piece++;
    const std::size_t stage = meeting.stage;
    lock.unlock();
    run_piece(meeting.calls, meeting.scratch, stage, piece);
    lock.lock();
    if (++meeting.finished_pieces == meeting.pieces) {
      ++meeting.stage;
      begin_stage(meeting);
    }
  }
}

void LocalGroup::split(Meeting& meeting) {
  meeting.parts.resize(ranks_.size());
  std::map<int, std::vector<std::size_t>> members;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (meeting.calls[rank].color >= 0) members[meeting.calls[rank].color].push_back(rank);
  for (auto& [color, ranks] : members) {
    std::ranges::stable_sort(ranks, {}, [&](std::size_t rank) { return meeting.calls[rank].key; });
    auto transports = make_local_transports(static_cast<int>(ranks.size()), timeout_, name_);
    for (std::size_t k = 0; k < ranks.size(); ++k) meeting.parts[ranks[k]] = std::move(transports[k]);
  }
}

// True when done, false when the time is over. Throws when this rank has aborted.
template <class Done>
bool LocalGroup::wait_until(int rank, Lock& lock, const Done& done) {
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (!done()) {
    throw_if_aborted(mine);
    if (mine.changed.wait_until(lock, deadline) == std::cv_status::timeout && !done()) return false;
  }
  return true;
}

void LocalGroup::give_up_waiting(int rank, Lock& lock, const std::string& text) {
  lock.unlock();
  abort(rank, text);
  throw Timeout(text);
}

bool LocalGroup::test(int rank, Meeting& meeting) {
  Lock lock(mutex_);
  if (!meeting.done) throw_if_aborted(ranks_[static_cast<std::size_t>(rank)]);
  if (meeting.arrived == ranks_.size() && !meeting.broken) help(lock, meeting);
  if (meeting.done && !meeting.mismatch.empty()) throw RankMismatch(meeting.mismatch);
  return meeting.done;
}

void LocalGroup::wait(int rank, Meeting& meeting) {
  Lock lock(mutex_);
  const bool all_there =
      wait_until(rank, lock, [&] { return meeting.done || (meeting.arrived == ranks_.size() && !meeting.broken); });
  if (!all_there) {
    std::string missing;
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      if (!meeting.present[other]) missing += " " + std::to_string(other);
    give_up_waiting(rank, lock,
                    std::string(name_of(meeting.calls[static_cast<std::size_t>(rank)].kind)) + " on rank " +
                        std::to_string(rank) + " of " + std::to_string(ranks_.size()) + ": not all ranks came within " +
                        seconds_text(timeout_) + " (" + (missing.empty() ? "one gave up" : "missing:" + missing) + ")");
  }
  help(lock, meeting);
  // Somebody is still copying: that ends.
  ranks_[static_cast<std::size_t>(rank)].changed.wait(lock, [&] {
    help(lock, meeting);
    return meeting.done;
  });
  if (!meeting.mismatch.empty()) throw RankMismatch(meeting.mismatch);
}

void LocalGroup::give_up(int rank, Meeting& meeting) {
  Lock lock(mutex_);
  if (meeting.arrived == ranks_.size() && !meeting.broken) {
    ranks_[static_cast<std::size_t>(rank)].changed.wait(lock, [&] {
      help(lock, meeting);
      return meeting.done;
    });
  } else if (!meeting.done) {
    meeting.broken = true;
  }
}

std::shared_ptr<LocalMessage> LocalGroup::post(LocalMessage message) {
  Lock lock(mutex_);
  const int rank = message.is_send ? message.source : message.destination;
  throw_if_aborted(ranks_[static_cast<std::size_t>(rank)]);
  const auto mine = std::make_shared<LocalMessage>(std::move(message));
  const auto found = std::ranges::find_if(messages_, [&](const auto& other) {
    return other->is_send != mine->is_send && other->source == mine->source &&
           other->destination == mine->destination && other->tag == mine->tag;
  });
  if (found == messages_.end()) {
    messages_.push_back(mine);
    return mine;
  }
  const auto other = *found;
  messages_.erase(found);
  other->matched = true;
  const LocalMessage& from = mine->is_send ? *mine : *other;
  LocalMessage& to = mine->is_send ? *other : *mine;
  if (from.count != to.count || from.type != to.type) {
    // As with other transports, the sender cannot know.
    to.mismatch = "receive on rank " + std::to_string(to.destination) + " from rank " + std::to_string(to.source) +
                  ", tag " + std::to_string(to.tag) + ": " + std::to_string(to.count) + " elements of " +
                  std::string(name_of(to.type)) + " are expected, " + std::to_string(from.count) + " of " +
                  std::string(name_of(from.type)) + " were sent";
  } else if (from.count > 0) {
    lock.unlock();
    std::memcpy(to.data, from.data, from.count * size_of(from.type));
    lock.lock();
  }
  mine->matched = mine->done = other->done = true;
  ranks_[static_cast<std::size_t>(other->is_send ? other->source : other->destination)].changed.notify_all();
  return mine;
}

bool LocalGroup::test(int rank, const LocalMessage& message) {
  const Lock lock(mutex_);
  if (!message.done && !message.matched) throw_if_aborted(ranks_[static_cast<std::size_t>(rank)]);
  if (!message.mismatch.empty()) throw RankMismatch(message.mismatch);
  return message.done;
}

void LocalGroup::wait(int rank, const LocalMessage& message) {
  Lock lock(mutex_);
  if (!wait_until(rank, lock, [&] { return message.matched; }))
    give_up_waiting(rank, lock,
                    std::string(message.is_send ? "send on rank " : "receive on rank ") + std::to_string(rank) +
                        " of " + std::to_string(ranks_.size()) + ": rank " +
                        std::to_string(message.is_send ? message.destination : message.source) +
                        " did not come within " + seconds_text(timeout_));
  ranks_[static_cast<std::size_t>(rank)].changed.wait(lock, [&] { return message.done; });
  if (!message.mismatch.empty()) throw RankMismatch(message.mismatch);
}

void LocalGroup::give_up(const std::shared_ptr<LocalMessage>& message) {
  Lock lock(mutex_);
  if (std::erase(messages_, message) > 0) return;
  const int rank = message->is_send ? message->source : message->destination;
  ranks_[static_cast<std::size_t>(rank)].changed.wait(lock, [&] { return message->done; });
}

void LocalGroup::abort(int rank, const std::string& reason) {
  const Lock lock(mutex_);
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  if (mine.aborted) return;
  mine.aborted = true;
  mine.abort_reason = reason;
  mine.changed.notify_all();
}

bool LocalGroup::aborted(int rank) {
  const Lock lock(mutex_);
  return ranks_[static_cast<std::size_t>(rank)].aborted;
}

void LocalGroup::throw_if_aborted(int rank) {
  const Lock lock(mutex_);
  throw_if_aborted(ranks_[static_cast<std::size_t>(rank)]);
}

}  // namespace shardgrad::detail
