// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Buckets live where their gradients live. Packing runs on the thread of the backward pass: it reads what that thread
// has just written.
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/profiling.hpp>
#include <shardgrad/grad/detail/bucket_storage.hpp>

#include <Kokkos_Core.hpp>

#include <memory>
#include <utility>

namespace shardgrad::detail {

namespace {

template <class MemorySpace>
FlatBuffer allocate_in(std::size_t count, DataType type, MemoryKind memory) {
  using Memory = Kokkos::View<std::byte*, MemorySpace>;
  auto bytes = std::make_shared<Memory>(Kokkos::view_alloc("shardgrad::Reducer::bucket", Kokkos::WithoutInitializing),
                                        count * size_of(type));
  return {Buffer{bytes->data(), count, type, memory}, bytes};
}

FlatBuffer allocate(std::size_t count, DataType type, MemoryKind memory) {
  if (memory == MemoryKind::host) return allocate_in<Kokkos::HostSpace>(count, type, memory);
  return allocate_in<Kokkos::DefaultExecutionSpace::memory_space>(count, type, memory);
}

}  // namespace

BucketStorage::BucketStorage(const BucketPlan& plan, const std::vector<GradParameter>& parameters, bool is_view)
    : plan_(&plan), parameters_(&parameters), is_view_(is_view) {
  for (const auto& bucket : plan.buckets) {
    flats_.push_back(allocate(bucket.count, bucket.type, bucket.memory));
    if (is_view) fill_zero(flats_.back().buffer);
  }
}

Buffer BucketStorage::part_of(std::size_t parameter) const {
  const auto [bucket, entry] = plan_->place_of[parameter];
  const BucketEntry& place = plan_->entries[bucket][entry];
  return flats_[bucket].buffer.slice(place.offset, place.count);
}

void BucketStorage::pack(std::size_t parameter) const {
  if (is_view_) return;
  const ScopedRegion region("shardgrad::Reducer::pack");
  shardgrad::pack((*parameters_)[parameter].gradient, part_of(parameter));
}

void BucketStorage::clear(std::size_t parameter) {
  const Buffer part = part_of(parameter);
  if (is_view_) {
    FlatBuffer copy = allocate(part.count, part.type, part.memory);
    convert(part, copy.buffer);
    kept_[parameter] = std::move(copy);
  }
  fill_zero(part);
}

void BucketStorage::unpack(std::size_t bucket, ConstBuffer reduced, const std::vector<bool>& unused) {
  const ScopedRegion region("shardgrad::Reducer::unpack");
  if (is_view_ && reduced.data != flats_[bucket].buffer.data) convert(reduced, flats_[bucket].buffer);
  for (const BucketEntry& entry : plan_->entries[bucket]) {
    const bool keep = !unused.empty() && unused[entry.parameter];
    if (is_view_ && keep) give_back(entry.parameter);
    if (is_view_ || keep) continue;
    shardgrad::unpack(reduced.slice(entry.offset, entry.count), (*parameters_)[entry.parameter].gradient);
  }
}

void BucketStorage::end_pass(bool failed) {
  if (failed)
    for (const auto& [parameter, copy] : kept_) give_back(parameter);
  kept_.clear();
}

void BucketStorage::give_back(std::size_t parameter) {
  const auto copy = kept_.find(parameter);
  if (copy != kept_.end()) convert(copy->second.buffer, part_of(parameter));
}

}  // namespace shardgrad::detail
