// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Return codes, tags, scratch and the end of an MPI communicator.
#include "mpi_group.hpp"

#include <shardgrad/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

namespace shardgrad::detail {

namespace {

// Tags of send() and receive() end here; those of collectives begin behind, if MPI has that many.
constexpr int message_tags = 32768;
constexpr std::size_t most_free_scratch = 16;

int highest_tag_of_mpi() {
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  return found != 0 ? *static_cast<int*>(value) : message_tags - 1;
}

bool mpi_is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

}  // namespace

void require_mpi(const char* call) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0)
    throw NotInitialized(std::string(call) + ": MPI is not initialised (call MPI_Init_thread first)");
  if (mpi_is_finalized()) throw NotInitialized(std::string(call) + ": MPI is finalised already");
}

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
  return std::string(text, static_cast<std::size_t>(length));
}

MpiGroup::MpiGroup(MPI_Comm comm, std::chrono::milliseconds timeout, std::size_t chunk_limit, const MpiTuning& tuning)
    : comm_(comm), message_comm_(comm), timeout_(timeout), chunk_limit_(chunk_limit), tuning_(tuning), queue_(*this) {
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  const int highest = std::min(tuning_.highest_tag, highest_tag_of_mpi());
  if (highest >= 2 * message_tags - 1) {
    first_tag_ = message_tags;
  } else {
    // MPI promises no more than 32768 tags, which send() and receive() use: collectives need a communicator of their
    // own.
    check(MPI_Comm_dup(comm_, &message_comm_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(message_comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  tag_count_ = highest - first_tag_ + 1;
}

MpiGroup::~MpiGroup() {
  free_scratch_.clear();
  if (mpi_is_finalized()) {
    std::fprintf(stderr,
                 "shardgrad: a communicator (%s) was destroyed after MPI_Finalize; destroy it before, so that its "
                 "resources can be freed\n",
                 place().c_str());
    for (Scratch& scratch : kept_scratch_) (void)scratch.bytes_.release();
    return;
  }
  if (aborted()) {
    // Messages of operations that were given up may still arrive or be written: MPI must not use their communicator
    // again for another one, and the scratch stays allocated where requests are not complete.
    for (MPI_Request& request : given_up_) {
      int complete = 0;
      if (MPI_Test(&request, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete != 0) continue;
      for (Scratch& scratch : kept_scratch_) (void)scratch.bytes_.release();
      break;
    }
    return;
  }
  MPI_Comm comm = comm_;
  drain(comm_);
  if (message_comm_ != comm_) {
    drain(message_comm_);
    MPI_Comm_free(&message_comm_);
  }
  MPI_Comm_free(&comm);
}

void MpiGroup::drain(MPI_Comm comm) noexcept {
  constexpr std::chrono::seconds patience{1};  // the sender may be gone
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status) != MPI_SUCCESS || found == 0) return;
    int bytes = 0;
    if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes == MPI_UNDEFINED) return;
    auto scrap = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Imrecv(scrap.get(), bytes, MPI_BYTE, &message, &request) != MPI_SUCCESS) return;
    for (int complete = 0; complete == 0;) {
      if (MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
      if (complete == 0 && std::chrono::steady_clock::now() - start > patience) {
        (void)scrap.release();  // MPI may still write to it
        return;
      }
    }
  }
}

int MpiGroup::next_tag() {
  const int tag = first_tag_ + tags_used_;
  tags_used_ = (tags_used_ + 1) % tag_count_;
  return tag;
}

void MpiGroup::check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  const std::string text = std::string(call) + " failed on " + place() + ": " + mpi_error_text(code);
  abort(text);
  throw TransportFailure(text);
}

void MpiGroup::abort(const std::string& reason) {
  const std::lock_guard lock(abort_mutex_);
  if (aborted()) return;
  abort_reason_ = reason;
  aborted_.store(true, std::memory_order_release);
}

void MpiGroup::throw_if_aborted() const {
  if (!aborted()) return;
  const std::lock_guard lock(abort_mutex_);
  throw InvalidState("the communicator was aborted: " + abort_reason_);
}

std::string MpiGroup::place() const { return "rank " + std::to_string(rank_) + " of " + std::to_string(size_); }

void MpiGroup::give_up(MPI_Request request, bool is_message) {
  if (request == MPI_REQUEST_NULL) return;
  // A cancelled receive is complete at once. Sends can be cancelled too with MPICH, which aborts in MPI_Finalize if a
  // long one is still there; Open MPI goes on with them.
  if (is_message) MPI_Cancel(&request);
  int complete = 0;
  for (int attempt = 0; attempt < 4 && complete == 0; ++attempt) MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
  if (complete == 0) given_up_.push_back(request);
}

void MpiGroup::keep(Scratch scratch) {
  if (!scratch.bytes_) return;
  scratch.group_ = nullptr;
  kept_scratch_.push_back(std::move(scratch));
}

MpiGroup::Scratch::Scratch(MpiGroup& group, std::size_t bytes) : group_(&group), capacity_(bytes) {
  auto& free = group.free_scratch_;
  const auto found = std::ranges::find_if(
      free, [&](const Scratch& scratch) { return scratch.capacity_ >= bytes && scratch.capacity_ / 4 <= bytes; });
  if (found == free.end()) {
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  } else {
    capacity_ = found->capacity_;
    bytes_ = std::move(found->bytes_);
    free.erase(found);
  }
}

MpiGroup::Scratch::~Scratch() {
  if (!bytes_ || group_ == nullptr || group_->free_scratch_.size() >= most_free_scratch) return;
  Scratch back;
  back.capacity_ = capacity_;
  back.bytes_ = std::move(bytes_);
  group_->free_scratch_.push_back(std::move(back));
}

MpiGroup::Scratch::Scratch(Scratch&& other) noexcept
    : group_(other.group_), capacity_(other.capacity_), bytes_(std::move(other.bytes_)) {}

MpiGroup::Scratch& MpiGroup::Scratch::operator=(Scratch&& other) noexcept {
  std::swap(group_, other.group_);
  std::swap(capacity_, other.capacity_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MPI_Datatype mpi_transfer_type(DataType type) {
  switch (size_of(type)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

MPI_Datatype mpi_reduction_type(DataType type) {
  switch (type) {
    case DataType::uint8:
      return MPI_UINT8_T;
    case DataType::int8:
      return MPI_INT8_T;
    case DataType::int32:
      return MPI_INT32_T;
    case DataType::uint32:
      return MPI_UINT32_T;
    case DataType::int64:
      return MPI_INT64_T;
    case DataType::uint64:
      return MPI_UINT64_T;
    case DataType::float32:
      return MPI_FLOAT;
    case DataType::float64:
      return MPI_DOUBLE;
    case DataType::float16:
    case DataType::bfloat16:
      break;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::avg:
      break;
  }
  return MPI_OP_NULL;
}

}  // namespace shardgrad::detail
